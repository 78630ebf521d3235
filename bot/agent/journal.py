"""The record of a run, one JSON object a line, written as it happens so that a crash loses nothing.

Any journal can be played again (`replay.py`), one that broke off included.
"""

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal, TextIO

from pydantic import Field, TypeAdapter, ValidationError

from bot.agent.model import ToolResult, Turn
from bot.agent.task import AgentTask, Budget, Stop
from bot.contract.distribution import Frozen
from bot.contract.load import problems_of
from bot.errors import DataError, Problem, UsageError

SIZE_LIMIT = 64 * 1024 * 1024


class Header(Frozen):
    """What the run was for, and with what. `contract_digest` is empty where a journal was composed, not run."""

    kind: Literal["header"] = "header"
    format: Literal[1] = 1
    model: str
    contract: str
    contract_version: int
    contract_digest: str
    device: str
    budget: Budget
    proctor: str
    python: str


class Result(Frozen):
    """What a tool answered."""

    kind: Literal["result"] = "result"
    result: ToolResult
    seconds: float


class Examined(Frozen):
    """An attempt, by the digests of its candidate and of the evaluations it got."""

    kind: Literal["attempt"] = "attempt"
    number: int
    candidate: str
    evaluation: str
    claim: str | None
    outcome: str


class End(Frozen):
    """Why the run ended. A journal without it broke off."""

    kind: Literal["end"] = "end"
    stop: Stop


Entry = Annotated[Header | Turn | Result | Examined | End, Field(discriminator="kind")]
_ENTRIES: TypeAdapter[Entry] = TypeAdapter(Entry)


def header_of(task: AgentTask, model: str) -> Header:
    """The first line of a run's journal."""
    return Header(
        model=model,
        contract=task.contract.name,
        contract_version=task.contract.version,
        contract_digest=task.contract_digest,
        device=task.device,
        budget=task.budget,
        proctor=version("kernel-proctor"),
        python=platform.python_version(),
    )


class Journal:
    """Where a run writes its entries down."""

    def __init__(self, stream: TextIO) -> None:
        """Write to a stream that somebody else opened and closes."""
        self._stream = stream

    def write(self, entry: Entry) -> None:
        """Add an entry; it is with the operating system when this returns."""
        self._stream.write(line_of(entry) + "\n")
        self._stream.flush()


def line_of(entry: Entry) -> str:
    """An entry as its line. What a model's service wants echoed serves no later reader."""
    return entry.model_dump_json(exclude={"echo"} if isinstance(entry, Turn) else None)


@contextmanager
def create_journal(path: Path) -> Iterator[Journal]:
    """A new journal.

    Raises:
        UsageError: there is one already; a run never overwrites another's record.
    """
    try:
        stream = path.open("x", encoding="utf-8")
    except FileExistsError:
        raise UsageError(f"{path.name} holds a run already; give this one a folder of its own") from None
    with stream:
        yield Journal(stream)


def read_journal(path: Path) -> list[Entry]:
    """All entries of a journal; a last line without its end, left by a crash, is left out.

    Raises:
        UsageError: there is no such file, or it is too large to be one.
        DataError: lines that are no entries; all of them, with their numbers.
    """
    if not path.is_file() or path.stat().st_size > SIZE_LIMIT:
        raise UsageError(f"{path.name} is not a journal: no such file, or too large")
    *lines, _unfinished = path.read_bytes().split(b"\n")
    entries: list[Entry] = []
    problems: list[Problem] = []
    for number, line in enumerate(lines, start=1):
        try:
            entries.append(_ENTRIES.validate_json(line))
        except ValidationError as error:
            problems += [Problem(f"line {number}: {p.path}", p.reason) for p in problems_of(error)]
    if not problems and not (entries and isinstance(entries[0], Header)):
        problems.append(Problem("line 1", "the first entry is not a header"))
    if problems:
        raise DataError(path.name, problems)
    return entries
