"""Measure the faithful variants over many draws of everything, and propose limits from the worst that was met."""

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from bot.contract.appraisal import Calibrated, ControlMargin, Measured, Order, Step, Worst
from bot.contract.load import LoadedContract
from bot.contract.schema import Contract, Limit
from bot.errors import DataError, Problem
from bot.verify.appraise import Watch, draw_all, finite
from bot.verify.calls import Failure
from bot.verify.compare import Judgement
from bot.verify.oracle import load_oracle
from bot.verify.philox import Stream
from bot.verify.trials import Answer, Drawn, Findings, Trials, described, margin_of

ROOM = 1.5
"""Limits are this many times the worst of the faithful variants, rounded up to two digits."""
Statistic = Literal["median", "p99", "maximum"]
STATISTICS: tuple[Statistic, ...] = ("median", "p99", "maximum")


@dataclass
class Record:
    """The worst of each statistic so far, by limit and kernel; and every draw of each control."""

    contract: Contract
    worst: dict[tuple[str, str], dict[Statistic, Worst]] = field(default_factory=dict)
    controls: dict[str, list[list[tuple[Drawn, Judgement]]]] = field(default_factory=dict)

    def note(self, file: str, drawn: Drawn, judgement: Judgement) -> None:
        """A faithful variant's errors on one case."""
        for error in judgement.errors:
            held = self.worst.setdefault((limit_path(drawn, self.contract, error.output), file), {})
            for statistic in STATISTICS:
                value = getattr(error, statistic)
                if statistic not in held or not (value <= held[statistic].value):
                    held[statistic] = Worst(value=round(value, 4), where=drawn.case.where)

    def measured(self) -> list[Measured]:
        """Limit by limit, kernel by kernel."""
        return [
            Measured(path=path, file=file, median=worst["median"], p99=worst["p99"], maximum=worst["maximum"])
            for (path, file), worst in sorted(self.worst.items())
        ]


def limit_path(drawn: Drawn, contract: Contract, output: str) -> str:
    """Where the limit stands that an output is judged by at a place: the contract's, or the probe's own."""
    own = any(p.name == drawn.place.recipe.name and output in p.limits for p in contract.probes)
    return f"{drawn.place.path}.limits.{output}" if own else f"limits.{output}"


def calibrate(loaded: LoadedContract, order: Order, salt: str, watch: Watch) -> Calibrated:
    """Measure `order.draws` draws of every cell, hidden draw and probe.

    Raises:
        DataError: the oracle does not load, or there is no faithful variant to measure.
        InfrastructureError: the kernels could not be run at all.
    """
    begun, contract = time.monotonic(), loaded.contract
    if not contract.faithful:
        raise DataError(f"contracts/{contract.name}", [Problem("faithful", "no honest variant to measure")])
    root = Stream.from_salt(bytes.fromhex(salt), loaded.digest, "calibration")
    record, found, cases = Record(contract), Findings(), 0
    with Trials(loaded, order.sandbox, root.child("trials")) as trials:
        oracle = load_oracle(loaded.folder)
        for number in range(order.draws):
            watch(Step(done=number, total=order.draws, text=f"draw {number + 1} of {order.draws}"))
            drawn = draw_all(loaded, order, oracle, root.child("draw", number), found)
            cases += len(drawn)
            for index, file in enumerate(contract.faithful):
                _measure(record, file, f"faithful[{index}]", trials.ask(file, drawn), found)
            for index, control in enumerate(contract.controls):
                asked = [case for case in drawn if set(case.place.names) & set(control.fails)]
                judged = _judged(f"controls[{index}]", trials.ask(control.file, asked), found)
                record.controls.setdefault(control.file, []).append(judged)
    proposed = propose(contract, record.measured(), order)
    return Calibrated(
        problems=found.problems(),
        draws=order.draws,
        cases=cases,
        measured=record.measured(),
        proposed=proposed,
        controls=[_control(record, file, draws, proposed) for file, draws in record.controls.items() if any(draws)],
        seconds=round(time.monotonic() - begun, 1),
        salt=salt,
    )


def _judged(path: str, answers: Iterable[Answer], found: Findings) -> list[tuple[Drawn, Judgement]]:
    """Answers that can be measured; what did not answer is a finding."""
    judged = []
    for drawn, answer in answers:
        if isinstance(answer, Failure):
            found.add(path, f"does not run: {answer.text}", drawn.case.where)
        else:
            judged.append((drawn, answer))
    return judged


def _measure(record: Record, file: str, path: str, answers: Iterable[Answer], found: Findings) -> None:
    for drawn, judgement in _judged(path, answers, found):
        if math.isfinite(judgement.margin):
            record.note(file, drawn, judgement)
        else:
            found.add(path, f"has no distance from the oracle: {described(judgement)}", drawn.case.where, alike=file)


def limits_of(contract: Contract) -> dict[str, Limit]:
    """All limits of a contract by path: its own, and those of single probes."""
    limits = {f"limits.{output}": limit for output, limit in contract.limits.items()}
    for index, probe in enumerate(contract.probes):
        limits |= {f"probes[{index}].limits.{output}": limit for output, limit in probe.limits.items()}
    return limits


def propose(contract: Contract, measured: Iterable[Measured], order: Order) -> dict[str, Limit]:
    """Limits with room above the worst variant. A statistic that no group was large enough for keeps its limit."""
    kernels: dict[str, list[Measured]] = {}
    for entry in measured:
        kernels.setdefault(entry.path, []).append(entry)
    proposed = {}
    for path, entries in kernels.items():
        current, least = limits_of(contract)[path], 0.0
        values: dict[Statistic, float] = {}
        for statistic in STATISTICS:
            worst = max(getattr(entry, statistic).value for entry in entries)
            least = max(least, rounded_up(ROOM * worst) if worst > 0 else getattr(current, statistic))
            values[statistic] = least
        proposed[path] = Limit(**values, floor_ulps=current.floor_ulps, source=_source(path, entries, order))
    return proposed


def rounded_up(value: float) -> float:
    """To two significant digits, never down."""
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / step - 1e-9) * step:.2g}")


def _source(path: str, entries: Iterable[Measured], order: Order) -> str:
    """The measurement behind a limit, in one sentence."""
    what = f"every {order.device} cell, probe and hidden draw" if path.startswith("limits") else "this probe"
    figures = [
        f"{entry.file.removeprefix('faithful/').removesuffix('.py')} at most "
        f"{entry.median.value:.2g}, {entry.p99.value:.2g}, {entry.maximum.value:.2g} ({entry.maximum.where})"
        for entry in entries
    ]
    return f"{order.draws} draws of {what}: {'; '.join(figures)}; limits are {ROOM:g} times the worst, rounded up"


def _control(
    record: Record, file: str, draws: Iterable[list[tuple[Drawn, Judgement]]], proposed: Mapping[str, Limit]
) -> ControlMargin:
    """A control's best place in its worst draw, under the limits as they are and as proposed."""
    current = limits_of(record.contract)
    worst = min(
        (max(_margins(record.contract, case, proposed, current) for case in draw) for draw in draws if draw),
        key=lambda entry: entry[0],
    )
    return ControlMargin(file=file, current=finite(worst[1]), proposed=finite(worst[0]), where=worst[2])


def _margins(
    contract: Contract, case: tuple[Drawn, Judgement], proposed: Mapping[str, Limit], current: Mapping[str, Limit]
) -> tuple[float, float, str]:
    """Proposed margin, present margin, place."""
    drawn, judgement = case
    if math.isinf(judgement.margin):
        return math.inf, math.inf, drawn.case.where
    paths = {error.output: limit_path(drawn, contract, error.output) for error in judgement.errors}
    under = (
        max(
            margin_of(error, limits.get(paths[error.output], current[paths[error.output]]))
            for error in judgement.errors
        )
        for limits in (proposed, current)
    )
    new, old = under
    return new, old, drawn.case.where
