"""What the forge remembers: frozen records in GitHub's words. A change replaces a record, so whoever holds one has a
consistent picture of that moment.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

Role = Literal["none", "read", "triage", "write", "maintain", "admin"]
ROLES: tuple[Role, ...] = ("none", "read", "triage", "write", "maintain", "admin")
"""In rising order, https://docs.github.com/en/organizations/managing-user-access-to-your-organizations-repositories"""

Openness = Literal["open", "closed"]
ReviewState = Literal["APPROVED", "CHANGES_REQUESTED", "COMMENTED"]
StatusState = Literal["error", "failure", "pending", "success"]


@dataclass(frozen=True, slots=True)
class Site:
    """Where the forge is reached, and the one repository it holds."""

    url: str
    owner: str
    name: str
    default_branch: str
    private: bool
    created_at: datetime

    @property
    def full_name(self) -> str:
        """`owner/name`."""
        return f"{self.owner}/{self.name}"

    @property
    def api(self) -> str:
        """Root of the REST interface, as on GitHub Enterprise."""
        return f"{self.url}/api/v3"

    @property
    def repo_api(self) -> str:
        """REST address of the repository."""
        return f"{self.api}/repos/{self.full_name}"

    @property
    def repo_url(self) -> str:
        """Address of the repository's page."""
        return f"{self.url}/{self.full_name}"


@dataclass(frozen=True, slots=True)
class User:
    """An account. What `actions_bot` does starts no workflow, as with GITHUB_TOKEN."""

    id: int
    login: str
    role: Role
    token: str
    actions_bot: bool = False

    @property
    def is_bot(self) -> bool:
        """Whether this is an App and not a person."""
        return self.actions_bot or self.login.endswith("[bot]")


@dataclass(frozen=True, slots=True)
class Reaction:
    """One user's reaction to an issue or comment."""

    id: int
    user: User
    content: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Label:
    """A label of the repository."""

    id: int
    name: str
    color: str


@dataclass(frozen=True, slots=True)
class PullPart:
    """What makes an issue a pull request. `head_owner` differs from the repository's owner for a fork."""

    head_owner: str
    head_ref: str
    head_sha: str
    base_ref: str
    base_sha: str
    draft: bool


@dataclass(frozen=True, slots=True)
class Issue:
    """An issue, or a pull request when it has a `pull` part."""

    id: int
    number: int
    user: User
    title: str
    body: str
    created_at: datetime
    updated_at: datetime
    state: Openness = "open"
    closed_at: datetime | None = None
    labels: tuple[Label, ...] = ()
    comments: int = 0
    reactions: tuple[Reaction, ...] = ()
    pull: PullPart | None = None


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment in the conversation of an issue or pull request."""

    id: int
    number: int
    user: User
    body: str
    created_at: datetime
    updated_at: datetime
    reactions: tuple[Reaction, ...] = ()


@dataclass(frozen=True, slots=True)
class Review:
    """A review of a pull request at one commit."""

    id: int
    number: int
    user: User
    state: ReviewState
    body: str
    commit_id: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Status:
    """What somebody says of a commit in a context; the newest of a context counts."""

    id: int
    sha: str
    user: User
    state: StatusState
    context: str
    description: str | None
    target_url: str | None
    created_at: datetime


RunStatus = Literal["queued", "in_progress", "completed", "waiting", "requested", "pending"]
Conclusion = Literal["success", "failure", "cancelled", "skipped"]


@dataclass(frozen=True, slots=True)
class WorkflowJob:
    """A job of a workflow run."""

    id: int
    name: str
    status: RunStatus
    conclusion: Conclusion | None
    started_at: datetime | None


@dataclass(frozen=True, slots=True)
class WorkflowRun:
    """A run of a workflow, known by the workflow's name, which is its file's too."""

    id: int
    workflow: str
    title: str
    event: str
    head_sha: str
    created_at: datetime
    status: RunStatus = "queued"
    conclusion: Conclusion | None = None
    jobs: tuple[WorkflowJob, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """A line of the timeline that is neither comment nor review: a label, a push, a closing."""

    number: int
    user: User
    text: str
    detail: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Event:
    """A webhook: its name, its unique delivery and its payload. `delivered` is false for what an Actions bot did."""

    delivery: str
    name: str
    payload: dict[str, Any]
    delivered: bool
