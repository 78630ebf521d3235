"""The first job: who asked, for what, may they, is it already being done. No model, no device, no candidate code.

It answers on GitHub and, when there is work, leaves an order in the run folder. Each command gets one reaction: a
rocket when a run starts, thumbs up when it was done or answered, a puzzled face with the reason when it was refused,
thumbs down alone for whoever may not, because an answer would let anybody make the bot write.
"""

from bot.errors import GitHubError
from bot.github import sticky
from bot.github.claims import issue_branch
from bot.github.commands import (
    Approve,
    BenchStatus,
    CancelBench,
    Command,
    CommandProblem,
    Focus,
    Go,
    Help,
    Hint,
    RerunBench,
    SetBudget,
    StopRun,
    Verify,
    help_text,
    read_command,
)
from bot.github.events import (
    CommentCreated,
    Event,
    Ignored,
    IssueLabeled,
    IssueUnlabeled,
    IssueWithdrawn,
    PullsChanged,
    ReviewSubmitted,
)
from bot.github.refusals import CLOSED, NOT_A_WRITER, PULL_OPEN, RefusedError
from bot.handlers.approve import approved
from bot.handlers.asked import LABEL, MAY_WRITE, PROGRESS, WORKING, Gate, Passed, admit, answer, contract_of, shards_of
from bot.handlers.bench import bench_status, cancel_bench, stop_run, withdrawn
from bot.handlers.reconcile import reconcile_one
from bot.handlers.rerun import rerun, verify
from bot.handlers.run import Order
from bot.handlers.standing import look
from bot.handlers.steer import request_of, steer, steering_of, told

__all__ = ["LABEL", "Gate", "Passed", "gate"]


def gate(event: Event, tools: Gate) -> Passed:
    """Answer one event.

    Raises:
        GitHubError: GitHub did not do what it should.
    """
    match event:
        case Ignored(reason=reason):
            return Passed(f"ignored: {reason}")
        case IssueLabeled():
            return _labeled(event, tools)
        case IssueUnlabeled(label=label) if label != LABEL:
            return Passed(f"ignored: the label is not {LABEL}")
        case IssueUnlabeled():
            return withdrawn(event.number, f"@{event.sender} took the label `{LABEL}` off", tools)
        case IssueWithdrawn():
            return withdrawn(event.number, f"@{event.sender} {_WITHDRAWN[event.how]}", tools)
        case CommentCreated():
            return _commented(event, tools)
        case ReviewSubmitted():
            return Passed("ignored: approval.yml looks at reviews")
        case PullsChanged():
            return _looked(event, tools)


_WITHDRAWN = {
    "closed": "closed this issue",
    "edited": "edited this issue, so that what was asked is not what is read here",
    "deleted": "deleted this issue",
    "transferred": "moved this issue to another repository",
}


def _looked(event: PullsChanged, tools: Gate) -> Passed:
    """Look at each of the pull requests, or at those that have the head, as they are now."""
    github = tools.github
    if event.pulls:
        pulls = [github.pull(number) for number in event.pulls]
    else:
        pulls = [pull for pull in github.open_pulls() if pull.head_sha == event.head_sha]
    lines = [f"#{pull.number}: {look(pull, github, tools.remote)}" for pull in pulls]
    return Passed("; ".join(lines) or "ignored: no open pull request has that head")


def _labeled(event: IssueLabeled, tools: Gate) -> Passed:
    if event.label != LABEL:
        return Passed(f"ignored: the label is not {LABEL}")
    try:
        return _optimize(event, tools)
    except RefusedError as refused:
        if refused.code == NOT_A_WRITER.code:
            tools.github.remove_label(event.number, LABEL)
        tools.github.create_comment(event.number, f"Not started. {refused}")
        return Passed(f"refused: {refused.line}")


def _optimize(event: IssueLabeled, tools: Gate) -> Passed:
    github = tools.github
    if not event.is_open:
        raise CLOSED.error(what="issue", act="label it")
    admit(event.sender, tools, "label the issue")
    request = request_of(event.body)
    loaded = contract_of(tools.project, request.contract)
    branch, sha = github.default_branch()
    there = github.find_pull(issue_branch(event.number))
    if there is not None:
        raise PULL_OPEN.error(pull=there.number)
    may = _Writers(tools)
    steering = steering_of(github.comments(event.number), loaded.contract, tools.device, may)
    if not github.claim(tools.claim_of(event.number, event.key), sha):
        return Passed("ignored: this event has been handled")
    tools.folder.write_order(
        Order(
            kind="optimize",
            repo=event.repo,
            number=event.number,
            issue=event.number,
            contract=request.contract,
            device=tools.device,
            goal=request.goal,
            start=request.start,
            hidden_characters=request.hidden_characters,
            requester=event.sender,
            base_branch=branch,
            base_sha=sha,
            steering=steering,
            workflow_run=tools.run,
            shards=shards_of(loaded, tools),
        )
    )
    hidden = request.hidden_characters
    note = f" {hidden} hidden characters of the issue were removed before anybody reads it." if hidden else ""
    sticky.upsert(
        github,
        event.number,
        PROGRESS,
        tools.run,
        f"{WORKING}`{request.contract}` for @{event.sender}, on top of `{sha[:12]}`: an agent writes, then the exam "
        f"decides. A pull request or the reason for none follows here.{note}{told(steering)}",
    )
    shards = shards_of(loaded, tools)
    return Passed(f"optimize {request.contract} for issue {event.number}", go=True, shards=shards)


class _Writers:
    """Who may write, each asked once; nobody of whom GitHub does not say so."""

    def __init__(self, tools: Gate) -> None:
        self._github = tools.github
        self._known: dict[str, bool] = {}

    def __call__(self, login: str) -> bool:
        if login not in self._known:
            try:
                self._known[login] = self._github.permission(login) in MAY_WRITE
            except GitHubError:
                self._known[login] = False
        return self._known[login]


def _commented(event: CommentCreated, tools: Gate) -> Passed:
    command = read_command(event.body)
    if command is None or not event.by_person:
        return Passed("ignored: no command")
    try:
        admit(event.author, tools, "send the command")
        if isinstance(command, CommandProblem):
            raise command.refused
        return _reconciled(event, command, tools)
    except RefusedError as refused:
        if refused.code == NOT_A_WRITER.code:
            tools.github.react(event.comment_id, "-1")
        else:
            answer(event, tools, "confused", str(refused))
        return Passed(f"refused: {refused.line}")


def _reconciled(event: CommentCreated, command: Command, tools: Gate) -> Passed:
    """Follow the command; and what was abandoned here is said to be, for schedules are best effort."""
    if isinstance(command, BenchStatus):
        reconcile_one(event.number, on_pull=event.on_pull, github=tools.github, now=tools.now)
    passed = _followed(event, command, tools)
    if not passed.go and not isinstance(command, BenchStatus):
        reconcile_one(event.number, on_pull=event.on_pull, github=tools.github, now=tools.now)
    return passed


def _followed(event: CommentCreated, command: Command, tools: Gate) -> Passed:
    match command:
        case Help():
            return answer(event, tools, "+1", help_text())
        case Approve():
            return approved(event, command, tools)
        case RerunBench():
            return rerun(event, command, tools)
        case Verify():
            return verify(event, tools)
        case BenchStatus():
            return bench_status(event, tools)
        case CancelBench():
            return cancel_bench(event, tools)
        case StopRun():
            return stop_run(event, tools)
        case Go() | Hint() | Focus() | SetBudget():
            return steer(event, command, tools)
