"""The first job: who asked, for what, may they, is it already being done. No model, no device, no candidate code.

It answers on GitHub and, when there is work, leaves an order in the run folder. Each command gets one reaction, before
anything else is asked of GitHub: eyes, it was taken, and what comes of it stands in a comment or a status; thumbs down
alone for whoever may not, because an answer would let anybody make the bot write.
"""

from bot.errors import GitHubError
from bot.github import sticky
from bot.github.api import Reaction
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
from bot.github.refusals import NOT_A_WRITER, RefusedError
from bot.handlers.approve import approved
from bot.handlers.asked import LABEL, NEEDS_INFO, Gate, Passed, admit, mute, reply
from bot.handlers.bench import bench_status, cancel_bench, stop_run, withdrawn
from bot.handlers.optimize import LACKING, go, optimize
from bot.handlers.reconcile import reconcile_one
from bot.handlers.rerun import rerun, verify
from bot.handlers.standing import look
from bot.handlers.steer import steer

__all__ = ["LABEL", "Gate", "Passed", "gate"]

TAKEN: Reaction = "eyes"
"""The reaction to every command of somebody who may send it."""


def gate(event: Event, tools: Gate) -> Passed:
    """Answer one event; where nobody can speak nothing starts.

    Raises:
        GitHubError: GitHub did not do what it should.
    """
    try:
        return _handled(event, tools)
    except GitHubError as error:
        if not mute(error):
            raise
        return Passed("not answered: the issue is gone or its conversation locked, so that nobody can speak there")


def _handled(event: Event, tools: Gate) -> Passed:
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
        return optimize(event, tools)
    except RefusedError as refused:
        if refused.code == NOT_A_WRITER.code:
            tools.github.remove_label(event.number, LABEL)
        elif refused.code in LACKING and NEEDS_INFO not in event.labels:
            tools.github.add_label(event.number, NEEDS_INFO)
        kind = f"refusal-{event.sender_id}-{event.key.lower()}"
        sticky.upsert(tools.github, event.number, kind, 0, f"Not started. {refused}")
        return Passed(f"refused: {refused.line}")


def _commented(event: CommentCreated, tools: Gate) -> Passed:
    command = read_command(event.body)
    if command is None or not event.by_person:
        return Passed("ignored: no command")
    # Both workflows are started by the comment; the one that has an agent follows `/go`, and nothing else.
    starts = isinstance(command, Go) and not event.on_pull
    if tools.workflow and starts != (tools.workflow == "optimize"):
        return Passed("ignored: the other workflow answers")
    try:
        admit(event.author, tools, "send the command")
        tools.github.react(event.comment_id, TAKEN)
        if isinstance(command, CommandProblem):
            raise command.refused
        return _reconciled(event, command, tools)
    except RefusedError as refused:
        if refused.code == NOT_A_WRITER.code:
            tools.github.react(event.comment_id, "-1")
        else:
            reply(event, tools, str(refused))
        return Passed(f"refused: {refused.line}")


def _reconciled(event: CommentCreated, command: Command, tools: Gate) -> Passed:
    """Follow the command; and what was abandoned here is said to be, for schedules are best effort."""
    asks = isinstance(command, BenchStatus)
    if asks:
        reconcile_one(event.number, on_pull=event.on_pull, github=tools.github, now=tools.now)
    passed = _followed(event, command, tools)
    if not passed.go and not asks:
        reconcile_one(event.number, on_pull=event.on_pull, github=tools.github, now=tools.now)
    return passed


def _followed(event: CommentCreated, command: Command, tools: Gate) -> Passed:
    match command:
        case Help():
            return reply(event, tools, help_text())
        case Approve():
            return approved(event, command, tools)
        case RerunBench():
            return rerun(event, command, tools)
        case Verify():
            return verify(event, tools)
        case BenchStatus() | CancelBench() | StopRun():
            return _ended(event, command, tools)
        case Go():
            return go(event, tools)
        case Hint() | Focus() | SetBudget():
            return steer(event, command, tools)


def _ended(event: CommentCreated, command: BenchStatus | CancelBench | StopRun, tools: Gate) -> Passed:
    match command:
        case BenchStatus():
            return bench_status(event, tools)
        case CancelBench():
            return cancel_bench(event, tools)
        case StopRun():
            return stop_run(event, tools)
