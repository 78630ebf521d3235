"""What the bot asks of GitHub, in our words: the records it reads and the protocol `GitHub`. Knows no transport.

A record is parsed straight from the REST answer and declares only the fields used; an unknown state is refused.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, Protocol

from pydantic import AliasPath, BaseModel, BeforeValidator, ConfigDict, Field, Strict

Permission = Literal["admin", "write", "read", "none"]
StatusState = Literal["error", "failure", "pending", "success"]
Reaction = Literal["-1", "eyes"]

BODY_LIMIT = 65_536
"""Characters of a comment, issue or pull-request body (research/bots.md 2.9); GitHub's own description says nothing."""

DESCRIPTION_LIMIT = 140
"""Characters of a status description: https://docs.github.com/en/rest/commits/statuses"""

REFUSED_HINT = "; the token is not valid, or not any more: repeat the run, which gets a new one"
"""What whoever reads a log does about a refused token, REST's or git's."""

GHOST = "ghost"
"""Who GitHub shows for an account that is gone; never somebody with permission."""


class Foreign(BaseModel):
    """Data of GitHub's: immutable, strict, unknown fields ignored because GitHub adds some every month."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", validate_by_name=True)


Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
Login = Annotated[str, Field(validation_alias=AliasPath("user", "login"))]
AccountType = Annotated[str, Field(validation_alias=AliasPath("user", "type"))]
Time = Annotated[datetime, Strict(strict=False)]


class Comment(Foreign):
    """A comment below an issue or pull request."""

    id: int
    body: Text
    author: Login = GHOST
    account: AccountType = "User"
    created_at: Time
    updated_at: Time

    @property
    def by_person(self) -> bool:
        """Whether a user account wrote it; a name proves nothing."""
        return self.account == "User"

    @property
    def edited(self) -> bool:
        """Whether its text is not what its author first sent; people with write access can edit other people's."""
        return self.created_at != self.updated_at


class Label(Foreign):
    """A label on an issue."""

    name: str


class Issue(Foreign):
    """An issue as it stands now."""

    number: int
    title: str
    body: Text
    state: Literal["open", "closed"]
    author: Login = GHOST
    labels: list[Label]
    locked: bool = False
    pull_request: dict[str, Any] | None = None

    @property
    def on_pull(self) -> bool:
        """Whether it is a pull request, seen as an issue."""
        return self.pull_request is not None


class Pull(Foreign):
    """A pull request. `head_repo` is empty when the fork it came from is gone."""

    number: int
    state: Literal["open", "closed"]
    draft: bool = False
    author: Login = GHOST
    head_sha: Annotated[str, Field(validation_alias=AliasPath("head", "sha"))]
    head_ref: Annotated[str, Field(validation_alias=AliasPath("head", "ref"))]
    head_repo: Annotated[str, Field(validation_alias=AliasPath("head", "repo", "full_name"))] = ""
    base_ref: Annotated[str, Field(validation_alias=AliasPath("base", "ref"))]
    base_repo: Annotated[str, Field(validation_alias=AliasPath("base", "repo", "full_name"))]

    @property
    def same_repository(self) -> bool:
        """False for a fork, living or gone."""
        return self.head_repo.casefold() == self.base_repo.casefold()


class Review(Foreign):
    """A review. `commit` is what the reviewer looked at, which need not be the head any more."""

    id: int
    state: Literal["APPROVED", "CHANGES_REQUESTED", "COMMENTED", "DISMISSED", "PENDING"]
    reviewer: Login = GHOST
    account: AccountType = "User"
    commit: Annotated[str | None, Field(validation_alias="commit_id")] = None
    submitted_at: Time | None = None

    @property
    def by_person(self) -> bool:
        """Whether a user account wrote it; a name proves nothing."""
        return self.account == "User"


class Status(Foreign):
    """A commit status; of one context the newest counts."""

    context: str
    state: StatusState
    description: Text = ""
    creator: Annotated[str, Field(validation_alias=AliasPath("creator", "login"))] = GHOST
    created_at: Time
    url: Annotated[Text, Field(validation_alias="target_url")] = ""


class PullFile(Foreign):
    """A file that a pull request changes; `previous` is where a renamed one was."""

    path: Annotated[str, Field(validation_alias="filename")]
    status: Literal["added", "removed", "modified", "renamed", "copied", "changed", "unchanged"]
    previous: Annotated[str | None, Field(validation_alias="previous_filename")] = None


class Commit(Foreign):
    """A commit of a pull request. `login`: whose GitHub takes it to be by its address, which anybody can write."""

    sha: str
    login: Annotated[str, Field(validation_alias=AliasPath("author", "login"))] = GHOST
    author_email: Annotated[str, Field(validation_alias=AliasPath("commit", "author", "email"))]
    committer_email: Annotated[str, Field(validation_alias=AliasPath("commit", "committer", "email"))]


RunStatus = Literal["queued", "in_progress", "completed", "waiting", "requested", "pending"]


class WorkflowRun(Foreign):
    """A run of a workflow. `title` is what the workflow file's `run-name` makes of the event."""

    id: int
    title: Annotated[str, Field(validation_alias="display_title")]
    path: str
    status: RunStatus
    created_at: Time
    url: Annotated[str, Field(validation_alias="html_url")]

    @property
    def workflow(self) -> str:
        """The workflow's file, without folder and ref."""
        return self.path.partition("@")[0].rpartition("/")[2]


class WorkflowJob(Foreign):
    """A job of a run; one that waits for others may not be there yet."""

    name: str
    status: RunStatus
    conclusion: str | None = None
    started_at: Time | None = None


class GitHub(Protocol):
    """One repository on GitHub. Lists are complete, over all pages; a write happens once or raises GitHubError."""

    def bot_login(self) -> str:
        """Who we are."""
        ...

    def permission(self, login: str) -> Permission:
        """What somebody may do here; somebody unknown or not a person may do nothing."""
        ...

    def issue(self, number: int) -> Issue:
        """An issue as it stands now."""
        ...

    def open_issues(self, label: str) -> Sequence[Issue]:
        """The open issues with a label, newest first; no pull requests."""
        ...

    def comments(self, number: int) -> Sequence[Comment]:
        """Comments below an issue or pull request, oldest first."""
        ...

    def create_comment(self, number: int, body: str) -> Comment:
        """Comment below an issue or pull request."""
        ...

    def update_comment(self, comment_id: int, body: str) -> Comment:
        """Replace the text of a comment of ours."""
        ...

    def delete_comment(self, comment_id: int) -> None:
        """Remove a comment of ours; one that is gone is no error."""
        ...

    def react(self, comment_id: int, content: Reaction) -> None:
        """React to a comment; the same reaction twice is one."""
        ...

    def claim(self, ref: str, sha: str) -> bool:
        """Create a git ref; False when it is there already."""
        ...

    def find_pull(self, branch: str) -> Pull | None:
        """The open pull request from this branch of this repository."""
        ...

    def open_pull(self, branch: str, base: str, title: str, body: str, *, draft: bool = False) -> Pull:
        """Open a pull request, or return the one that is open from this branch."""
        ...

    def pull(self, number: int) -> Pull:
        """A pull request as it stands now."""
        ...

    def open_pulls(self) -> Sequence[Pull]:
        """The open pull requests, newest first."""
        ...

    def changed(self, base: str, head: str) -> Sequence[PullFile] | None:
        """The files that a commit changes beyond where it left another; None when there are more than GitHub lists."""
        ...

    def pull_files(self, number: int) -> Sequence[PullFile]:
        """The files a pull request changes."""
        ...

    def reviews(self, number: int) -> Sequence[Review]:
        """Reviews of a pull request, oldest first."""
        ...

    def statuses(self, sha: str) -> Sequence[Status]:
        """Statuses of a commit, newest first."""
        ...

    def set_status(self, sha: str, context: str, state: StatusState, description: str, url: str | None = None) -> None:
        """Put a status on a commit."""
        ...

    def commits(self, number: int) -> Sequence[Commit]:
        """The commits of a pull request, oldest first; GitHub shows at most 250."""
        ...

    def unfinished_runs(self) -> Sequence[WorkflowRun]:
        """Workflow runs that have not ended, oldest first."""
        ...

    def jobs(self, run_id: int) -> Sequence[WorkflowJob]:
        """The jobs of a workflow run."""
        ...

    def cancel_run(self, run_id: int) -> bool:
        """End a workflow run; False when it has ended already, or is not there any more."""
        ...

    def add_label(self, number: int, label: str) -> None:
        """Put a label on an issue."""
        ...

    def remove_label(self, number: int, label: str) -> None:
        """Take a label from an issue; one that is not there is no error."""
        ...
