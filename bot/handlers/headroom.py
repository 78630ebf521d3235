"""What earlier runs of a contract say of the next one: how far the best known kernel is from the device's floor, and
what a run costs. Read from the records on the default branch and on the branch of evidence; the choice is pure.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel

from bot import stats
from bot.contract.schema import Device
from bot.errors import UsageError
from bot.evaluation import AgentRun, Cell, Evaluation
from bot.github.claims import EVIDENCE_BRANCH
from bot.github.push import Remote, branch_tip, list_files, read_files
from bot.handlers.run import parse_document

LITTLE = 1.1
"""Below so many times the floor a run waits for `/go`: what is left to gain is about what exams resolve."""
READ = 12
"""Records of each branch, the newest."""

_EVALUATION = re.compile(r"reports/[^/]+/(?:issue|pull)-(\d{1,9})/evaluations/(\d{1,6})\.json")
_AGENT = re.compile(r"reports/[^/]+/issue-(\d{1,9})/()agent\.json")

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Headroom:
    """Best known time over the floor, geometric mean of `cells`. `kernel`: whose; None where it is not one for all."""

    ratio: float
    kernel: str | None
    cells: int
    measured_at: str


@dataclass(frozen=True, slots=True)
class Costs:
    """Medians over earlier runs, and how many there were: seconds of an exam with its confirmation; seconds and tokens,
    in and out, of an agent."""

    exam_seconds: float | None
    exams: int
    agent_seconds: float | None
    agent_tokens: float | None
    agents: int


@dataclass(frozen=True, slots=True)
class Earlier:
    """Earlier runs of one contract."""

    evaluations: Sequence[Evaluation]
    agents: Sequence[AgentRun]


def read_earlier(remote: Remote, base_sha: str, contract: str) -> Earlier:
    """The newest records of a contract; one with mistakes is as good as none.

    Raises:
        GitHubError: git could not read them.
    """
    shas = [sha for sha in (base_sha, branch_tip(remote, EVIDENCE_BRANCH)) if sha is not None]
    evaluations, agents = list[Evaluation](), list[AgentRun]()
    for sha in shas:
        paths = list_files(remote, sha, f"reports/{contract}")
        evaluations += _records(remote, sha, paths, _EVALUATION, Evaluation)
        agents += _records(remote, sha, paths, _AGENT, AgentRun)
    return Earlier(evaluations, agents)


def _records(remote: Remote, sha: str, paths: Sequence[str], wanted: re.Pattern[str], model: type[M]) -> Iterator[M]:
    named = [(match, path) for path in paths if (match := wanted.fullmatch(path))]
    named.sort(key=lambda each: [int(part or 0) for part in each[0].groups()])
    for _, path in named[-READ:]:
        try:
            yield parse_document(model, read_files(remote, sha, [path])[path], path)
        except UsageError:
            continue


def target_of(earlier: Earlier, device: Device) -> str:
    """What runs here are examined on (`Environment.target`): of GPUs that of the newest exam, "" without one."""
    if device == "cpu":
        return "cpu"
    seen = [run for run in earlier.evaluations if run.environment.target != "cpu"]
    return max(seen, key=lambda run: run.started_at).environment.target if seen else ""


def headroom(earlier: Earlier, contract_digest: str, target: str) -> Headroom | None:
    """From the newest exam of this contract on this target whose cells all have a floor; None where there is none."""
    measured = [
        run
        for run in earlier.evaluations
        if run.contract_digest == contract_digest
        and run.environment.target == target
        and run.workload is None
        and run.cells
        and all(cell.floor_ns for cell in run.cells)
    ]
    if not measured:
        return None
    newest = max(measured, key=lambda run: run.started_at)
    best = [_best(cell, newest) for cell in newest.cells]
    ratios = [ns / cell.floor_ns for (_, ns), cell in zip(best, newest.cells, strict=True) if cell.floor_ns]
    names = {name for name, _ in best}
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return Headroom(mean, names.pop() if len(names) == 1 else None, len(ratios), newest.started_at[:10])


def _best(cell: Cell, run: Evaluation) -> tuple[str, float]:
    """The fastest kernel of a cell that is right, and its time; the candidate is one where nothing refused it."""
    times = {time.baseline: stats.median(time.clean_ns) for time in cell.baselines if time.clean_ns}
    times[cell.bar] = min(times.get(cell.bar, math.inf), stats.median([n for r in cell.rounds for n in r.baseline_ns]))
    if run.refusal is None:
        times[run.candidate_name] = stats.median([n for r in cell.rounds for n in r.candidate_ns])
    name = min(times, key=lambda each: times[each])
    return name, times[name]


def costs(earlier: Earlier, target: str) -> Costs:
    """What runs on this target have cost."""
    exams = [
        run.seconds + (run.confirmation.seconds if run.confirmation else 0.0)
        for run in earlier.evaluations
        if run.refusal is None and run.environment.target == target
    ]
    agents = earlier.agents
    return Costs(
        exam_seconds=_median(exams),
        exams=len(exams),
        agent_seconds=_median([run.seconds for run in agents]),
        agent_tokens=_median([run.input_tokens + run.output_tokens for run in agents]),
        agents=len(agents),
    )


def _median(values: Sequence[float]) -> float | None:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return None if not ordered else (ordered[middle] + ordered[-1 - middle]) / 2
