"""What the handlers of the gate share: their tools, their answers, and who may ask for anything."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus

from bot.contract.load import LoadedContract, contract_names, load_contract
from bot.contract.schema import Device
from bot.errors import DataError, GitHubError
from bot.github import sticky
from bot.github.api import GitHub
from bot.github.claims import claim_ref
from bot.github.events import CommentCreated
from bot.github.push import Remote
from bot.github.refusals import (
    CONTRACT_BROKEN,
    NOT_A_WRITER,
    PERMISSION_UNKNOWN,
    UNKNOWN_CONTRACT,
    UNKNOWN_WORKLOAD,
)
from bot.handlers.project import Project
from bot.handlers.run import RunFolder
from bot.sanitize import code_span

MAY_WRITE = frozenset({"admin", "write"})
GONE = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE})
"""How GitHub answers for an issue that was deleted, moved or made a discussion."""
LABEL = "optimize"
"""The label that starts the agent."""
PROGRESS = "progress"
"""Kind of the sticky comment that says what the bot is doing; the report has a kind of its own."""
WORKING = "Working on "
"""How that comment begins while a run goes on."""
WAITING = "Waiting for `/go`: "
"""How it begins while a run waits to be let go on."""
NEEDS_INFO = "needs-info"
"""The label of an issue whose request cannot be read."""


@dataclass(frozen=True, slots=True)
class Gate:
    """What the gate works with. `run`, `attempt`, `run_url`: this workflow run, which of its attempts, and where it can
    be seen; `rerun_by`: who had it repeated. `workflow`: the one it is a run of; none where it stands alone.
    """

    github: GitHub
    remote: Remote
    project: Project
    folder: RunFolder
    device: Device
    rerun_by: str | None = None
    run_url: str | None = None
    run: int = 0
    attempt: int = 1
    shards: int = 1
    workflow: str = ""
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    def claim_of(self, number: int, key: str) -> str:
        """The ref to claim an event by: one for each attempt, so that a run that died can be repeated."""
        return claim_ref(number, key if self.attempt == 1 else f"{key}-{self.attempt}")


@dataclass(frozen=True, slots=True)
class Passed:
    """`why`: one line for the log. `go`: an order is in the run folder, for an exam of so many `shards` by what the
    commit `base` holds."""

    why: str
    go: bool = False
    shards: int = 1
    base: str = ""


def admit(login: str, tools: Gate, act: str) -> None:
    """Let pass who has write permission, and whoever had the workflow run once more too.

    Raises:
        RefusedError: one of them has none, or GitHub does not say.
    """
    for who in filter(None, (login, tools.rerun_by)):
        try:
            permission = tools.github.permission(who)
        except GitHubError as error:
            detail = f"status {error.status}" if error.status else "no answer"
            raise PERMISSION_UNKNOWN.error(who=who, detail=detail) from None
        if permission not in MAY_WRITE:
            raise NOT_A_WRITER.error(who=who, act=act)


def reply(event: CommentCreated, tools: Gate, text: str) -> Passed:
    """One comment, however often the event is delivered."""
    sticky.upsert(tools.github, event.number, f"answer-{event.comment_id}", 0, text)
    return Passed("answered")


def mute(error: GitHubError) -> bool:
    """Whether GitHub lets nobody speak there: the issue is gone, or its conversation is locked."""
    locked = error.status == HTTPStatus.FORBIDDEN and "locked" in str(error).casefold()
    return locked or error.status in GONE


def speak(github: GitHub, number: int, kind: str, run: int, body: str) -> None:
    """Bring the comment of a kind up to date, where it can be: what else says the same is said all the same.

    Raises:
        GitHubError: GitHub did not do it for another reason than that nobody can speak there.
    """
    try:
        sticky.upsert(github, number, kind, run, body)
    except GitHubError as error:
        if not mute(error):
            raise


def contract_of(project: Project, name: str) -> LoadedContract:
    """The contract of this name, as the default branch has it.

    Raises:
        RefusedError: there is none, or it has mistakes.
    """
    known = contract_names(project.contracts)
    if name not in known:
        raise UNKNOWN_CONTRACT.error(name=code_span(name, 64), known=", ".join(known) or "there are none")
    try:
        return load_contract(project.contracts, name)
    except DataError:
        raise CONTRACT_BROKEN.error(name=code_span(name)) from None


def shards_of(loaded: LoadedContract, tools: Gate) -> int:
    """Over how many runners an exam of a contract is spread: each has at least one workload to score."""
    scored = {workload.name for workload, _ in loaded.contract.scored(tools.device)}
    return max(1, min(tools.shards, len(scored)))


def check_workload(loaded: LoadedContract, name: str, device: Device, *, scored: bool = False) -> None:
    """Nothing, when the contract has this workload for the device, or scores it there.

    Raises:
        RefusedError: it has not.
    """
    known = [
        workload.name
        for workload in loaded.contract.workloads
        if device in workload.device and (workload.scored or not scored)
    ]
    if name not in known:
        raise UNKNOWN_WORKLOAD.error(name=code_span(name, 40), known=", ".join(f"`{each}`" for each in known))
