"""Facts of an exam as text for the model. Pure. Tells what went wrong and by how much, and never what a later exam
will use: no salt, no secret axis value, no limit.
"""

import re

from bot import telling
from bot.contract.schema import Contract
from bot.evaluation import Counterexample, Evaluation, Refusal, Smallest, Statistic
from bot.sanitize import plain_line, printable, redact, shorten
from bot.verdict import CellVerdict, Interval, Verdict

REASON_LIMIT = 4000

_WRONG: dict[Statistic, str] = {
    "median": "the median of its error is too large",
    "p99": "the 99 % quantile of its error is too large",
    "maximum": "the maximum of its error is too large",
    "class": "finite values, infinities and NaN do not stand where the oracle has them",
    "bar": "it is too far from the bar's output on the same inputs",
    "leak": "it changes although only inputs were changed that must not matter to it",
    "relation": "it differs from its own answer to the same question put otherwise",
    "set": "an element does not belong to the set",
}
_EXACT = frozenset[Statistic]({"leak", "relation", "set"})
"""Statistics of which an honest kernel has no typical error of one unit."""


def feedback(evaluation: Evaluation, contract: Contract) -> str:
    """What a check found."""
    if evaluation.refusal is not None:
        return _refused(evaluation.refusal, contract)
    stages = ", ".join(f"{s.name} ({s.done})" for s in evaluation.stages if s.status == "passed")
    return f"Accepted so far. Checks passed: {stages or 'none'}. Not timed: `time` measures it."


def timing(evaluation: Evaluation, verdict: Verdict, contract: Contract) -> str:
    """What a timing run found: ratios are bar ÷ candidate, above 1 is faster."""
    if evaluation.refusal is not None:
        return _refused(evaluation.refusal, contract)
    lines = [f"Verdict of this run: {verdict.kind}."]
    if verdict.speedup is not None:
        lines.append(f"Speedup over the bar, geometric mean: {_interval(verdict.speedup)}.")
    lines += [_cell(cell) for cell in verdict.cells]
    lines += [plain_line(reason) for reason in verdict.reasons]
    return "\n".join(lines)


def is_secret(where: str, contract: Contract) -> bool:
    """Whether a place of an exam is a hidden draw. Everything not named in the open part of the contract counts."""
    words = set(re.findall(r"\w+", where))
    opened = {w.name for w in contract.workloads} | {p.name for p in contract.probes}
    return bool(words & {h.name for h in contract.hidden}) or not words & opened


def _refused(refusal: Refusal, contract: Contract) -> str:
    lines = [f"Refused: {refusal.kind} at stage {refusal.stage}."]
    # Nothing is drawn in the build stage, so its text can hold no draw.
    if refusal.stage != "build" and is_secret(refusal.where, contract):
        lines.append("It failed on a secret draw: sizes and lengths from the legal domain that nobody was told.")
        lines += [_plain_inputs(refusal.smallest)] if refusal.smallest else []
    else:
        lines += [f"Where: {plain_line(refusal.where)}"] if refusal.where else []
        # The verifier's own sentence may state a limit, so a counterexample is told from its fields.
        shown = refusal.counterexample
        lines.append(_counterexample(shown) if shown else shorten(printable(redact(refusal.reason)), REASON_LIMIT))
        lines += _smallest(refusal.smallest, contract) if refusal.smallest else []
    lines += [f"It also fails the probe {probe.name}: {plain_line(probe.breaks)}" for probe in refusal.diagnosis]
    # The map cuts the cell it was taken on into equal parts: of an open cell that tells nothing new.
    if refusal.influence and not is_secret(refusal.influence_where, contract):
        where = plain_line(refusal.influence_where)
        told = "how far each part of an output follows when one part of one input is changed"
        lines.append(f"Influence in {where}: {told}.")
        lines += telling.influence_lines(refusal.influence)
    return "\n".join(lines)


def _smallest(found: Smallest, contract: Contract) -> list[str]:
    """The smallest counterexample; without its sizes where they come from a secret draw."""
    told = [] if is_secret(found.counterexample.where, contract) else [_counterexample(found.counterexample)]
    return ["The smallest input found that it still gets wrong:", *told, _plain_inputs(found)]


def _plain_inputs(found: Smallest) -> str:
    return f"It is still wrong with these inputs: {telling.held(found) or 'as drawn'}."


def _counterexample(found: Counterexample) -> str:
    honest = "" if found.statistic in _EXACT else "; an honest kernel: about 1"
    error = "" if found.error_units is None else f" ({found.error_units:.3g} noise units{honest})"
    group = f", group {plain_line(found.group)}" if found.group else ""
    return (
        f"Output {found.output}{group}: {_WRONG[found.statistic]}{error}.\n"
        f"Worst element {found.index}: candidate {plain_line(found.candidate)}, "
        f"{telling.other(found.statistic)} {plain_line(found.oracle)}.\n"
        f"Axes: {', '.join(f'{name}={value}' for name, value in found.axes.items())}"
    )


def _cell(cell: CellVerdict) -> str:
    ratio = "no ratio" if cell.ratio is None else _interval(cell.ratio)
    return f"- {cell.workload}/{cell.regime} against {cell.bar}: {ratio}, {cell.direction}"


def _interval(interval: Interval) -> str:
    return f"{interval.mid:.3f}x ({interval.low:.3f} to {interval.high:.3f}, {interval.samples} pairs)"
