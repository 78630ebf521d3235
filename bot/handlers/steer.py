"""What people ask of an agent before its run: `/hint`, `/focus`, `/budget`.

The comments are the record: when the label starts a run, the gate reads them anew, as it reads the issue. A run that
goes on cannot be reached, because its job has no right to read the repository; the answer says so.
"""

from collections.abc import Callable, Iterator, Sequence

from bot.contract.schema import Contract, Device
from bot.errors import UsageError
from bot.github.api import Comment
from bot.github.claims import issue_branch
from bot.github.commands import Focus, Hint, SetBudget, read_command
from bot.github.events import CommentCreated
from bot.github.refusals import CLOSED, NOT_ON_ISSUE, PULL_OPEN, REQUEST_FORM
from bot.github.request import Request, read_request
from bot.handlers.asked import Gate, Passed, check_workload, contract_of, reply
from bot.handlers.bench import bench_of, benches
from bot.handlers.definition import contract_for
from bot.handlers.project import Project
from bot.handlers.run import Steering
from bot.sanitize import redact

HINTS = 5
"""The newest so many count: they stand before the request, and a model is shown 4,000 characters of both."""


def steer(event: CommentCreated, command: Hint | Focus | SetBudget, tools: Gate) -> Passed:
    """Say what will come of it.

    Raises:
        RefusedError: nothing can come of it.
    """
    name = command.USAGE.split()[0]
    if event.on_pull:
        raise NOT_ON_ISSUE.error(command=name)
    if not event.is_open:
        raise CLOSED.error(what="issue", act="comment")
    github = tools.github
    pull = github.find_pull(issue_branch(event.number))
    if pull is not None:
        raise PULL_OPEN.error(pull=pull.number)
    loaded = contract_of(tools.project, request_of(github.issue(event.number).body, tools.project).contract)
    if isinstance(command, Focus):
        check_workload(loaded, command.workload, tools.device)
    going = bench_of(benches(github), event.number, "optimize")
    if going is None:
        text = (
            "Noted: the agent is told when the label `optimize` starts a run of this issue. Leave the comment unedited."
        )
    else:
        text = (
            f"{going.link} goes on and cannot be told: its agent has no right to read this repository. Noted for the "
            "next run of this issue; `/stop` ends this one."
        )
    return reply(event, tools, text)


def request_of(body: str, project: Project) -> Request:
    """The request in an issue's body, and the contract that it means.

    Raises:
        RefusedError: it is not the form, or attaches a definition that does not say which contract it means.
    """
    try:
        request = read_request(body)
    except UsageError as error:
        raise REQUEST_FORM.error(detail=str(error)) from None
    if request.contract or request.definition is None:
        return request
    return request.model_copy(update={"contract": contract_for(request.definition, project)})


def steering_of(
    comments: Sequence[Comment], contract: Contract, device: Device, may: Callable[[str], bool]
) -> Steering:
    """What the comments of an issue ask of its agent: unedited ones, by people who may. The newest limit counts."""
    hints: list[str] = []
    focus: dict[str, None] = {}
    limits: dict[str, int] = {}
    known = {workload.name for workload in contract.workloads if device in workload.device}
    for command in _commands(comments, may):
        match command:
            case Hint(text=text):
                hints.append(redact(text))
            case Focus(workload=workload) if workload in known:
                focus[workload] = None
            case SetBudget(turns=turns, tokens=tokens, seconds=seconds):
                asked = {"turns": turns, "tokens": tokens, "seconds": seconds}
                limits |= {key: value for key, value in asked.items() if value is not None}
            case _:
                pass
    return Steering(
        hints=hints[-HINTS:],
        focus=list(focus),
        turns=limits.get("turns"),
        tokens=limits.get("tokens"),
        seconds=limits.get("seconds"),
    )


def _commands(comments: Sequence[Comment], may: Callable[[str], bool]) -> Iterator[Hint | Focus | SetBudget]:
    for comment in comments:
        if comment.by_person and not comment.edited:
            command = read_command(comment.body)
            if isinstance(command, Hint | Focus | SetBudget) and may(comment.author):
                yield command


def told(steering: Steering) -> str:
    """What was noted, in one line; empty when nothing was."""
    parts = [f"{len(steering.hints)} hint{'s' * (len(steering.hints) != 1)}"] if steering.hints else []
    parts += [f"focus on {', '.join(f'`{name}`' for name in steering.focus)}"] if steering.focus else []
    limits = {"turns": steering.turns, "tokens": steering.tokens, "seconds": steering.seconds}
    parts += [f"at most {value} {key}" for key, value in limits.items() if value is not None]
    return f" Noted from the comments: {'; '.join(parts)}." if parts else ""
