"""The first job: who asked, for what, may they, is it already being done. No model, no device, no candidate code.

It answers on GitHub and, when there is work, leaves an order in the run folder.
"""

from dataclasses import dataclass
from typing import Literal

from bot.contract.load import load_contract
from bot.contract.schema import Device
from bot.errors import UsageError
from bot.github import sticky
from bot.github.api import GitHub, Pull
from bot.github.claims import claim_ref, issue_branch, issue_of
from bot.github.commands import Approve, CommandProblem, Help, RerunBench, help_text, read_command
from bot.github.events import (
    CommentCreated,
    Event,
    Ignored,
    IssueLabeled,
    IssueUnlabeled,
    ReviewsChanged,
    ReviewSubmitted,
)
from bot.github.push import Remote, read_files
from bot.github.request import read_request
from bot.handlers.approve import approve
from bot.handlers.evidence import Record, load_record, operation_of
from bot.handlers.project import Project
from bot.handlers.run import Candidate, Order, RunFolder
from bot.sanitize import code_span

LABEL = "optimize"
MAY_WRITE = frozenset({"admin", "write"})
PROGRESS = "progress"
"""Kind of the sticky comment that says what the bot is doing; the report has a kind of its own."""


@dataclass(frozen=True, slots=True)
class Gate:
    """What the gate works with."""

    github: GitHub
    remote: Remote
    project: Project
    folder: RunFolder
    device: Device


@dataclass(frozen=True, slots=True)
class Passed:
    """`why`: one line for the log. `go`: an order is in the run folder."""

    why: str
    go: bool = False


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
    github = tools.github
    if event.label != LABEL:
        return Passed(f"ignored: the label is not {LABEL}")
    if not event.is_open:
        return _refuse(github, event.number, "the issue is closed; reopen it and label it again")
    if github.permission(event.sender) not in MAY_WRITE:
        github.remove_label(event.number, LABEL)
        return _refuse(
            github, event.number, f"@{event.sender} has no write permission here; somebody who has can label the issue"
        )
    try:
        request = read_request(event.body)
        load_contract(tools.project.contracts, request.contract)
    except UsageError as error:
        return _refuse(github, event.number, str(error))
    branch, sha = github.default_branch()
    if github.find_pull(issue_branch(event.number)) is not None:
        return _refuse(github, event.number, "a pull request for this issue is open already; `/rerun-bench` there")
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
        f"decides. A pull request or the reason for none follows here.{note}",
    )
    return Passed(f"optimize {request.contract} for issue {event.number}", go=True)


def _commented(event: CommentCreated, tools: Gate) -> Passed:
    command = read_command(event.body)
    if command is None or not event.by_person:
        return Passed("ignored: no command")
    github = tools.github
    if github.permission(event.author) not in MAY_WRITE:
        github.react(event.comment_id, "-1")
        return Passed(f"refused: {event.author} has no write permission")
    match command:
        case CommandProblem(text=text):
            return _answer(event, tools, "confused", text)
        case Help():
            return _answer(event, tools, "+1", help_text())
        case Approve():
            github.react(event.comment_id, "+1")
            return Passed(approve(event.number, github, tools.remote))
        case RerunBench():
            return _rerun(event, tools)


def _answer(event: CommentCreated, tools: Gate, reaction: Literal["+1", "confused"], text: str) -> Passed:
    tools.github.react(event.comment_id, reaction)
    tools.github.create_comment(event.number, text)
    return Passed("answered")


def _rerun(event: CommentCreated, tools: Gate) -> Passed:
    github = tools.github
    try:
        if not event.on_pull:
            raise UsageError("`/rerun-bench` belongs on a pull request of the bot; this is an issue")  # noqa: TRY301
        pull = github.pull(event.number)
        order, candidate, record = read_pull(pull, tools)
    except UsageError as error:
        return _answer(event, tools, "confused", str(error))
    if not github.claim(claim_ref(event.number, event.key), order.base_sha):
        return Passed("ignored: this event has been handled")
    github.react(event.comment_id, "rocket")
    tools.folder.write_order(order)
    tools.folder.write_candidate(candidate)
    if record.agent_run is not None:
        tools.folder.write_agent(record.agent_run)
    for number, evaluation in enumerate(record.evaluations, start=1):
        tools.folder.write_evaluation(evaluation, number)
    return Passed(f"run {order.run_number} of pull request {pull.number}", go=True)


def read_pull(pull: Pull, tools: Gate) -> tuple[Order, Candidate, Record]:
    """What a pull request of ours holds: the kernel's bytes at its head, and the record of earlier runs.

    Raises:
        UsageError: it is not one of ours, is closed or a fork's, or touches what a candidate may not.
    """
    github = tools.github
    if not pull.same_repository:
        raise UsageError("this pull request comes from a fork; the bench runs only branches of this repository")
    if issue_of(pull.head_ref) is None or pull.author != github.bot_login():
        raise UsageError("`/rerun-bench` measures pull requests that the bot opened; this is not one of them")
    if pull.state != "open":
        raise UsageError("this pull request is closed")
    files = [file.path for file in github.pull_files(pull.number)]
    operation = operation_of(files)
    load_contract(tools.project.contracts, operation)
    path = next(p for p in files if p.startswith("kernels/") and p.endswith(".py"))
    try:
        source = read_files(tools.remote, pull.head_sha, [path])[path].decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{code_span(path)} is not UTF-8 text") from None
    record = load_record(pull, operation, tools.remote)
    _, base_sha = github.default_branch()
    order = record.order.model_copy(
        update={
            "kind": "rerun",
            "number": pull.number,
            "device": tools.device,
            "base_sha": base_sha,
            "head_sha": pull.head_sha,
            "run_number": len(record.evaluations) + 1,
        }
    )
    return order, Candidate(path=path, source=source), record


def _refuse(github: GitHub, number: int, why: str) -> Passed:
    github.create_comment(number, f"Not started: {why}")
    return Passed(f"refused: {why.splitlines()[0]}")
