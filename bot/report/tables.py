"""Facts → rows: what the tables of a report hold, before any of it is text. Pure; every figure is computed here."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bot import stats
from bot.evaluation import (
    STAGES,
    Accuracy,
    AgentRun,
    BaselineState,
    Cell,
    Evaluation,
    Gpu,
    Grade,
    Refusal,
    StageName,
)
from bot.floor import percent_of_floor, roofline_ns
from bot.verdict import MIN_GAIN, CellVerdict, Verdict

ACCURACY_GAP = 1.1
"""Errors are in the same units on the same draws, so that a tenth more in the bulk is a real loss, not luck."""


NOTICEABLE = 0.25
"""Noise units: half of what one honest rounding of an output costs. Below it, more or less error is no matter."""


@dataclass(frozen=True, slots=True)
class TimeRow:
    """One cell: times in ns, None where there is no sound one; `others` in the order of the table's columns.

    `claimed_ns`, `bar_claimed_ns`: by the device's events, as their processes say. `roofline`: the share of what the
    device can do that the candidate's time makes use of, `claimed_roofline` the same of what it claims. `launch_bound`:
    most of its time is what any call costs, or was spent with its process in its midst; `replay_ns`, `bar_replay_ns`:
    what a call takes as a replayed graph, as their processes say.
    """

    cell: CellVerdict
    candidate_ns: float | None
    bar_ns: float | None
    others: list[float | None]
    claimed_ns: float | None
    bar_claimed_ns: float | None
    roofline: float | None
    claimed_roofline: float | None
    launch_bound: bool
    replay_ns: float | None
    bar_replay_ns: float | None


@dataclass(frozen=True, slots=True)
class TimeTable:
    """All cells; `bar` is the baseline that is the bar everywhere, `columns` the other available ones. `gpu`: whether
    the times are of one. `overhead_ns`: the most that a call which does nothing took."""

    bar: BaselineState | None
    columns: list[BaselineState]
    missing: list[BaselineState]
    rows: list[TimeRow]
    gpu: bool
    overhead_ns: int

    @property
    def slowest(self) -> list[TimeRow]:
        """The worst regime of each workload against the bar; a cell without a ratio is worse than any."""
        worst: dict[str, TimeRow] = {}
        for row in self.rows:
            known = worst.get(row.cell.workload)
            if known is None or _gain(row) < _gain(known):
                worst[row.cell.workload] = row
        return list(worst.values())

    @property
    def claims(self) -> bool:
        """Whether there is a claim to show."""
        return any(row.claimed_ns is not None for row in self.rows)

    @property
    def replayed(self) -> bool:
        """Whether some cell has a graph replay beside it."""
        return any(row.replay_ns or row.bar_replay_ns for row in self.rows)

    @property
    def launch_bound(self) -> int:
        """In how many cells the candidate is."""
        return sum(row.launch_bound for row in self.rows)


@dataclass(frozen=True, slots=True)
class LongClaims:
    """Cells in which a kernel takes longer by its own process than by our clock, and the one where it is most."""

    kernel: str
    cells: int
    worst: str
    claimed_ns: float
    own_ns: float


@dataclass(frozen=True, slots=True)
class AccuracyRow:
    """One output of one kernel at its worst over the runs; `kernel` is None for the candidate."""

    kernel: str | None
    worst: Accuracy


@dataclass(frozen=True, slots=True)
class StageRow:
    """A stage over all runs."""

    name: StageName
    status: str
    done: int
    planned: int
    seconds: float
    notes: list[str]


@dataclass(frozen=True, slots=True)
class GradeRow:
    """How the exam did against kernels whose answer is known, over all graded runs.

    `severity`: from it on every graded control was caught in every run; None where that holds of none, or none was run.
    """

    caught: int
    controls: int
    weakest: float | None
    accepted: int
    faithful: int
    gated_caught: int
    gated: int
    graded_caught: int
    graded: int
    severity: float | None


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A candidate refused on the way; `claimed` is what it would have counted, had it been believed."""

    number: int
    name: str
    claimed: float | None
    refusal: Refusal


def time_table(evaluations: Sequence[Evaluation], verdict: Verdict) -> TimeTable:
    """Times of every cell in the verdict, over all runs."""
    states = {state.name: state for run in evaluations for state in run.baselines}
    bars = {cell.bar for cell in verdict.cells}
    bar = states.get(next(iter(bars))) if len(bars) == 1 else None
    available = [state for state in states.values() if state.state == "available"]
    columns = [state for state in available if state != bar]
    pooled: dict[str, list[_Timed]] = {}
    for run in evaluations:
        for cell in run.cells:
            pooled.setdefault(cell.name, []).append(_Timed(cell, run.environment.gpu))
    return TimeTable(
        bar=bar,
        columns=columns,
        missing=[state for state in states.values() if state.state != "available"],
        rows=[_time_row(cell, pooled.get(cell.name, []), columns) for cell in verdict.cells],
        gpu=any(run.environment.gpu for run in evaluations),
        overhead_ns=max((cell.overhead_ns for run in evaluations for cell in run.cells), default=0),
    )


def long_claims(evaluations: Sequence[Evaluation], verdict: Verdict) -> list[LongClaims]:
    """Where on a GPU a kernel's own process says that its calls took longer than our clock does, call by call and
    beyond the noise: something of them was outside what is counted. A claim can make a kernel look worse, not better.
    """
    margin = 1 + max(verdict.noise_floor or 0.0, MIN_GAIN)
    found = []
    for kernel in ("candidate", "bar"):
        long: dict[str, tuple[float, float]] = {}
        for cell in (cell for run in evaluations if run.environment.gpu for cell in run.cells):
            claims = cell.claimed_ns if kernel == "candidate" else cell.baseline_claimed_ns
            own = [ns for one in cell.rounds for ns in (one.candidate_ns if kernel == "candidate" else one.baseline_ns)]
            ratio = _median(claim / ns for claim, ns in zip(claims, own, strict=False) if ns)
            if ratio is not None and len(claims) == len(own) and ratio > margin:
                long[cell.name] = stats.median(claims), stats.median(own)
        if long:
            worst = max(long, key=lambda name: long[name][0] / long[name][1])
            found.append(LongClaims(kernel, len(long), worst, *long[worst]))
    return found


def accuracy_rows(evaluations: Sequence[Evaluation]) -> list[AccuracyRow]:
    """Candidate first, then baselines; of several runs the one that comes nearest to its limits."""
    baselines = {state.name for run in evaluations for state in run.baselines}
    worst: dict[tuple[str | None, str], Accuracy] = {}
    for run in evaluations:
        for found in run.accuracy:
            key = (found.kernel if found.kernel in baselines else None, found.output)
            if key not in worst or _to_limit(found) > _to_limit(worst[key]):
                worst[key] = found
    rows = [AccuracyRow(kernel, found) for (kernel, _), found in worst.items()]
    return sorted(rows, key=lambda row: row.kernel is not None)


def less_accurate(evaluations: Sequence[Evaluation], bar: str) -> str | None:
    """The output in which the candidate loses accuracy against the bar, None when there is none. They are compared
    within a run, on the same draws: a confirmation asks no baseline, and its draws may just be harder."""
    for run in evaluations:
        of_bar = {found.output: found for found in run.accuracy if found.kernel == bar}
        for row in accuracy_rows([run]):
            other = of_bar.get(row.worst.output)
            if row.kernel is None and other and _loses(row.worst, other):
                return row.worst.output
    return None


def stage_rows(evaluations: Sequence[Evaluation]) -> list[StageRow]:
    """What each stage found, checks summed over the runs, the worst status shown."""
    rows = []
    for name in STAGES:
        records = [record for run in evaluations for record in run.stages if record.name == name]
        if records:
            statuses = {record.status for record in records}
            status = next(s for s in ("refused", "invalid", "passed", "not_run") if s in statuses)
            done, planned = sum(r.done for r in records), sum(r.planned for r in records)
            notes = list(dict.fromkeys(record.note for record in records if record.note))
            rows.append(StageRow(name, status, done, planned, sum(r.seconds for r in records), notes))
    return rows


def grade_row(evaluations: Sequence[Evaluation]) -> GradeRow | None:
    """The judge's grade, None when no run was graded."""
    grades = [run.grade for run in evaluations if run.grade]
    controls = [control for grade in grades for control in grade.controls]
    faithful = [variant for grade in grades for variant in grade.faithful]
    variants = [variant for grade in grades for variant in grade.variants]
    gated = [variant.refused for variant in variants if variant.severity is None]
    graded = [variant.refused for variant in variants if variant.severity is not None]
    margins = [control.margin for control in controls if control.refused and control.margin is not None]
    if not grades:
        return None
    return GradeRow(
        caught=sum(control.refused for control in controls),
        controls=len(controls),
        weakest=min(margins, default=None),
        accepted=sum(not variant.refused for variant in faithful),
        faithful=len(faithful),
        gated_caught=sum(gated),
        gated=len(gated),
        graded_caught=sum(graded),
        graded=len(graded),
        severity=_severity(grades),
    )


def _severity(grades: Sequence[Grade]) -> float | None:
    """The largest of the runs' severities: what holds of all of them."""
    found = [grade.severity for grade in grades if any(variant.severity is not None for variant in grade.variants)]
    known = [severity for severity in found if severity is not None]
    return max(known) if known and len(known) == len(found) else None


def refused_rows(agent_run: AgentRun | None) -> list[RefusedRow]:
    """The candidates refused on the way, in order."""
    return [
        RefusedRow(
            number=attempt.number,
            name=attempt.evaluation.candidate_name,
            claimed=claimed_ratio(attempt.claim) if attempt.claim else None,
            refusal=attempt.evaluation.refusal,
        )
        for attempt in (agent_run.attempts if agent_run else [])
        if attempt.evaluation.refusal
    ]


def claimed_ratio(claim: Evaluation) -> float | None:
    """Geometric mean over the cells of bar ÷ candidate as a refused candidate would have it, None without times."""
    ratios = []
    for cell in claim.cells:
        bar = _median(ns for one in cell.rounds for ns in one.baseline_ns) or _clean([cell], cell.bar)
        candidate = _median(ns for one in cell.rounds for ns in one.candidate_ns) or _median(cell.claimed_ns)
        if bar and candidate:
            ratios.append(bar / candidate)
    return stats.geometric_mean(ratios) if ratios else None


@dataclass(frozen=True, slots=True)
class _Timed:
    """A cell of one run, and the device that it was timed on."""

    cell: Cell
    gpu: Gpu | None


def _time_row(cell: CellVerdict, timed: Sequence[_Timed], columns: Sequence[BaselineState]) -> TimeRow:
    runs = [one.cell for one in timed]
    on_gpu = [one.cell for one in timed if one.gpu]
    candidate = _median(ns for run in runs for one in run.rounds for ns in one.candidate_ns)
    claimed = _median(ns for run in on_gpu for ns in run.claimed_ns)
    floor = max(filter(None, (roofline_ns(one.cell, one.gpu) for one in timed)), default=None)
    interleaved = _median(ns for run in runs for one in run.rounds for ns in one.baseline_ns)
    clean = _median(ns for run in runs for time in run.baselines if time.baseline == run.bar for ns in time.clean_ns)
    return TimeRow(
        cell=cell,
        candidate_ns=candidate,
        bar_ns=min((ns for ns in (interleaved, clean) if ns is not None), default=None),
        others=[_clean(runs, state.name) for state in columns],
        claimed_ns=claimed,
        bar_claimed_ns=_median(ns for run in on_gpu for ns in run.baseline_claimed_ns),
        roofline=_share_of(floor, candidate),
        claimed_roofline=_share_of(floor, claimed),
        launch_bound=any("candidate" in run.host_bound for run in on_gpu) or _mostly_a_call(on_gpu, candidate),
        replay_ns=_median(run.replay_ns for run in on_gpu if run.replay_ns),
        bar_replay_ns=_median(run.baseline_replay_ns for run in on_gpu if run.baseline_replay_ns),
    )


def _mostly_a_call(runs: Sequence[Cell], candidate_ns: float | None) -> bool:
    """Whether more than half of a candidate's time is what a call that does nothing takes."""
    overhead = max((run.overhead_ns for run in runs), default=0)
    return candidate_ns is not None and candidate_ns < 2 * overhead


def _share_of(floor: float | None, time_ns: float | None) -> float | None:
    share = percent_of_floor(floor, time_ns) if time_ns else None
    return None if share is None else share / 100


def _clean(runs: Iterable[Cell], baseline: str) -> float | None:
    return _median(ns for run in runs for time in run.baselines if time.baseline == baseline for ns in time.clean_ns)


def _median(samples: Iterable[float]) -> float | None:
    """A median to show; None where a sample is missing or not a time."""
    try:
        return stats.median(list(samples))
    except ValueError:
        return None


def _gain(row: TimeRow) -> float:
    return row.cell.ratio.mid if row.cell.ratio else 0.0


def _to_limit(found: Accuracy) -> float:
    return max(found.median / found.limit_median, found.p99 / found.limit_p99, found.maximum / found.limit_maximum)


def _loses(candidate: Accuracy, bar: Accuracy) -> bool:
    return any(
        own > max(ACCURACY_GAP * other, NOTICEABLE)
        for own, other in ((candidate.median, bar.median), (candidate.p99, bar.p99))
    )
