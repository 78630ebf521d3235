"""Compare outputs with what they must be: value classes first, then errors in noise units against calibrated limits.

An error is a row's root mean square difference over its unit; of a set of ids, how far it strays from the cut (cut.py).
Statistics are taken over the rows of each group (heads, sequences) and over all rows; conditions read
`not (error <= limit)`, so that NaN never passes. Pure.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch

from bot.contract.schema import Contract, CountAxis, Limit, Output, Sizes, TotalAxis, axis_of
from bot.evaluation import Counterexample, Statistic
from bot.verify import cut
from bot.verify.cut import Element
from bot.verify.oracle import TORCH, Expected, Tensor, finite_in, mean_square, unit_dtype

MEDIAN_ROWS = 16
P99_ROWS = 64
"""Groups with fewer rows are judged by their maximum alone: with three noisy runs a unit has heavy tails."""

_QUANTILES: tuple[tuple[Statistic, float, int], ...] = (("p99", 0.99, P99_ROWS), ("median", 0.5, MEDIAN_ROWS))
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class OutputError:
    """Errors of one output: the worst group's statistics in units, and the rows they came from."""

    output: str
    median: float
    p99: float
    maximum: float
    worst_group: str
    relative_l2: float
    octaves: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Judgement:
    """`margin`: the largest error over its limit; above 1 `counterexample` says where. Infinite: there is no distance,
    and nothing of that output or of those after it is in `errors`."""

    errors: tuple[OutputError, ...]
    margin: float
    counterexample: Counterexample | None


@dataclass(frozen=True, slots=True)
class Worst:
    """The statistic furthest beyond its limit, and the row that shows it."""

    margin: float
    statistic: Statistic
    group: str
    value: float | None
    limit: float | None
    row: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Setting:
    """Which call is judged: its name for reasons, its axis values, the limits that apply."""

    where: str
    axes: Sizes
    limits: Mapping[str, Limit]


def judge(
    contract: Contract, expected: Expected, outputs: Mapping[str, Tensor], setting: Setting, *, ledger: bool = True
) -> Judgement:
    """All outputs of one call against the oracle. Without `ledger` the errors lack what only that shows: the distance
    as a whole, and by token position."""
    errors: list[OutputError] = []
    margin, counterexample = 0.0, None
    for name, spec in contract.outputs.items():
        exact = expected.exact[name]
        answer = _answer(spec, exact, outputs[name].to(exact.device))
        element = answer.misfit()
        if element is not None:
            worst = Worst(math.inf, answer.misfits, "all", None, None, ())
            return Judgement(tuple(errors), math.inf, shown(setting, name, worst, element))
        rows = answer.errors(expected.units[name])
        error, worst = judge_rows(contract, name, rows, setting)
        if math.isinf(worst.margin):
            return Judgement(tuple(errors), math.inf, shown(setting, name, worst, answer.furthest(worst.row)))
        if ledger:
            octaves = _octaves(contract, spec, rows.cpu(), setting.axes)
            error = replace(error, relative_l2=answer.relative_l2(), octaves=octaves)
        errors.append(error)
        if not (worst.margin <= margin):
            margin = worst.margin
            if not (margin <= 1.0):
                counterexample = shown(setting, name, worst, answer.furthest(worst.row))
    return Judgement(tuple(errors), margin, counterexample)


def rounded(spec: Output, exact: Tensor, shape: Sequence[int]) -> Tensor:
    """What the oracle would hand in: its value in the output's type, or the ids of its largest scores."""
    return (cut.best(exact, shape[-1]) if spec.compare == "set_at_cut" else exact).to(TORCH[spec.dtype])


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of numbers beside what they must be."""

    misfits: ClassVar[Statistic] = "class"
    exact: Tensor
    rounded: Tensor
    got: Tensor

    def misfit(self) -> Element | None:
        """The first element of another class."""
        at = class_mismatch(self.rounded, self.got)
        return None if at is None else _element(at, self.rounded, self.got)

    def errors(self, units: Tensor) -> Tensor:
        """Of each row, in units."""
        return row_errors(self.exact, self.got, units)

    def furthest(self, row: tuple[int, ...]) -> Element:
        """What is most wrong in a row."""
        return _element((*row, furthest_column(self.rounded[row], self.got[row])), self.rounded, self.got)

    def relative_l2(self) -> float:
        """Distance over size."""
        return _relative_l2(self.exact, self.got)


@dataclass(frozen=True, slots=True)
class _Sets:
    """Sets of ids beside the scores of all ids."""

    misfits: ClassVar[Statistic] = "set"
    scores: Tensor
    ids: Tensor

    def misfit(self) -> Element | None:
        """The first element for which a row is no set of ids."""
        return cut.misfit(self.scores, self.ids)

    def errors(self, units: Tensor) -> Tensor:
        """Of each row, in units."""
        return cut.distances(self.scores, self.ids) / units

    def furthest(self, row: tuple[int, ...]) -> Element:
        """What is most wrong in a row."""
        return cut.furthest(self.scores, self.ids, row)

    def relative_l2(self) -> float:
        """Distance of the chosen scores from the largest ones, in order, over their size."""
        largest = cut.best(self.scores, self.ids.shape[-1])
        return _relative_l2(cut.scores_of(self.scores, largest), cut.scores_of(self.scores, self.ids))


def _answer(spec: Output, exact: Tensor, got: Tensor) -> _Rows | _Sets:
    if spec.compare == "set_at_cut":
        return _Sets(exact, got.long())
    return _Rows(exact, exact.to(TORCH[spec.dtype]).double(), got.double())


def row_errors(exact: Tensor, got: Tensor, units: Tensor) -> Tensor:
    """Error of each row in units; elements that are not finite have passed the class check and do not count."""
    difference = got - exact
    if exact.shape[-1] and _all_finite(difference):
        return difference.square().mean(-1).sqrt() / units
    counted = torch.isfinite(exact) & torch.isfinite(got)
    return mean_square(difference, counted).sqrt() / units


def _all_finite(values: Tensor) -> bool:
    """Whether no element is an infinity or NaN: then, but for sums that overflow, their sum is finite. One pass, where
    asking each element takes several; a no may be wrong and costs only time."""
    return math.isfinite(float(values.sum()))


def class_mismatch(exact: Tensor, got: Tensor) -> tuple[int, ...] | None:
    """Index of the first element whose class (finite, +inf, −inf, NaN) differs."""
    if _all_finite(exact) and _all_finite(got):
        return None
    wrong = torch.isnan(exact) != torch.isnan(got)
    infinite = torch.isinf(exact) | torch.isinf(got)
    wrong |= infinite & (exact != got) & ~(torch.isnan(exact) & torch.isnan(got))
    if not bool(wrong.any()):
        return None
    return tuple(int(i) for i in wrong.nonzero()[0])


def groups_of(contract: Contract, output: Output, axes: Sizes) -> tuple[list[str], Tensor]:
    """Names of the groups, every head × sequence as the contract's axes say, and each row's group by number."""
    key = (id(contract), id(output), repr(sorted(axes.items())))
    if key not in _GROUPS:
        if len(_GROUPS) >= _GROUPS_KEPT:
            _GROUPS.clear()
        # The contract stays alive with its entry, so that its identity stays its own.
        _GROUPS[key] = (contract, *_groups(contract, output, axes))
    _, names, group = _GROUPS[key]
    return names, group


_GROUPS: dict[tuple[int, int, str], tuple[Contract, list[str], Tensor]] = {}
_GROUPS_KEPT = 256
"""Groups are asked for in every comparison, and an exam has few shapes."""


def _groups(contract: Contract, output: Output, axes: Sizes) -> tuple[list[str], Tensor]:
    shape = contract.shape(output, axes)[:-1]
    names, group = [""], torch.zeros(shape, dtype=torch.long)
    for position, extent in enumerate(output.shape[:-1]):
        labels, index = _labels(contract, output, axes, axis_of(extent), shape[position])
        if not labels:
            continue
        view = [1] * len(shape)
        view[position] = shape[position]
        group = group * len(labels) + index.reshape(view)
        names = [f"{name}, {label}".strip(", ") for name in names for label in labels]
    return names, group


def _labels(contract: Contract, output: Output, axes: Sizes, name: str | None, extent: int) -> tuple[list[str], Tensor]:
    """Into which groups one axis divides the rows, and where each of its steps belongs; none when it does not."""
    axis = contract.axes.get(name or "")
    steps = torch.arange(extent)
    if isinstance(axis, TotalAxis):
        lengths = axes[axis.total_of]
        assert isinstance(lengths, list)  # noqa: S101 - load.py checked it
        numbers = torch.arange(len(lengths))
        return [f"sequence {i}" for i in range(len(lengths))], numbers.repeat_interleave(
            torch.tensor(lengths, dtype=torch.long)
        )
    if isinstance(axis, CountAxis):
        return [f"sequence {i}" for i in range(extent)], steps
    if name in output.groups:
        return [f"{name}={i}" for i in range(extent)], steps
    return [], steps


def judge_rows(contract: Contract, name: str, rows: Tensor, setting: Setting) -> tuple[OutputError, Worst]:
    """The errors of one output's rows, in units, and the one that is furthest over its limit.

    `rows`: as `row_errors` gives them.
    """
    # A value that is no number is the worst there is.
    rows = torch.where(torch.isnan(rows), torch.inf, rows)
    limit = setting.limits[name]
    bounds: dict[Statistic, float] = {"maximum": limit.maximum, "p99": limit.p99, "median": limit.median}
    worst = Worst(0.0, "maximum", "all", 0.0, limit.maximum, ())
    largest: dict[Statistic, float] = {"median": 0.0, "p99": 0.0, "maximum": 0.0}
    names, group = groups_of(contract, contract.outputs[name], setting.axes)
    whole = torch.zeros_like(group)
    for labels, numbers in ((["all"], whole), (names, group)):
        for statistic, values, places in _statistics(rows, numbers, len(labels)):
            margins = values / bounds[statistic]
            at = int(np.argmax(margins))
            largest[statistic] = max(largest[statistic], float(values[at]))
            if not (margins[at] <= worst.margin):
                value, place = float(values[at]), unravel(int(places[at]), rows.shape)
                worst = Worst(float(margins[at]), statistic, labels[at], value, bounds[statistic], place)
    return OutputError(name, largest["median"], largest["p99"], largest["maximum"], worst.group, 0.0, ()), worst


def _statistics(rows: Tensor, group: Tensor, groups: int) -> Iterator[tuple[Statistic, Floats, Ints]]:
    """Each statistic that some group has rows enough for: its value in each group (0 where it has not), and the flat
    index of the group's largest row."""
    if rows.numel() == 0:
        return
    order, values, numbers = _order(rows, group), rows.cpu().numpy().ravel(), group.numpy().ravel()
    ranked, counts = values[order], np.bincount(numbers, minlength=groups)
    starts = np.cumsum(counts) - counts
    lasts = np.maximum(starts + counts - 1, 0)
    places = order[lasts]
    yield "maximum", np.where(counts > 0, ranked[lasts], 0.0), places
    for statistic, share, least in _QUANTILES:
        enough = counts >= least
        if enough.any():
            spot = starts + share * np.maximum(counts - 1, 0)
            low = np.floor(spot).astype(np.int64)
            high = np.minimum(low + 1, lasts)
            low = np.minimum(low, lasts)
            with np.errstate(invalid="ignore"):
                value = ranked[low] + (spot - low) * (ranked[high] - ranked[low])
            # Beside an infinite error the difference is no number.
            value = np.where(np.isnan(value), np.inf, value)
            yield statistic, np.where(enough, value, 0.0), places


def _order(rows: Tensor, group: Tensor) -> Ints:
    """Flat indices by group, and by value within. A GPU sorts a million rows in a millisecond, a CPU in 0.2 s."""
    if rows.device.type == "cpu":
        return np.lexsort((rows.numpy().ravel(), group.numpy().ravel()))
    by_value = torch.argsort(rows.flatten(), stable=True)
    by_group = torch.argsort(group.flatten().to(rows.device)[by_value], stable=True)
    found: Ints = by_value[by_group].cpu().numpy()
    return found


def unravel(place: int, shape: Sequence[int]) -> tuple[int, ...]:
    """Index from a flat one. torch's own function imports sympy on its first call: 0.9 s."""
    return tuple(int(i) for i in np.unravel_index(place, tuple(shape)))


def _octaves(contract: Contract, output: Output, rows: Tensor, axes: Sizes) -> tuple[float, ...]:
    """Median error by position in the sequence: 0–15, 16–31, 32–63, … tokens."""
    first = contract.axes.get(axis_of(output.shape[0]) or "")
    if not isinstance(first, TotalAxis) or rows.numel() == 0:
        return ()
    lengths = axes[first.total_of]
    assert isinstance(lengths, list)  # noqa: S101 - load.py checked it
    position = torch.cat([torch.arange(n) for n in lengths])
    octave = torch.log2(position.clamp_min(8).double() / 8).floor().long()
    return tuple(float(rows[octave == i].median()) for i in range(int(octave.max()) + 1) if bool((octave == i).any()))


def _relative_l2(exact: Tensor, got: Tensor) -> float:
    finite = torch.isfinite(exact) & torch.isfinite(got)
    norm = float(torch.where(finite, exact, 0.0).square().sum().sqrt())
    return float(torch.where(finite, got - exact, 0.0).square().sum().sqrt()) / norm if norm else 0.0


def furthest_column(held: Tensor, got: Tensor) -> int:
    """The element of a row with the largest difference."""
    return int(torch.where(torch.isfinite(held) & torch.isfinite(got), got - held, 0.0).abs().argmax())


def _element(index: Sequence[int], exact: Tensor, got: Tensor) -> Element:
    at = tuple(index)
    return Element(at, f"{float(got[at]):.6g}", f"{float(exact[at]):.6g}")


def example(
    setting: Setting, output: str, worst: Worst, index: Sequence[int], exact: Tensor, got: Tensor
) -> Counterexample:
    """What a refusal shows: the element at `index` of both tensors."""
    return shown(setting, output, worst, _element(index, exact, got))


def shown(setting: Setting, output: str, worst: Worst, element: Element) -> Counterexample:
    """What a refusal shows, of an element that is known."""
    return Counterexample(
        where=setting.where,
        axes=dict(setting.axes),
        output=output,
        group=worst.group,
        statistic=worst.statistic,
        error_units=worst.value if worst.value is None or math.isfinite(worst.value) else None,
        limit_units=worst.limit,
        index=list(element.index),
        candidate=element.candidate,
        oracle=element.oracle,
    )


def noise_level(contract: Contract, expected: Expected) -> dict[str, float]:
    """For each output, its rows' noise units over its size, both as root mean squares: a relative noise level. Where
    nothing has a size it is 0: such a draw says nothing of others."""
    levels = {}
    for name, spec in contract.outputs.items():
        exact = expected.exact[name].flatten()
        size = mean_square(exact, finite_in(exact, unit_dtype(spec))).sqrt()
        noise = expected.units[name].square().mean().sqrt()
        levels[name] = float(noise / size) if float(size) > 0 else 0.0
    return levels
