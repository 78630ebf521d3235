"""The first job: who asked, for what, may they, is it already being done. No model, no device, no candidate code.

It answers on GitHub and, when there is work, leaves an order in the run folder. Each command gets one reaction: a
rocket when a run starts, thumbs up when it was done or answered, a puzzled face with the reason when it was refused,
thumbs down alone for whoever may not, because an answer would let anybody make the bot write.
"""

from bot.errors import GitHubError
from bot.github import sticky
from bot.github.claims import claim_ref, issue_branch
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
    ReviewsChanged,
    ReviewSubmitted,
)
from bot.github.refusals import CLOSED, NOT_A_WRITER, PULL_OPEN, RefusedError
from bot.handlers.approve import approve, approved
from bot.handlers.asked import MAY_WRITE, PROGRESS, Gate, Passed, admit, answer, contract_of
from bot.handlers.bench import bench_status, cancel_bench, stop_run
from bot.handlers.rerun import rerun, verify
from bot.handlers.run import Order
from bot.handlers.steer import request_of, steer, steering_of, told

__all__ = ["LABEL", "Gate", "Passed", "gate"]

LABEL = "optimize"


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
        case IssueUnlabeled():
            return Passed("ignored: a label was taken away")
        case CommentCreated():
            return _commented(event, tools)
        case ReviewSubmitted():
            return Passed("ignored: approval.yml looks at reviews")
        case ReviewsChanged(pulls=pulls):
            lines = [f"#{number}: {approve(number, tools.github, tools.remote)}" for number in pulls]
            return Passed("; ".join(lines) or "ignored: the review is of a fork's pull request")


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
    if not github.claim(claim_ref(event.number, event.key), sha):
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
        )
    )
    hidden = request.hidden_characters
    note = f" {hidden} hidden characters of the issue were removed before anybody reads it." if hidden else ""
    sticky.upsert(
        github,
        event.number,
        PROGRESS,
        0,
        f"Working on `{request.contract}` for @{event.sender}, on top of `{sha[:12]}`: an agent writes, then the exam "
        f"decides. A pull request or the reason for none follows here.{note}{told(steering)}",
    )
    return Passed(f"optimize {request.contract} for issue {event.number}", go=True)


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
        return _followed(event, command, tools)
    except RefusedError as refused:
        if refused.code == NOT_A_WRITER.code:
            tools.github.react(event.comment_id, "-1")
        else:
            answer(event, tools, "confused", str(refused))
        return Passed(f"refused: {refused.line}")


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
