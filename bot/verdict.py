"""Policy: what the facts of one or more exams of the same candidate amount to. Pure; sees no file, clock or network.

A refusal, by precedence, decides alone. Without one the candidate is correct, and its speed is the geometric mean of
bar ÷ candidate over all scored cells of all runs. `gaps` (evidence that is missing) keep a candidate from `improved`;
`holes` (a scored cell without a sound figure) void the geometric mean as well.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from bot import digest, stats
from bot.contract.distribution import Frozen
from bot.evaluation import STAGES, Cell, Evaluation, Mode, StageName, StageRecord
from bot.stats import Interval

__all__ = ["ACCEPTED", "MIN_GAIN", "CellVerdict", "Interval", "Kind", "Verdict", "decide"]

MIN_GAIN = 0.01
"""A gain or loss below 1 % is none, however quiet the machine (design.md, Verdicts)."""

BELOW_FLOOR = 0.9
"""A time under this share of the least possible one is a broken measurement, not a fast kernel (design.md, Floors)."""

MIN_ROUNDS = 2
"""Fresh workers a side and cell, below which the spread between workers is unknown."""


class Kind(StrEnum):
    """The decision. The first four are acceptances (correct), the others are not; see design.md, Verdicts."""

    IMPROVED = "improved"
    MIXED = "mixed"
    NO_GAIN = "no_gain"
    SLOWER = "slower"
    INCORRECT = "incorrect"
    TAMPERED = "tampered"
    BUILD_FAILED = "build_failed"
    TIMED_OUT = "timed_out"
    VERIFIER_WEAK = "verifier_weak"
    INVALID_MEASUREMENT = "invalid_measurement"
    INFRASTRUCTURE = "infrastructure"


ACCEPTED = frozenset({Kind.IMPROVED, Kind.MIXED, Kind.NO_GAIN, Kind.SLOWER})

_PRECEDENCE = (
    Kind.TAMPERED,
    Kind.INCORRECT,
    Kind.BUILD_FAILED,
    Kind.TIMED_OUT,
    Kind.VERIFIER_WEAK,
    Kind.INVALID_MEASUREMENT,
    Kind.INFRASTRUCTURE,
)

_CORRECTNESS: tuple[StageName, ...] = (
    "build",
    "smoke",
    "correctness",
    "probes",
    "influence",
    "relations",
    "integrity",
)
_NEVER_EMPTY: frozenset[StageName] = frozenset({"build", "smoke", "correctness", "probes", "timing", "controls"})
"""Stages that every full exam plans something for; a contract may declare no relation."""
_WANTED: dict[Mode, tuple[StageName, ...]] = {
    "quick": STAGES[:4],
    "full": STAGES[:8],
    "exam": STAGES,
    "confirm": STAGES[:8],
    "claim": (),
}
MEASURED: frozenset[Mode] = frozenset({"full", "exam", "confirm"})
"""Modes whose times count."""


class CellVerdict(Frozen):
    """One scored cell: bar ÷ candidate, and which way it points beyond the noise floor.

    `direction`: faster, slower, same, unresolved or invalid.
    """

    workload: str
    regime: str
    bar: str
    ratio: Interval | None
    direction: str

    @property
    def name(self) -> str:
        """`workload/regime`."""
        return f"{self.workload}/{self.regime}"


class Verdict(Frozen):
    """The decision and what it rests on. `accepted` (correct) and `measured` are facts of their own. `overhead`: the
    mean share of the bar's times that a call which does nothing takes; no gain or loss within it is one. `repeats`: how
    far from `speedup` another one, measured like it, comes out at most, 19 times of 20; it decides nothing."""

    kind: Kind
    accepted: bool
    measured: bool
    speedup: Interval | None
    noise_floor: float | None
    overhead: float = 0.0
    repeats: float | None = None
    cells: list[CellVerdict]
    reasons: list[str]
    runs: int


def decide(evaluations: Sequence[Evaluation]) -> Verdict:
    """Pool all runs of one candidate into a verdict; the order does not count, the same facts twice are one run.

    Raises:
        ValueError: there is none, or they are of different candidates or contracts.
    """
    pooled = _pool(evaluations)
    runs = [run for one in pooled for run in one.runs]
    timing = _time([run for run in runs if run.mode in MEASURED])
    findings = [finding for run in runs for finding in _findings(run)]
    findings += [(Kind.INVALID_MEASUREMENT, reason) for reason in timing.invalid]
    findings.sort(key=lambda finding: _PRECEDENCE.index(finding[0]))
    if findings:
        kind, speedup = findings[0][0], None
        reasons = [reason for _, reason in findings]
    else:
        kind, reasons = _direction(timing, [*timing.holes, *_gaps(runs), *_unconfirmed(pooled)])
        reasons += [*timing.remarks, *_remarks(runs)]
        speedup = timing.speedup
    return Verdict(
        kind=kind,
        accepted=kind in ACCEPTED,
        measured=speedup is not None,
        speedup=speedup,
        noise_floor=timing.floor,
        overhead=timing.overhead,
        repeats=_repeats(pooled, speedup, {cell.name for cell in timing.cells}) if speedup else None,
        cells=timing.cells,
        reasons=list(dict.fromkeys(reasons)),
        runs=len(pooled),
    )


def _pool(evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    if not evaluations:
        raise ValueError("there is no evaluation to decide on")
    for name in ("candidate_digest", "contract_digest"):
        if len({getattr(one, name) for one in evaluations}) > 1:
            raise ValueError(f"evaluations with different {name} cannot be pooled")
    unique = {one.digest(): one for one in evaluations}
    return [unique[key] for key in sorted(unique)]


def _findings(run: Evaluation) -> Iterator[tuple[Kind, str]]:
    """What in a run forbids acceptance, each with the verdict it asks for."""
    if run.refusal:
        yield Kind(run.refusal.kind), f"{run.refusal.stage}, {run.refusal.where}: {run.refusal.reason}"
    for file in run.grade.survivors if run.grade else ():
        yield Kind.VERIFIER_WEAK, f"the exam accepted the deliberately wrong {file}"
    for file in run.grade.refused_faithful if run.grade else ():
        yield Kind.VERIFIER_WEAK, f"the exam refused the honest {file}"
    if run.mode == "claim":
        yield Kind.INVALID_MEASUREMENT, "a claim is timed for show and judges nothing"
    for record in run.stages:
        if record.name == "timing" and record.status == "invalid":
            yield Kind.INVALID_MEASUREMENT, f"timing: {record.note or 'no sound measurement'}"
    for reason in _shortfalls(run):
        yield Kind.INFRASTRUCTURE, reason


def _shortfalls(run: Evaluation) -> Iterator[str]:
    """What we failed to do, so that a run can neither pass nor fail."""
    if run.infrastructure:
        yield run.infrastructure
    elif run.environment.sandbox == "none":
        yield "examined without a sandbox: nothing can be accepted"
    elif not run.refusal and run.mode != "claim":
        for stage in _CORRECTNESS:
            if not _finished(_record(run, stage), least=int(stage == "correctness")):
                yield f"{stage}: {_progress(_record(run, stage))}"


def _record(run: Evaluation, stage: StageName) -> StageRecord | None:
    return next((record for record in run.stages if record.name == stage), None)


def _finished(record: StageRecord | None, least: int) -> bool:
    if record is None:
        return False
    empty = record.planned == 0 and least == 0 and record.status == "not_run"
    return empty or (record.status == "passed" and record.done >= max(record.planned, least))


def _progress(record: StageRecord | None) -> str:
    if record is None or record.status == "not_run":
        return "did not run"
    return f"evidence for {record.done} of {record.planned} planned checks ({record.status})"


def _gaps(runs: Sequence[Evaluation]) -> Iterator[str]:
    """Evidence that `improved` needs and these runs do not have."""
    if all(run.mode == "quick" for run in runs):
        yield "not measured"
        return
    if all(run.workload is not None for run in runs):
        yield "no run timed every workload"
    for name in ("judge_digest", "contract_version"):
        if len({getattr(run, name) for run in runs}) > 1:
            yield f"the runs differ in {name}"
    if len({(run.environment.device, run.environment.architecture) for run in runs}) > 1:
        yield "the runs are from different devices"
    for run in runs:
        yield from _gaps_of(run)


def _gaps_of(run: Evaluation) -> Iterator[str]:
    for stage in _WANTED[run.mode]:
        record = _record(run, stage)
        if not _finished(record, least=int(stage in _NEVER_EMPTY)):
            yield f"{stage}: {_progress(record)}"
    if run.mode == "quick":
        return
    if not any(baseline.state == "available" for baseline in run.baselines):
        yield "no baseline was available to compare with"
    if not run.checked_timed_calls:
        yield "no output of a timed call was checked"
    if run.mode == "exam" and not (run.grade and run.grade.controls and run.grade.faithful):
        yield "controls: the exam was not graded with wrong and honest kernels"


def _unconfirmed(exams: Sequence[Evaluation]) -> Iterator[str]:
    """An exam is believed when it comes out the same with another salt."""
    for exam in exams:
        if exam.mode != "exam":
            continue
        second = exam.confirmation
        if second is None:
            yield "no confirming exam with a second salt"
        elif second.mode != "confirm" or second.salt == exam.salt:
            yield "the confirming exam is not one: it has the salt or mode of the first"


def _remarks(runs: Sequence[Evaluation]) -> Iterator[str]:
    """What a reader should know though it decides nothing."""
    if any(run.mode == "full" for run in runs) and not any(run.grade for run in runs):
        yield "controls were not run (mode full)"
    bars = {cell.bar for run in runs for cell in run.cells}
    for run in runs:
        for baseline in run.baselines:
            if baseline.name in bars and baseline.less_accurate:
                yield f"the bar {baseline.name} is less accurate than an honest kernel"
        for cell in run.cells:
            if cell.state == "resolved" and cell.note:
                yield f"{cell.name}: {cell.note}"


@dataclass(slots=True)
class _Timing:
    """What the timed runs amount to, cell by cell."""

    cells: list[CellVerdict] = field(default_factory=list)
    speedup: Interval | None = None
    floor: float | None = None
    cell_floor: float | None = None
    overhead: float = 0.0
    invalid: list[str] = field(default_factory=list)
    holes: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Pooled:
    """A scored cell over all runs; `rounds` hold log ratios."""

    workload: str
    regime: str
    bars: dict[str, None] = field(default_factory=dict)
    rounds: list[list[float]] = field(default_factory=list)
    overhead: float = 0.0
    unresolved: bool = False
    invalid: bool = False


def _time(runs: Sequence[Evaluation]) -> _Timing:
    timing = _Timing()
    pooled: dict[str, _Pooled] = {}
    medians: list[list[float]] = []
    floors: list[float | None] = []
    for run in runs:
        own: list[list[float]] = []
        timing.holes += _omissions(run)
        available = {baseline.name for baseline in run.baselines if baseline.state == "available"}
        for cell in run.cells:
            mine = pooled.setdefault(cell.name, _Pooled(cell.workload, cell.regime))
            mine.bars[cell.bar] = None
            mine.unresolved |= cell.state == "unresolved" or cell.bar not in available
            if problem := _unsound(cell):
                timing.invalid.append(f"{cell.name}: {problem}")
                mine.invalid = True
            elif cell.rounds:
                mine.rounds += _rounds(cell)
                mine.overhead = max(mine.overhead, _overhead(cell))
                own.append([stats.median(one.baseline_ns) for one in cell.rounds])
        medians += own
        floors.append(stats.aa_floor_of_mean(own) if len({len(rounds) for rounds in own}) == 1 else None)
    shares = [cell.overhead for cell in pooled.values() if cell.rounds and not cell.invalid]
    timing.overhead = sum(shares) / len(shares) if shares else 0.0
    timing.cell_floor = stats.aa_floor(medians)
    timing.floor = max((floor for floor in floors if floor is not None), default=None)
    _measure(timing, pooled, seed=digest.of_document([run.digest() for run in runs]))
    return timing


def _omissions(run: Evaluation) -> Iterator[str]:
    """A cell that was left out, timed twice or added would move the geometric mean."""
    timed = Counter(cell.name for cell in run.cells)
    if not run.scored_cells:
        yield "no list of scored cells was fixed before loading"
    for name in run.scored_cells:
        if name not in timed:
            yield f"{name}: scored but not timed"
    for name, times in timed.items():
        if run.scored_cells and name not in run.scored_cells:
            yield f"{name}: timed but not scored"
        if times > 1:
            yield f"{name}: stands {times} times in one run"


def _unsound(cell: Cell) -> str | None:
    """Why the times of a cell cannot be used, or None."""
    if cell.state == "invalid":
        return cell.note or "the measurement is invalid"
    if cell.state == "unresolved" and not cell.rounds:
        return None
    try:
        _rounds(cell)
    except ValueError as error:
        return str(error)
    candidate = stats.median([ns for one in cell.rounds for ns in one.candidate_ns])
    if cell.floor_ns and candidate < BELOW_FLOOR * cell.floor_ns:
        return f"{candidate:.0f} ns is less than the device's bytes and operations allow ({cell.floor_ns} ns)"
    return None


def _overhead(cell: Cell) -> float:
    """The clock's own cost as a share of the bar's time. A candidate can shrink what it costs to be called, and must
    gain nothing by it: what is within this share is no difference (design.md subtracts it from the bar's time alone,
    which would call a kernel slower than itself)."""
    return cell.overhead_ns / stats.median([ns for one in cell.rounds for ns in one.baseline_ns])


def _rounds(cell: Cell) -> list[list[float]]:
    """Log ratios of each round against the lower of the bar's clean and interleaved time.

    When the bar was faster alone than beside the candidate, every ratio of the cell is scaled by clean median ÷
    interleaved median: a candidate gains nothing by slowing its neighbour down, in all calls or in fewer than half.
    """
    scale = _scale(cell)
    return [stats.log_ratios(one.baseline_ns, one.candidate_ns, scale) for one in cell.rounds]


def _scale(cell: Cell) -> float:
    interleaved = stats.median([ns for one in cell.rounds for ns in one.baseline_ns])
    clean = [stats.median(time.clean_ns) for time in cell.baselines if time.baseline == cell.bar]
    return min([interleaved, *clean]) / interleaved


def _repeats(exams: Sequence[Evaluation], speedup: Interval, names: set[str]) -> float | None:
    """Several runs that timed every cell are held against each other; of a single one its rounds are."""
    whole = [cells for cells in map(_timed, exams) if {cell.name for cell in cells} == names]
    ratios = [_by_cell(cells, _rounds) for cells in whole]
    if len(whole) != 1:
        merged = [[[[value for one in rounds for value in one]] for rounds in run] for run in ratios]
        return stats.repeatability(speedup, [stats.means_of_rounds(run)[0] for run in merged])
    bar = _by_cell(whole[0], lambda cell: [[math.log(ns) for ns in one.baseline_ns] for one in cell.rounds])
    clean = len({cell.name for cell in whole[0] if _scale(cell) < 1}) / len(names)
    return stats.repeatability(speedup, stats.means_of_rounds(ratios[0]), stats.means_of_rounds(bar), clean)


def _timed(exam: Evaluation) -> list[Cell]:
    return [cell for run in exam.runs if run.mode in MEASURED for cell in run.cells]


def _by_cell(cells: Sequence[Cell], values: Callable[[Cell], list[list[float]]]) -> list[list[list[float]]]:
    """For each cell its rounds, those of the confirming exam after the exam's."""
    found: dict[str, list[list[float]]] = {}
    for cell in cells:
        found.setdefault(cell.name, []).extend(values(cell))
    return list(found.values())


def _measure(timing: _Timing, pooled: dict[str, _Pooled], seed: str) -> None:
    """Fill in cells and speedup."""
    sound = {name: cell.rounds for name, cell in pooled.items() if cell.rounds and not cell.invalid}
    ratios, speedup = stats.intervals(sound, seed) if sound else ({}, None)
    for name, cell in sorted(pooled.items()):
        direction = _direction_of(cell, ratios.get(name), _margin(timing.cell_floor, cell.overhead))
        if direction == "unresolved":
            timing.holes.append(f"{name}: unresolved")
        if len(cell.bars) > 1:
            timing.remarks.append(f"{name}: the bar differs between runs")
        timing.cells.append(
            CellVerdict(
                workload=cell.workload,
                regime=cell.regime,
                bar=", ".join(cell.bars),
                ratio=ratios.get(name),
                direction=direction,
            )
        )
    if not timing.holes and not timing.invalid:
        timing.speedup = speedup


def _direction_of(cell: _Pooled, ratio: Interval | None, margin: float) -> str:
    if cell.invalid:
        return "invalid"
    if cell.unresolved or ratio is None or len(cell.rounds) < MIN_ROUNDS:
        return "unresolved"
    if ratio.low > 1 + margin:
        return "faster"
    return "slower" if ratio.high < 1 - margin else "same"


def _margin(floor: float | None, overhead: float) -> float:
    return max(floor or 0.0, overhead, MIN_GAIN)


def _direction(timing: _Timing, gaps: Sequence[str]) -> tuple[Kind, list[str]]:
    """Which of the four acceptances, and why."""
    speedup, margin = timing.speedup, _margin(timing.floor, timing.overhead)
    faster = [cell.name for cell in timing.cells if cell.direction == "faster"]
    slower = [cell.name for cell in timing.cells if cell.direction == "slower"]
    named = [f"{word}: {', '.join(names)}" for word, names in (("faster", faster), ("slower", slower)) if names]
    if speedup is None:
        return Kind.NO_GAIN, [*gaps, *named]
    ahead = speedup.low > 1 + margin
    if slower and (faster or ahead):
        return Kind.MIXED, [*named, *gaps]
    if speedup.high < 1 - margin:
        return Kind.SLOWER, [f"the upper bound {speedup.high:.3f} is below {1 - margin:.3f}", *gaps]
    if not ahead:
        return Kind.NO_GAIN, [f"the lower bound {speedup.low:.3f} is not above {1 + margin:.3f}", *named, *gaps]
    if timing.floor is None:
        gaps = ["no cell has two rounds in one run: the A/A floor is unknown", *gaps]
    if gaps:
        return Kind.NO_GAIN, list(gaps)
    return Kind.IMPROVED, [f"the lower bound {speedup.low:.3f} is above {1 + margin:.3f}"]
