"""The forge's memory and GitHub's rules: who may do what, what is refused with which status, which webhook follows.

Knows nothing of HTTP. Every method that acts takes the login it acts as; webhooks go out after the lock is
released, in the thread of whoever acted.
"""

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from bot.forge import shapes
from bot.forge.accounts import Accounts
from bot.forge.records import (
    Change,
    Comment,
    Conclusion,
    Event,
    Issue,
    Label,
    Openness,
    PullPart,
    Reaction,
    Review,
    ReviewState,
    Role,
    RunStatus,
    Site,
    Status,
    StatusState,
    User,
    WorkflowJob,
    WorkflowRun,
)
from bot.forge.refusals import RequestRefusedError, checked, invalid
from bot.forge.repository import ChangedFile, Commit, Repository
from bot.forge.settings import Settings

T = TypeVar("T")
Watcher = Callable[[Event], None]

_COLORS = {"optimize": "0e8a16", "needs-info": "d876e3"}


class ForgeState:
    """One repository with its users, issues, pull requests and what was said about them."""

    def __init__(
        self,
        repository: Repository,
        full_name: str = "acme/kernels",
        *,
        default_branch: str = "main",
        private: bool = False,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Start with nobody and nothing said; `Forge.serving` sets the address in `site`."""
        owner, name = full_name.split("/")
        self.repository = repository
        self.site = Site("http://forge.invalid", owner, name, default_branch, private, now())
        self.accounts = Accounts(private=private)
        self.settings = Settings(self.accounts)
        self._now = now
        self._lock = threading.RLock()
        self._push_lock = threading.Lock()
        self._ids = count(1001)
        self._issues: dict[int, Issue] = {}
        self._comments: dict[int, Comment] = {}
        self._labels: dict[str, Label] = {}
        self._reviews: list[Review] = []
        self._statuses: list[Status] = []
        self._changes: list[Change] = []
        self._runs: dict[int, WorkflowRun] = {}
        self._events: list[Event] = []
        self._watchers: list[Watcher] = []

    @classmethod
    def create(cls, folder: Path, full_name: str = "acme/kernels", default_branch: str = "main") -> "ForgeState":
        """A new public forge whose empty bare repository lies at `folder/owner/name.git`."""
        repository = Repository.create(folder / f"{full_name}.git", default_branch)
        return cls(repository, full_name, default_branch=default_branch)

    def beside(self, repository: Repository) -> "ForgeState":
        """The same users, issues and words beside a copy of the repository; from now on each goes its own way, and
        nobody watches the new one."""
        made = ForgeState(repository, f"{self.site.owner}/{self.site.name}", now=self._now)
        with self._lock:
            made.site, made.accounts, made.settings = self.site, self.accounts, self.settings
            made._ids = copy(self._ids)
            made._issues, made._comments, made._labels = dict(self._issues), dict(self._comments), dict(self._labels)
            made._reviews, made._statuses, made._changes = [*self._reviews], [*self._statuses], [*self._changes]
            made._runs, made._events = dict(self._runs), [*self._events]
        return made

    def add_user(self, login: str, permission: Role, token: str, *, actions_bot: bool = False) -> User:
        """Register an account with its role in the repository."""
        return self.accounts.add(login, permission, token, actions_bot=actions_bot)

    # Reading

    def issues(self) -> list[Issue]:
        """Issues and pull requests, newest first."""
        return sorted(self._issues.values(), key=lambda issue: -issue.number)

    def issue(self, number: int) -> Issue:
        """An issue or pull request."""
        return self._found(self._issues.get(number))

    def pull(self, number: int) -> tuple[Issue, PullPart]:
        """A pull request and the part that makes it one."""
        issue = self.issue(number)
        return issue, self._found(issue.pull)

    def pulls(self) -> list[tuple[Issue, PullPart]]:
        """Pull requests, newest first."""
        return [(issue, issue.pull) for issue in self.issues() if issue.pull]

    def comparison(self, part: PullPart) -> tuple[list[Commit], list[ChangedFile]]:
        """What a pull request would add to its base: commits and changed files."""
        base, head = part.base_sha, part.head_sha
        return self.repository.commits(base, head), self.repository.files(base, head)

    def comments(self, number: int) -> list[Comment]:
        """Comments of an issue or pull request, oldest first."""
        self.issue(number)
        return [each for each in list(self._comments.values()) if each.number == number]

    def comment_by_id(self, comment_id: int) -> Comment:
        """One comment."""
        return self._found(self._comments.get(comment_id))

    def reviews(self, number: int) -> list[Review]:
        """Reviews of a pull request, oldest first."""
        self.pull(number)
        return [each for each in list(self._reviews) if each.number == number]

    def changes(self, number: int) -> list[Change]:
        """Labels, pushes and closings of an issue or pull request, oldest first."""
        return [each for each in list(self._changes) if each.number == number]

    def statuses(self, sha: str) -> list[Status]:
        """Everything said of a commit, newest first."""
        return [each for each in reversed(list(self._statuses)) if each.sha == sha]

    def latest_statuses(self, sha: str) -> list[Status]:
        """The newest status of each context."""
        return list({each.context: each for each in reversed(self.statuses(sha))}.values())

    def labels(self) -> list[Label]:
        """Labels of the repository, oldest first."""
        return list(self._labels.values())

    @property
    def events(self) -> list[Event]:
        """Every webhook so far, the undelivered ones included."""
        return list(self._events)

    # Issues and comments

    def open_issue(self, as_: str | None, title: str, body: str) -> Issue:
        """Open an issue, as anybody may who can read."""
        user = self.accounts.allow(as_, "read")
        if not title.strip():
            raise invalid("Issue", "title", "missing_field")
        checked("Issue", body)
        with self._acting(user) as emit:
            issue = self._new_issue(user, title, body, None)
            emit("issues", action="opened", issue=shapes.issue(self.site, issue))
            return issue

    def edit_issue(
        self,
        as_: str | None,
        number: int,
        *,
        title: str | None = None,
        body: str | None = None,
        state: Openness | None = None,
    ) -> Issue:
        """Change title, body or state of an issue or pull request: its author, or triage and above."""
        issue = self.issue(number)
        user = self.accounts.allow(as_, "read" if as_ == issue.user.login else "triage")
        checked("Issue", body or "")
        with self._acting(user) as emit:
            issue = self.issue(number)
            edited = replace(issue, title=title or issue.title, body=issue.body if body is None else body)
            if edited != issue:
                self._store(edited)
                before = {"title": issue.title, "body": issue.body}
                after = {"title": edited.title, "body": edited.body}
                changes = {key: {"from": text} for key, text in before.items() if text != after[key]}
                self._emit_issue(emit, "edited", number, changes=changes)
            if state not in {None, issue.state}:
                self._set_openness(emit, user, number, "closed" if state == "closed" else "open")
            return self.issue(number)

    def label(self, as_: str | None, number: int, name: str) -> Issue:
        """Put a label on an issue or pull request; once is enough."""
        user = self.accounts.allow(as_, "triage")
        with self._acting(user) as emit:
            issue = self.issue(number)
            if name not in self._labels:
                self._labels[name] = Label(next(self._ids), name, _COLORS.get(name, "ededed"))
            if self._labels[name] not in issue.labels:
                issue = self._store(replace(issue, labels=(*issue.labels, self._labels[name])))
                self._note(number, user, "added the label", name)
                self._emit_issue(emit, "labeled", number, label=shapes.label(self.site, self._labels[name]))
            return issue

    def add_label(self, as_: str | None, name: str, color: str, description: str = "") -> Label:
        """A new label of the repository; 422 when there is one of that name."""
        label = Label(next(self._ids), name, color)
        with self._lock:
            if name.casefold() in map(str.casefold, self._labels):
                raise invalid("Label", "name", "already_exists")
            self.settings.add_label(as_, label, description)
            self._labels[name] = label
            return label

    def unlabel(self, as_: str | None, number: int, name: str) -> Issue:
        """Take a label off; 404 when it is not on."""
        user = self.accounts.allow(as_, "triage")
        with self._acting(user) as emit:
            issue = self.issue(number)
            label = next((each for each in issue.labels if each.name == name), None)
            if label is None:
                raise RequestRefusedError(404, "Label does not exist")
            issue = self._store(replace(issue, labels=tuple(each for each in issue.labels if each != label)))
            self._note(number, user, "removed the label", name)
            self._emit_issue(emit, "unlabeled", number, label=shapes.label(self.site, label))
            return issue

    def comment(self, as_: str | None, number: int, text: str) -> Comment:
        """Say something on an issue or pull request, as anybody may who can read."""
        user = self.accounts.allow(as_, "read")
        checked("IssueComment", text, required=True)
        with self._acting(user) as emit:
            issue = self.issue(number)
            self._store(replace(issue, comments=issue.comments + 1))
            now = self._now()
            comment = Comment(next(self._ids), number, user, text, now, now)
            self._comments[comment.id] = comment
            self._emit_comment(emit, "created", comment)
            return comment

    def edit_comment(self, as_: str | None, comment_id: int, text: str) -> Comment:
        """Rewrite a comment: its author, or write and above."""
        comment = self.comment_by_id(comment_id)
        user = self.accounts.allow(as_, "read" if as_ == comment.user.login else "write")
        checked("IssueComment", text, required=True)
        with self._acting(user) as emit:
            before = self.comment_by_id(comment_id)
            comment = replace(before, body=text, updated_at=self._now())
            self._comments[comment_id] = comment
            self._emit_comment(emit, "edited", comment, changes={"body": {"from": before.body}})
            return comment

    def delete_comment(self, as_: str | None, comment_id: int) -> None:
        """Remove a comment: its author, or write and above."""
        comment = self.comment_by_id(comment_id)
        user = self.accounts.allow(as_, "read" if as_ == comment.user.login else "write")
        with self._acting(user) as emit:
            self._found(self._comments.get(comment_id))
            self._emit_comment(emit, "deleted", comment)
            del self._comments[comment_id]
            issue = self.issue(comment.number)
            self._store(replace(issue, comments=issue.comments - 1))

    def react(self, as_: str | None, on: Issue | Comment, content: str) -> Reaction:
        """React to an issue or comment; the same reaction twice is one."""
        user = self.accounts.allow(as_, "read")
        if content not in shapes.REACTIONS:
            raise invalid("Reaction", "content", "invalid")
        with self._lock:
            fresh = self.issue(on.number) if isinstance(on, Issue) else self.comment_by_id(on.id)
            for reaction in fresh.reactions:
                if reaction.user.login == user.login and reaction.content == content:
                    return reaction
            reaction = Reaction(next(self._ids), user, content, self._now())
            if isinstance(fresh, Issue):
                self._issues[fresh.number] = replace(fresh, reactions=(*fresh.reactions, reaction))
            else:
                self._comments[fresh.id] = replace(fresh, reactions=(*fresh.reactions, reaction))
            return reaction

    # Pull requests

    def head_sha(self, head: str) -> str | None:
        """The commit of `branch` or `owner:branch`; a fork's branches are `refs/forks/OWNER/*` here."""
        owner, _, branch = head.rpartition(":")
        return self.repository.refs().get(self._head_ref(owner or self.site.owner, branch))

    def open_pull(self, as_: str | None, title: str, body: str, *, head: str, base: str, draft: bool = False) -> Issue:
        """Propose a branch; 422 when one is open for it, when it has nothing new, or when a branch is missing."""
        owner, _, branch = head.rpartition(":")
        owner = owner or self.site.owner
        user = self.accounts.allow(as_, "read" if owner != self.site.owner else "write")
        if not title.strip():
            raise invalid("PullRequest", "title", "missing_field")
        checked("PullRequest", body)
        head_sha, base_sha = self.head_sha(head), self.repository.commit_sha(base)
        if head_sha is None or base_sha is None:
            raise invalid("PullRequest", "head" if head_sha is None else "base", "invalid")
        if not self.repository.commits(base_sha, head_sha):
            raise invalid("PullRequest", "head", "custom", f"No commits between {base} and {branch}")
        with self._acting(user) as emit:
            for other, part in self.pulls():
                if other.state == "open" and (part.head_owner, part.head_ref, part.base_ref) == (owner, branch, base):
                    raise invalid(
                        "PullRequest", "head", "custom", f"A pull request already exists for {owner}:{branch}."
                    )
            part = PullPart(owner, branch, head_sha, base, base_sha, draft)
            issue = self._new_issue(user, title, body, part)
            self.repository.set_ref(f"refs/pull/{issue.number}/head", head_sha)
            self._emit_issue(emit, "opened", issue.number)
            return issue

    def review(
        self, as_: str | None, number: int, state: ReviewState, body: str = "", commit_id: str | None = None
    ) -> Review:
        """Review a pull request; 422 for approving or refusing one's own."""
        user = self.accounts.allow(as_, "read")
        with self._acting(user) as emit:
            issue, part = self.pull(number)
            if user.login == issue.user.login and state != "COMMENTED":
                act = "approve" if state == "APPROVED" else "request changes on"
                raise RequestRefusedError(422, "Unprocessable Entity", [f"Can not {act} your own pull request"])
            checked("PullRequestReview", body, required=state != "APPROVED")
            review = Review(next(self._ids), number, user, state, body, commit_id or part.head_sha, self._now())
            self._reviews.append(review)
            emit(
                "pull_request_review",
                action="submitted",
                review=shapes.review(self.site, review, issue, webhook=True),
                pull_request=shapes.pull(self.site, issue, part),
            )
            return review

    def set_status(
        self,
        as_: str | None,
        sha: str,
        state: StatusState,
        *,
        context: str = "default",
        description: str | None = None,
        target_url: str | None = None,
    ) -> Status:
        """Say of a commit how a check went."""
        user = self.accounts.allow(as_, "write")
        if len(description or "") > 140:
            raise invalid("Status", "description", "custom", "description is too long (maximum is 140 characters)")
        if self.repository.commit_sha(sha) != sha:
            raise RequestRefusedError(422, f"No commit found for SHA: {sha}")
        with self._lock:
            status = Status(next(self._ids), sha, user, state, context, description, target_url, self._now())
            self._statuses.append(status)
            return status

    # Refs

    def create_ref(self, as_: str | None, ref: str, sha: str) -> None:
        """Create a ref atomically; 422 when it exists or the commit does not."""
        user = self.accounts.allow(as_, "write")
        if ref.count("/") < 2 or not self.repository.is_ref_name(ref) or ref.startswith("refs/pull/"):
            raise RequestRefusedError(422, f"{ref} is not a valid ref name.")
        if not self.repository.has_object(sha):
            raise RequestRefusedError(422, "Object does not exist")
        if not self.moving_refs(user.login, lambda: self.repository.create_ref(ref, sha)):
            raise RequestRefusedError(422, "Reference already exists")

    def delete_ref(self, as_: str | None, ref: str) -> None:
        """Remove a ref; 422 when there is none."""
        user = self.accounts.allow(as_, "write")
        if ref not in self.repository.refs():
            raise RequestRefusedError(422, "Reference does not exist")
        self.moving_refs(user.login, lambda: self.repository.delete_ref(ref))

    def moving_refs(self, as_: str, move: Callable[[], T]) -> T:
        """Run something that may move refs, such as a push, then let pull requests follow."""
        user = self.accounts.allow(as_, "write")
        with self._push_lock:
            before = self.repository.refs()
            result = move()
            after = self.repository.refs()
        with self._acting(user) as emit:
            for ref in sorted(before.keys() | after.keys()):
                if before.get(ref) != after.get(ref):
                    self._ref_moved(emit, user, ref, before.get(ref), after.get(ref))
        return result

    # Workflow runs, as far as one is told of them

    def runs(self) -> list[WorkflowRun]:
        """Workflow runs, newest first."""
        return sorted(self._runs.values(), key=lambda run: -run.id)

    def run(self, run_id: int) -> WorkflowRun:
        """One workflow run."""
        return self._found(self._runs.get(run_id))

    def begin_run(self, workflow: str, title: str, event: str) -> WorkflowRun:
        """A run begins."""
        with self._lock:
            sha = self.repository.commit_sha(self.site.default_branch) or "0" * 40
            run = WorkflowRun(next(self._ids), workflow, title, event, sha, self._now())
            self._runs[run.id] = run
            return run

    def set_job(self, run_id: int, name: str, status: RunStatus, conclusion: Conclusion | None = None) -> None:
        """A job of a run waits, goes on or has ended; a run whose job goes on does so too."""
        with self._lock:
            run = self.run(run_id)
            before = next((job for job in run.jobs if job.name == name), None)
            started = before.started_at if before else None
            if status == "in_progress" and started is None:
                started = self._now()
            job = WorkflowJob(before.id if before else next(self._ids), name, status, conclusion, started)
            jobs = (*(other for other in run.jobs if other.name != name), job)
            moves = status == "in_progress" and run.status != "completed"
            self._runs[run_id] = replace(run, jobs=jobs, status="in_progress" if moves else run.status)

    def end_run(self, run_id: int, conclusion: Conclusion) -> None:
        """A run has ended; one that was cancelled stays cancelled."""
        with self._lock:
            run = self.run(run_id)
            if run.status != "completed":
                self._runs[run_id] = replace(run, status="completed", conclusion=conclusion)

    def cancel_run(self, as_: str | None, run_id: int) -> None:
        """End a run; 409 when it has ended already."""
        self.accounts.allow(as_, "write")
        with self._lock:
            if self.run(run_id).status == "completed":
                raise RequestRefusedError(409, "Cannot cancel a workflow run that is completed.")
            self.end_run(run_id, "cancelled")

    # Webhooks

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher` with each delivered event from now on; what it raises reaches whoever acted."""
        with self._lock:
            self._watchers.append(watcher)

    def subscribe(self, subscriber: Callable[[str, dict[str, Any]], None]) -> None:
        """Call `subscriber(event name, payload)` with each delivered event from now on, as `watch` does."""
        self.watch(lambda event: subscriber(event.name, event.payload))

    @contextmanager
    def _acting(self, user: User) -> Iterator[Callable[..., None]]:
        """Hold the lock while `user` changes things; what was emitted is delivered after its release."""
        fresh: list[Event] = []

        def emit(name: str, /, **payload: Any) -> None:
            whole = payload | {
                "repository": shapes.repository(self.site),
                "sender": shapes.user(self.site, user),
            }
            fresh.append(Event(str(uuid.uuid4()), name, whole, delivered=not user.actions_bot))

        with self._lock:
            yield emit
            self._events += fresh
            watchers = list(self._watchers)
        for event in fresh:
            if event.delivered:
                for watcher in watchers:
                    watcher(event)

    def _emit_issue(self, emit: Callable[..., None], action: str, number: int, **more: Any) -> None:
        issue = self.issue(number)
        if issue.pull:
            pull = shapes.pull_in_full(self.site, issue, issue.pull, *self.comparison(issue.pull))
            emit("pull_request", action=action, number=number, pull_request=pull, **more)
        else:
            emit("issues", action=action, issue=shapes.issue(self.site, issue), **more)

    def _emit_comment(self, emit: Callable[..., None], action: str, comment: Comment, **more: Any) -> None:
        issue = self.issue(comment.number)
        shape = shapes.comment(self.site, comment, issue)
        emit("issue_comment", action=action, issue=shapes.issue(self.site, issue), comment=shape, **more)

    def _ref_moved(self, emit: Callable[..., None], user: User, ref: str, old: str | None, new: str | None) -> None:
        for issue, part in self.pulls():
            if issue.state == "closed" or self._head_ref(part.head_owner, part.head_ref) != ref:
                continue
            if new is None:
                self._set_openness(emit, user, issue.number, "closed")
                continue
            base_sha = self.repository.commit_sha(part.base_ref) or part.base_sha
            self._store(replace(issue, pull=replace(part, head_sha=new, base_sha=base_sha)))
            self.repository.set_ref(f"refs/pull/{issue.number}/head", new)
            self._note(issue.number, user, "pushed", new[:7])
            self._emit_issue(emit, "synchronize", issue.number, before=old, after=new)

    # Storing, with the lock held

    def _new_issue(self, user: User, title: str, body: str, part: PullPart | None) -> Issue:
        now = self._now()
        issue = Issue(next(self._ids), len(self._issues) + 1, user, title, body, now, now, pull=part)
        self._issues[issue.number] = issue
        return issue

    def _store(self, issue: Issue) -> Issue:
        self._issues[issue.number] = replace(issue, updated_at=self._now())
        return self._issues[issue.number]

    def _set_openness(self, emit: Callable[..., None], user: User, number: int, state: Openness) -> None:
        closed_at = self._now() if state == "closed" else None
        self._store(replace(self.issue(number), state=state, closed_at=closed_at))
        self._note(number, user, "closed this" if closed_at else "reopened this", "")
        self._emit_issue(emit, "closed" if closed_at else "reopened", number)

    def _note(self, number: int, user: User, text: str, detail: str) -> None:
        self._changes.append(Change(number, user, text, detail, self._now()))

    def _head_ref(self, owner: str, branch: str) -> str:
        return f"refs/heads/{branch}" if owner == self.site.owner else f"refs/forks/{owner}/{branch}"

    @staticmethod
    def _found(record: T | None) -> T:
        if record is None:
            raise RequestRefusedError(404, "Not Found")
        return record
