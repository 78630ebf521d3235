"""Several runs of one candidate beside each other: how far each is from all of them, and what differs. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bot import stats
from bot.evaluation import Cell, Evaluation, GpuState
from bot.report.figures import span, tera
from bot.verdict import Kind, Verdict, decide


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that was recorded of two runs and is not the same."""

    name: str
    was: str
    now: str


@dataclass(frozen=True, slots=True)
class Moved:
    """By how much the times of a run are larger than another's: fractions, geometric means over the cells of both."""

    candidate: float
    bar: float


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run, confirmation included, as if it were the only one (`verdict`).

    `off`: its speedup over that of all runs in the same cells, less 1; `noise`: up to what that is put down to chance.
    `agrees`: whether it concludes what the first run does. `against`: the number of the run that it
    `differs` from and has `moved` from: the first one, or when it is outside the noise the one furthest from it. Only
    then a state that is never quite the same, and what moved, are told as well.
    """

    number: int
    workload: str | None
    verdict: Verdict
    off: float | None
    noise: float | None
    agrees: bool
    against: int
    differs: list[Difference]
    moved: Moved | None

    @property
    def outside(self) -> bool:
        """Whether chance does not explain how far it is off."""
        return _beyond(self.off, self.noise)


@dataclass(frozen=True, slots=True)
class Sampled:
    """A GPU around the timed calls of one run: what was read before and after them. `foreign`: the most processes of
    others that used it."""

    sm_mhz: list[int]
    memory_mhz: list[int]
    celsius: list[int]
    throttled: list[str]
    foreign: int


def sampled(run: Evaluation) -> Sampled | None:
    """The device while a run was timed, its confirmation left out; None where nothing was read."""
    states = _states(run.model_copy(update={"confirmation": None}))
    if not states:
        return None
    return Sampled(
        sm_mhz=[state.sm_mhz for state in states],
        memory_mhz=[state.memory_mhz for state in states if state.memory_mhz is not None],
        celsius=[state.celsius for state in states],
        throttled=sorted({why for state in states for why in state.throttled}),
        foreign=max(state.foreign_processes for state in states),
    )


def run_rows(evaluations: Sequence[Evaluation], verdict: Verdict) -> list[RunRow]:
    """Every run against all of them, which `verdict` pools, each once and in order; of a single one nothing."""
    runs = list({run.digest(): run for run in evaluations}.values())
    if len(runs) == 1:
        return []
    alone = [decide([run]) for run in runs]
    return [_row(i, runs, alone, verdict) for i in range(len(runs))]


def _row(i: int, runs: Sequence[Evaluation], alone: Sequence[Verdict], verdict: Verdict) -> RunRow:
    off, noise = _off(alone[i], alone, verdict)
    outside = _beyond(off, noise)
    other = _furthest(alone[i], alone) if outside else 0
    return RunRow(
        number=i + 1,
        workload=runs[i].workload,
        verdict=alone[i],
        off=off,
        noise=noise,
        agrees=_conclusion(runs[0], runs[i], alone[0]) is _conclusion(runs[i], runs[0], alone[i]),
        against=other + 1,
        differs=_differences(runs[other], runs[i], outside=outside),
        moved=_moved(runs[other], runs[i]) if outside else None,
    )


def _beyond(off: float | None, noise: float | None) -> bool:
    return off is not None and noise is not None and abs(off) > noise


def _furthest(own: Verdict, alone: Sequence[Verdict]) -> int:
    """The run whose speedup is the furthest from this one's."""
    gaps = [abs(math.log(one.speedup.mid / own.speedup.mid)) if one.speedup and own.speedup else 0.0 for one in alone]
    return gaps.index(max(gaps))


def _off(own: Verdict, alone: Sequence[Verdict], verdict: Verdict) -> tuple[float | None, float | None]:
    """How far a run is from all, and how far by chance.

    It is in the figure of all itself, by its share of the samples. Two such runs differ by `repeats`, their deviation
    times the square root of 2; runs that timed the same cells are asked, as each alone knows its deviation badly.
    """
    pooled = [cell.ratio for cell in verdict.cells if cell.name in _names(own) and cell.ratio]
    if own.speedup is None or verdict.speedup is None:
        return None, None
    off = own.speedup.mid / stats.geometric_mean([ratio.mid for ratio in pooled]) - 1
    share = own.speedup.samples / sum(ratio.samples for ratio in pooled)
    known = [math.log1p(one.repeats) ** 2 for one in alone if one.repeats is not None and _names(one) == _names(own)]
    if not known or share == 1:
        return off, None
    return off, math.expm1(math.sqrt(math.fsum(known) / len(known) * (1 - share) / 2))


def _names(verdict: Verdict) -> set[str]:
    return {cell.name for cell in verdict.cells}


def _conclusion(run: Evaluation, other: Evaluation, alone: Verdict) -> Kind:
    """What a run amounts to; when one of the two was asked for a single workload, in the cells of both."""
    shared = {cell.name for cell in run.cells} & {cell.name for cell in other.cells}
    if not shared or (run.workload is None and other.workload is None):
        return alone.kind
    return decide([_part(run, shared)]).kind


def _part(run: Evaluation, names: set[str]) -> Evaluation:
    """A run as if these were all of the contract's cells."""
    return run.model_copy(
        update={
            "workload": None,
            "cells": [cell for cell in run.cells if cell.name in names],
            "scored_cells": [name for name in run.scored_cells if name in names],
            "confirmation": _part(run.confirmation, names) if run.confirmation else None,
        }
    )


def _differences(one: Evaluation, other: Evaluation, *, outside: bool) -> list[Difference]:
    was, now = _conditions(one), _conditions(other)
    if outside:
        was, now = was | _state(one), now | _state(other)
    return [Difference(name, was[name], now[name]) for name in was if name in now and was[name] != now[name]]


def _conditions(run: Evaluation) -> dict[str, str]:
    """What should be the same in every run of a candidate, as a reader is told it."""
    machine, gpu, states = run.environment, run.environment.gpu, _states(run)
    found = {
        "device": machine.device,
        "architecture": machine.architecture,
        "cores": str(machine.cpus),
        "threads a worker": str(machine.worker_threads),
        "Python": machine.python,
        "torch": machine.torch,
        **machine.packages,
        "system": machine.system,
        "sandbox": machine.sandbox,
        "judge": run.judge_digest[:7],
        "contract": f"version {run.contract_version}, {run.contract_digest[:7]}",
        "baselines": ", ".join(sorted(one.name for one in run.baselines if one.state == "available")) or "none",
    }
    if run.cells:
        found["bar"] = ", ".join(sorted({cell.bar for cell in run.cells}))
    if gpu:
        found |= {"driver": gpu.driver, "CUDA": gpu.cuda, "memory": f"{gpu.memory_bytes / 2**30:.0f} GiB"}
    if states:
        found["throttled by"] = ", ".join(sorted({why for state in states for why in state.throttled})) or "nothing"
        found["foreign processes"] = str(max(state.foreign_processes for state in states))
    return found


def _state(run: Evaluation) -> dict[str, str]:
    """What is a little different each time, and is worth naming where figures are."""
    gpu, states = run.environment.gpu, _states(run)
    found: dict[str, str] = {}
    if gpu:
        found["bandwidth"] = f"{tera(gpu.bytes_per_second)} TB/s"
        found["matrix operations"] = f"{tera(gpu.operations_per_second)} T/s"
    if states:
        found["SM clock"] = f"{span([state.sm_mhz for state in states])} MHz"
        found["temperature"] = f"{span([state.celsius for state in states])} °C"
    return found


def _states(run: Evaluation) -> list[GpuState]:
    gpus = [one.environment.gpu for one in run.runs if one.environment.gpu]
    return [state for gpu in gpus for state in (gpu.before, gpu.after) if state]


def _moved(one: Evaluation, other: Evaluation) -> Moved | None:
    was, now = _times(one), _times(other)
    shared = [name for name in was if name in now]
    if not shared:
        return None
    candidate, bar = (stats.geometric_mean([now[name][i] / was[name][i] for name in shared]) - 1 for i in (0, 1))
    return Moved(candidate, bar)


def _times(run: Evaluation) -> dict[str, tuple[float, float]]:
    """Medians of candidate and bar in ns, by cell; the bar's as it counts, never above its time alone."""
    found: dict[str, list[Cell]] = {}
    for cell in (cell for one in run.runs for cell in one.cells):
        found.setdefault(cell.name, []).append(cell)
    return {name: _medians(cells) for name, cells in found.items()}


def _medians(cells: Sequence[Cell]) -> tuple[float, float]:
    candidate = stats.median([ns for cell in cells for one in cell.rounds for ns in one.candidate_ns])
    bar = stats.median([ns for cell in cells for one in cell.rounds for ns in one.baseline_ns])
    clean = [stats.median(time.clean_ns) for cell in cells for time in cell.baselines if time.baseline == cell.bar]
    return candidate, min([bar, *clean])
