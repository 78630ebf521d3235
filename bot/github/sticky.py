"""The comment of one kind that the bot keeps up to date below an issue or pull request.

It is found by author *and* marker over all pages (other bots quote our marker, and a page is 30 comments). The marker
carries the number of the run that wrote it, and a run never overwrites a later one.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from bot.errors import GitHubError
from bot.github.api import BODY_LIMIT, Comment, GitHub

_MARKER = re.compile(r"<!-- proctor:([a-z][a-z0-9-]{0,63}) run=(\d{1,19}) -->\s*\Z")


@dataclass(frozen=True, slots=True)
class Create:
    """There is none yet."""

    body: str


@dataclass(frozen=True, slots=True)
class Update:
    """Ours is there and is to say `body`: ours, or what a newer run wrote in a twin."""

    comment_id: int
    body: str
    twins: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Keep:
    """Ours is there and says what it should, or what a newer run did."""

    comment_id: int
    twins: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sticky:
    """Where the comment is and what was done. `twins`: others of the kind that overlapping runs left, now removed."""

    comment_id: int
    action: Literal["created", "updated", "kept"]
    twins: tuple[int, ...]


def marked(kind: str, run_number: int, body: str) -> str:
    """The body with its marker.

    Raises:
        GitHubError: it is longer than GitHub takes; what to leave out is the caller's to decide.
    """
    marker = f"<!-- proctor:{kind} run={run_number} -->"
    if not _MARKER.fullmatch(marker):
        raise ValueError(f"not a marker: {marker}")
    text = f"{body.rstrip()}\n\n{marker}"
    if len(text) > BODY_LIMIT:
        raise GitHubError(f"the {kind} comment has {len(text)} characters; GitHub takes {BODY_LIMIT}", status=422)
    return text


def plan(comments: Sequence[Comment], author: str, kind: str, run_number: int, body: str) -> Create | Update | Keep:
    """What has to be done so that the comment of this kind says `body`; of twins the one with the lowest id counts."""
    text = marked(kind, run_number, body)
    found = dict(_found(comments, author, kind))
    if not found:
        return Create(text)
    first, *others = sorted(found, key=lambda comment: comment.id)
    twins = tuple(comment.id for comment in others)
    newest = max(found, key=lambda comment: found[comment])
    wanted = newest.body.strip() if found[newest] > run_number else text
    return Keep(first.id, twins) if first.body.strip() == wanted else Update(first.id, wanted, twins)


def upsert(
    github: GitHub, number: int, kind: str, run_number: int, body: str, known: Sequence[Comment] | None = None
) -> Sticky:
    """Bring the comment of this kind up to date. `known`: the comments there, if they have just been read.

    Raises:
        GitHubError: the body is too long, or GitHub did not do it.
    """
    author = github.bot_login()
    step = plan(github.comments(number) if known is None else known, author, kind, run_number, body)
    created = None
    if isinstance(step, Create):
        created = github.create_comment(number, step.body).id
        # Another run may have created one since we looked: look again, and agree on the lowest id.
        again = plan(github.comments(number), author, kind, run_number, body)
        # A list may for a while be older than the write, and then there is nothing to agree on.
        step = Keep(created, ()) if isinstance(again, Create) else again
    if isinstance(step, Update):
        github.update_comment(step.comment_id, step.body)
    for twin in step.twins:
        github.delete_comment(twin)
    action: Literal["created", "updated", "kept"] = "updated" if isinstance(step, Update) else "kept"
    return Sticky(step.comment_id, "created" if step.comment_id == created else action, step.twins)


def find(comments: Sequence[Comment], author: str, kind: str) -> tuple[Comment, int] | None:
    """The comment of this kind and the number of the run that wrote it; of twins the one with the lowest id."""
    return min(_found(comments, author, kind), key=lambda found: found[0].id, default=None)


def unmarked(body: str) -> str:
    """The body without its marker."""
    return _MARKER.sub("", body).rstrip()


def _found(comments: Sequence[Comment], author: str, kind: str) -> Iterator[tuple[Comment, int]]:
    """Comments of ours of this kind, with their run numbers."""
    for comment in comments:
        match = _MARKER.search(comment.body)
        if match and match[1] == kind and comment.author.casefold() == author.casefold():
            yield comment, int(match[2])
