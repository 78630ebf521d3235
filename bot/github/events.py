"""Webhook payload → one of a closed set of events. Decoding only; who may do what is decided elsewhere.

Payloads: https://docs.github.com/en/webhooks/webhook-events-and-payloads
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from bot.contract.load import validate
from bot.errors import DataError, Problem
from bot.github.api import Foreign, Label, Text
from bot.sanitize import plain_line

PAYLOAD_LIMIT = 8 * 2**20
"""Bytes. Two bodies of 65,536 characters, each up to 12 bytes as JSON escapes, beside 30 KB of envelope, are 1.6 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueLabeled:
    """Somebody put a label on an issue. Title and body are the text at that moment.

    `key` names this act: a redelivery or a re-run carries the same payload and so the same key. The payload has no id
    of the act itself, but each act moves the issue's `updated_at`.
    """

    repo: str
    number: int
    title: str
    body: str
    label: str
    is_open: bool
    author: str
    sender: str
    sender_id: int
    key: str
    labels: tuple[str, ...] = ()
    """All that the issue has now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueUnlabeled:
    """Somebody took a label from an issue."""

    repo: str
    number: int
    label: str
    sender: str
    sender_id: int
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommentCreated:
    """Somebody commented below an issue or, with `on_pull`, a pull request."""

    repo: str
    number: int
    on_pull: bool
    is_open: bool
    comment_id: int
    body: str
    author: str
    author_id: int
    by_person: bool

    @property
    def key(self) -> str:
        """Names this comment."""
        return f"comment-{self.comment_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewSubmitted:
    """Somebody reviewed a pull request, whose head was `head_sha` at that moment."""

    repo: str
    number: int
    state: Literal["approved", "changes_requested", "commented", "dismissed"]
    reviewer: str
    head_sha: str
    review_id: int

    @property
    def key(self) -> str:
        """Names this review."""
        return f"review-{self.review_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueWithdrawn:
    """Somebody closed an issue, edited its text, or took it elsewhere: what was asked is not asked any more."""

    repo: str
    number: int
    how: Literal["closed", "edited", "deleted", "transferred"]
    sender: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PullsChanged:
    """A workflow that a review of a pull request, or the pull request itself, started has ended. `pulls` and `head_sha`
    are what to look at again, and nothing more is believed; of a fork's GitHub names only the head."""

    repo: str
    pulls: tuple[int, ...]
    head_sha: str


@dataclass(frozen=True, slots=True)
class Ignored:
    """Something the bot does not act on, and why."""

    reason: str


Event = IssueLabeled | IssueUnlabeled | IssueWithdrawn | CommentCreated | ReviewSubmitted | PullsChanged | Ignored


class _Account(Foreign):
    login: str = Field(min_length=1)
    id: int
    type: str


class _Repository(Foreign):
    full_name: str = Field(pattern=r"^[\w.-]+/[\w.-]+$")


class _Issue(Foreign):
    number: int = Field(ge=1)
    title: str
    body: Text = ""
    state: Literal["open", "closed"]
    user: _Account
    updated_at: str = Field(pattern=r"^[0-9TZ:.+-]{10,40}$")
    pull_request: dict[str, Any] | None = None
    labels: list[Label] = []


class _Comment(Foreign):
    id: int
    body: Text
    user: _Account


class _Head(Foreign):
    sha: str = Field(pattern=r"^[0-9a-f]{40}$")


class _Pull(Foreign):
    number: int = Field(ge=1)
    head: _Head


class _Review(Foreign):
    id: int
    state: Literal["approved", "changes_requested", "commented", "dismissed"]
    user: _Account


class _Action(Foreign):
    action: str | None = None


class _LabelPayload(Foreign):
    repository: _Repository
    issue: _Issue
    label: Label
    sender: _Account


class _Change(Foreign):
    title: dict[str, Any] | None = None
    body: dict[str, Any] | None = None


class _IssuePayload(Foreign):
    repository: _Repository
    issue: _Issue
    sender: _Account
    changes: _Change | None = None


class _CommentPayload(Foreign):
    repository: _Repository
    issue: _Issue
    comment: _Comment


class _ReviewPayload(Foreign):
    repository: _Repository
    pull_request: _Pull
    review: _Review


class _PullReference(Foreign):
    number: int


class _Run(Foreign):
    event: str
    head_sha: str = Field(pattern=r"^[0-9a-f]{40}$")
    pull_requests: list[_PullReference]


class _RunPayload(Foreign):
    repository: _Repository
    workflow_run: _Run


def read_event(name: str, path: Path) -> Event:
    """The event of a workflow run: GITHUB_EVENT_NAME and the file at GITHUB_EVENT_PATH.

    Raises:
        DataError: the file is missing, too large or malformed; all problems, with paths.
    """
    source = f"payload of {plain_line(name, 40)!r}"
    try:
        if (size := path.stat().st_size) > PAYLOAD_LIMIT:
            raise DataError(source, [Problem("", f"{size} bytes, at most {PAYLOAD_LIMIT} are read")])
        payload = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(source, [Problem("", f"cannot be read as JSON: {plain_line(str(error))}")]) from None
    return decode_event(name, payload)


def decode_event(name: str, payload: Any) -> Event:
    """The event in a parsed payload.

    Raises:
        DataError: it does not have the form GitHub documents; all problems, with paths.
    """
    source = f"payload of {plain_line(name, 40)!r}"
    action = validate(_Action, payload, source).action
    match name, action:
        case "issues", "labeled":
            return _labeled(validate(_LabelPayload, payload, source))
        case "issues", "unlabeled":
            return _unlabeled(validate(_LabelPayload, payload, source))
        case "issues", "closed" | "edited" | "deleted" | "transferred":
            return _withdrawn(action, validate(_IssuePayload, payload, source))
        case "issue_comment", "created":
            return _commented(validate(_CommentPayload, payload, source))
        case "pull_request_review", "submitted":
            return _reviewed(validate(_ReviewPayload, payload, source))
        case "workflow_run", "completed":
            return _pulls_changed(validate(_RunPayload, payload, source))
        case "issue_comment", "edited" | "deleted":
            return Ignored("only new comments are read: an edited one may have been edited by somebody else")
        case _:
            return Ignored(f"the bot does not act on {plain_line(name, 40)!r}, action {plain_line(str(action), 40)!r}")


def _key(action: str, issue: _Issue) -> str:
    return action + "-" + "".join(c for c in issue.updated_at if c.isalnum())


def _labeled(payload: _LabelPayload) -> Event:
    issue = payload.issue
    if issue.pull_request is not None:
        return Ignored("labels on pull requests start nothing")
    return IssueLabeled(
        repo=payload.repository.full_name,
        number=issue.number,
        title=issue.title,
        body=issue.body,
        label=payload.label.name,
        is_open=issue.state == "open",
        author=issue.user.login,
        sender=payload.sender.login,
        sender_id=payload.sender.id,
        key=_key("labeled", issue),
        labels=tuple(label.name for label in issue.labels),
    )


def _unlabeled(payload: _LabelPayload) -> Event:
    if payload.issue.pull_request is not None:
        return Ignored("labels on pull requests start nothing")
    return IssueUnlabeled(
        repo=payload.repository.full_name,
        number=payload.issue.number,
        label=payload.label.name,
        sender=payload.sender.login,
        sender_id=payload.sender.id,
        key=_key("unlabeled", payload.issue),
    )


def _withdrawn(how: Literal["closed", "edited", "deleted", "transferred"], payload: _IssuePayload) -> Event:
    changes = payload.changes
    if payload.issue.pull_request is not None:
        return Ignored("a pull request is no request for a kernel")
    if how == "edited" and changes is not None and changes.title is None and changes.body is None:
        return Ignored("neither title nor text was edited")
    return IssueWithdrawn(
        repo=payload.repository.full_name, number=payload.issue.number, how=how, sender=payload.sender.login
    )


def _commented(payload: _CommentPayload) -> CommentCreated:
    comment = payload.comment
    return CommentCreated(
        repo=payload.repository.full_name,
        number=payload.issue.number,
        on_pull=payload.issue.pull_request is not None,
        is_open=payload.issue.state == "open",
        comment_id=comment.id,
        body=comment.body,
        author=comment.user.login,
        author_id=comment.user.id,
        by_person=comment.user.type == "User",
    )


def _pulls_changed(payload: _RunPayload) -> Event:
    run = payload.workflow_run
    if run.event not in ("pull_request_review", "pull_request"):
        return Ignored("only a run that a pull request or its review started is of interest")
    numbers = tuple(pull.number for pull in run.pull_requests)
    return PullsChanged(repo=payload.repository.full_name, pulls=numbers, head_sha=run.head_sha)


def _reviewed(payload: _ReviewPayload) -> ReviewSubmitted:
    return ReviewSubmitted(
        repo=payload.repository.full_name,
        number=payload.pull_request.number,
        state=payload.review.state,
        reviewer=payload.review.user.login,
        head_sha=payload.pull_request.head.sha,
        review_id=payload.review.id,
    )
