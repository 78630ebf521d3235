"""The run folder: what one job of a workflow leaves for the next, typed. In Actions it travels as an artifact.

Whoever reads it trusts its form (strict, frozen) and not its content: the publishing job runs nothing of it.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError

from bot.contract.distribution import Frozen
from bot.contract.load import problems_of
from bot.contract.schema import Device
from bot.errors import DataError, Problem, UsageError
from bot.evaluation import SHARDS, AgentRun, BaselineSource, Evaluation
from bot.merge import merge

DOCUMENT_LIMIT = 32 << 20
"""Bytes of one document: an agent's run holds an evaluation per attempt, each some 100 kB."""

_KERNEL = r"^kernels/[a-z][a-z0-9_]*/[a-z]+_[A-Za-z0-9_]+\.py$"

M = TypeVar("M", bound=BaseModel)


class Steering(Frozen):
    """What people with write access asked of the agent before its run began. `hints` are their text: data to a model.

    `turns`, `tokens` and `seconds` can only lessen what the workflow lets the agent spend.
    """

    hints: list[str] = []
    focus: list[str] = []
    turns: Annotated[int, Field(ge=1)] | None = None
    tokens: Annotated[int, Field(ge=1)] | None = None
    seconds: Annotated[int, Field(ge=1)] | None = None


class Digests(Frozen):
    """By what the gate let a run through; empty: it has none, as in a folder that nothing was installed in."""

    contract: str = ""
    judge: str = ""
    lock: str = ""


class Order(Frozen):
    """What the gate let through. `number` is where answers go: the issue, or for other kinds the pull request.

    `exams`: how many to hold one after the other, the first as run `run_number`. `against`: the incumbents of the base
    branch, or those in the run folder that the report began with. `shards`: over so many runners an exam is spread;
    `workload` and `rounds`: what a rerun times, and how often. A `verify` has the `authors` of the kernel, who do
    not approve it; `assisted`: the bot opened the pull request, and people changed its branch. `workflow_run`: the run
    of GitHub Actions that the gate was part of. `attached`, `criteria`, `rules`, `hidden`: of the issue's request
    (bot/github/request.py), whose digest tells whether it was edited since. Of an `optimize`, `authors` are who let it
    go on. `digests`: of contract, judge and lock at `base_sha`, which each later job holds its own against.
    """

    kind: Literal["optimize", "rerun", "verify"]
    repo: str
    number: int
    issue: int
    contract: str
    device: Device
    goal: str = ""
    start: Literal["incumbent", "reference", "attached"] = "incumbent"
    attached: str = ""
    criteria: str = ""
    rules: list[str] = []
    hidden: list[str] = []
    request_digest: str = ""
    requester: str
    base_branch: str
    base_sha: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
    digests: Digests = Digests()
    head_sha: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None = None
    run_number: Annotated[int, Field(ge=1)] = 1
    exams: Annotated[int, Field(ge=1, le=5)] = 1
    against: Literal["main", "report"] = "main"
    shards: Annotated[int, Field(ge=1, le=SHARDS)] = 1
    workload: str | None = None
    rounds: Annotated[int, Field(ge=2, le=64)] | None = None
    assisted: bool = False
    authors: list[str] = []
    steering: Steering = Steering()
    workflow_run: Annotated[int, Field(ge=0)] = 0


class Candidate(Frozen):
    """The kernel to examine: where it belongs in the repository, and its text."""

    path: Annotated[str, Field(pattern=_KERNEL)]
    source: str

    @staticmethod
    def is_path(path: str) -> bool:
        """Whether a kernel may have this path."""
        return re.fullmatch(_KERNEL, path) is not None

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.rpartition("/")[2]


class Named(Frozen):
    """What was merged for an order's contract and device, at the commit that the gate named."""

    incumbents: dict[str, BaselineSource]


class RunFolder:
    """One run's documents."""

    def __init__(self, path: Path) -> None:
        """Use this folder; it is created when something is written."""
        self.path = path

    @property
    def workspace(self) -> Path:
        """The agent's own folder: journal, lessons, every candidate."""
        return self.path / "agent"

    def write_order(self, order: Order) -> None:
        """Keep what the gate let through."""
        self._write("order.json", order)

    def order(self) -> Order:
        """What the gate let through.

        Raises:
            UsageError: the gate let nothing through.
        """
        order = self._read("order.json", Order)
        if order is None:
            raise UsageError(f"{self.path} holds no order: the gate let nothing through")
        return order

    def write_candidate(self, candidate: Candidate) -> None:
        """Keep the kernel to examine."""
        self._write("candidate.json", candidate)

    def candidate(self) -> Candidate | None:
        """The kernel to examine, if there is one."""
        return self._read("candidate.json", Candidate)

    def write_incumbents(self, incumbents: dict[str, BaselineSource]) -> None:
        """Keep the incumbents to measure against."""
        self._write("incumbents.json", Named(incumbents=incumbents))

    def incumbents(self) -> dict[str, BaselineSource] | None:
        """The incumbents to measure against, by what each is merged for; None: the gate named none, not even that there
        are none."""
        named = self._read("incumbents.json", Named)
        return named.incumbents if named is not None else None

    def write_agent(self, run: AgentRun) -> None:
        """Keep how the candidate came to be."""
        self._write("agent.json", run)

    def agent(self) -> AgentRun | None:
        """How the candidate came to be, if an agent ran."""
        return self._read("agent.json", AgentRun)

    def write_evaluation(self, evaluation: Evaluation, run_number: int) -> None:
        """Keep the facts of one exam."""
        self._write(f"evaluations/{run_number:03d}.json", evaluation)

    def write_shard(self, evaluation: Evaluation, run_number: int, number: int) -> None:
        """Keep the facts of one shard of an exam."""
        self._write(f"shards/{run_number:03d}-{number:02d}.json", evaluation)

    def join(self) -> None:
        """Make evaluations of the shards there are.

        Raises:
            UsageError: some are missing, or do not belong together.
        """
        runs: dict[int, list[Evaluation]] = {}
        for path in sorted((self.path / "shards").glob("*-*.json")):
            run, _, number = path.stem.partition("-")
            if run.isdecimal() and number.isdecimal():
                part = self._read(f"shards/{path.name}", Evaluation)
                runs.setdefault(int(run), []).extend([part] if part else [])
        for run_number, parts in runs.items():
            self.write_evaluation(merge(parts), run_number)

    def evaluations(self) -> Sequence[Evaluation]:
        """The facts of all runs, oldest first."""
        return list(self.numbered().values())

    def numbered(self) -> dict[int, Evaluation]:
        """The facts of all runs by the number of the run, oldest first."""
        numbers = sorted(int(path.stem) for path in (self.path / "evaluations").glob("*.json") if path.stem.isdecimal())
        found = {number: self._read(f"evaluations/{number:03d}.json", Evaluation) for number in numbers}
        return {number: evaluation for number, evaluation in found.items() if evaluation is not None}

    def workspace_files(self) -> dict[str, bytes]:
        """The agent's files by relative path; links and anything that is no plain file are left out."""
        found: dict[str, bytes] = {}
        for path in sorted(self.workspace.rglob("*")):
            if path.is_file() and not path.is_symlink():
                found[str(path.relative_to(self.workspace))] = path.read_bytes()
        return found

    def _write(self, name: str, document: BaseModel) -> None:
        place = self.path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(document.model_dump_json(indent=1) + "\n", encoding="utf-8")

    def _read(self, name: str, model: type[M]) -> M | None:
        place = self.path / name
        if not place.is_file():
            return None
        return parse_document(model, place.read_bytes(), name)


def parse_document(model: type[M], data: bytes, source: str) -> M:
    """One of our documents, from bytes that may have been anywhere.

    Raises:
        DataError: too large, not JSON, or not of this form.
    """
    if len(data) > DOCUMENT_LIMIT:
        raise DataError(source, [Problem("", f"{len(data)} bytes; at most {DOCUMENT_LIMIT} are read")])
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        raise DataError(source, problems_of(error)) from None
