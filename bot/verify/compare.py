"""Compare outputs with what they must be: value classes first, then errors in noise units against calibrated limits.

An error is a row's root mean square difference over its unit. Statistics are taken over the rows of each group (heads,
sequences) and over all rows; conditions read `not (error <= limit)`, so that NaN never passes. Pure.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from bot.contract.schema import Contract, CountAxis, Limit, Output, Sizes, TotalAxis, axis_of
from bot.evaluation import Counterexample
from bot.verify.oracle import TORCH, Expected, Tensor

MEDIAN_ROWS = 16
P99_ROWS = 64
"""Groups with fewer rows are judged by their maximum alone: with three noisy runs a unit has heavy tails."""

Statistic = Literal["median", "p99", "maximum", "class", "bar"]
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
    """`margin`: the largest error over its limit; above 1 (or not a number) `counterexample` says where."""

    errors: tuple[OutputError, ...]
    margin: float
    counterexample: Counterexample | None


@dataclass(frozen=True, slots=True)
class _Worst:
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


def judge(contract: Contract, expected: Expected, outputs: Mapping[str, Tensor], setting: Setting) -> Judgement:
    """All outputs of one call against the oracle."""
    errors: list[OutputError] = []
    margin, counterexample = 0.0, None
    for name, spec in contract.outputs.items():
        rounded = expected.exact[name].to(TORCH[spec.dtype]).double()
        got = outputs[name].double()
        element = _class_mismatch(rounded, got)
        if element is not None:
            worst = _Worst(math.inf, "class", "all", None, None, element[:-1])
            example = _example(setting, name, worst, element, rounded, got)
            return Judgement(tuple(errors), math.inf, example)
        rows = row_errors(expected.exact[name], got, expected.units[name])
        error, worst = _judge_rows(contract, name, rows, setting)
        errors.append(replace(error, relative_l2=_relative_l2(expected.exact[name], got)))
        if not (worst.margin <= margin):
            margin = worst.margin
            if not (margin <= 1.0):
                column = int((got[worst.row] - rounded[worst.row]).abs().argmax())
                counterexample = _example(setting, name, worst, (*worst.row, column), rounded, got)
    return Judgement(tuple(errors), margin, counterexample)


def row_errors(exact: Tensor, got: Tensor, units: Tensor) -> Tensor:
    """Error of each row in units; elements that are not finite in `exact` have passed the class check and count 0."""
    if exact.shape[-1] == 0:
        return torch.zeros(exact.shape[:-1], dtype=torch.float64)
    difference = torch.where(torch.isfinite(exact) & torch.isfinite(got), got - exact, 0.0)
    return difference.square().mean(dim=-1).sqrt() / units


def _class_mismatch(exact: Tensor, got: Tensor) -> tuple[int, ...] | None:
    """Index of the first element whose class (finite, +inf, −inf, NaN) differs."""
    wrong = torch.isnan(exact) != torch.isnan(got)
    infinite = torch.isinf(exact) | torch.isinf(got)
    wrong |= infinite & (exact != got) & ~(torch.isnan(exact) & torch.isnan(got))
    if not bool(wrong.any()):
        return None
    return tuple(int(i) for i in wrong.nonzero()[0])


def groups_of(contract: Contract, output: Output, axes: Sizes) -> tuple[list[str], Tensor]:
    """Names of the groups, every head × sequence as the contract's axes say, and each row's group by number."""
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


def _judge_rows(contract: Contract, name: str, rows: Tensor, setting: Setting) -> tuple[OutputError, _Worst]:
    limit = setting.limits[name]
    bounds: dict[Statistic, float] = {"maximum": limit.maximum, "p99": limit.p99, "median": limit.median}
    worst = _Worst(0.0, "maximum", "all", 0.0, limit.maximum, ())
    largest: dict[Statistic, float] = {"median": 0.0, "p99": 0.0, "maximum": 0.0}
    names, group = groups_of(contract, contract.outputs[name], setting.axes)
    whole = torch.zeros_like(group)
    for labels, numbers in ((["all"], whole), (names, group)):
        for statistic, values, places in _statistics(rows, numbers, len(labels)):
            margins = values / bounds[statistic]
            # A value that is no number is the worst there is; argmax puts it first.
            at = int(np.argmax(margins))
            largest[statistic] = max(largest[statistic], float(values[at]))
            if not (margins[at] <= worst.margin):
                value, place = float(values[at]), _unravel(int(places[at]), rows.shape)
                worst = _Worst(float(margins[at]), statistic, labels[at], value, bounds[statistic], place)
    octaves = _octaves(contract, contract.outputs[name], rows, setting.axes)
    error = OutputError(name, largest["median"], largest["p99"], largest["maximum"], worst.group, 0.0, octaves)
    return error, worst


def _statistics(rows: Tensor, group: Tensor, groups: int) -> Iterator[tuple[Statistic, Floats, Ints]]:
    """Each statistic that some group has rows enough for: its value in each group (0 where it has not), and the flat
    index of the group's largest row."""
    values, numbers = rows.numpy().ravel(), group.numpy().ravel()
    if values.size == 0:
        return
    order = np.lexsort((values, numbers))
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
            value = ranked[low] + (spot - low) * (ranked[high] - ranked[low])
            yield statistic, np.where(enough, value, 0.0), places


def _unravel(place: int, shape: Sequence[int]) -> tuple[int, ...]:
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
    finite = torch.isfinite(exact)
    norm = float(torch.where(finite, exact, 0.0).square().sum().sqrt())
    return float(torch.where(finite, got - exact, 0.0).square().sum().sqrt()) / norm if norm else 0.0


def _example(
    setting: Setting, output: str, worst: _Worst, index: Sequence[int], exact: Tensor, got: Tensor
) -> Counterexample:
    return Counterexample(
        where=setting.where,
        axes=dict(setting.axes),
        output=output,
        group=worst.group,
        statistic=worst.statistic,
        error_units=worst.value if worst.value is None or math.isfinite(worst.value) else None,
        limit_units=worst.limit,
        index=list(index),
        candidate=f"{float(got[tuple(index)]):.6g}",
        oracle=f"{float(exact[tuple(index)]):.6g}",
    )


def noise_level(contract: Contract, expected: Expected) -> dict[str, float]:
    """For each output, its rows' noise units over its size, both as root mean squares: a relative noise level."""
    levels = {}
    for name in contract.outputs:
        size = torch.nan_to_num(expected.exact[name]).square().mean().sqrt()
        noise = expected.units[name].square().mean().sqrt()
        levels[name] = float(noise / size) if float(size) > 0 else float("inf")
    return levels


BAR_SLACK = 4.0
"""A call compared with the bar alone has no noise unit of its own; the cell's level serves, and draws of one cell
differ in it by about this factor. The full check per cell and round has no such slack."""


def against_bar(
    contract: Contract,
    outputs: Mapping[str, Tensor],
    bar: Mapping[str, Tensor],
    level: Mapping[str, float],
    *,
    where: str,
    axes: Sizes,
) -> Counterexample | None:
    """A timed call's outputs against the bar's on the same inputs, per group; the limit is the sum of both sides'."""
    for name, spec in contract.outputs.items():
        got, held = outputs[name].double(), bar[name].double()
        setting = Setting(where, axes, contract.limits)
        limit = 2 * contract.limits[name].p99 * BAR_SLACK
        element = _class_mismatch(held, got)
        if element is not None:
            return _example(setting, name, _Worst(math.inf, "class", "all", None, None, ()), element, held, got)
        difference = torch.where(torch.isfinite(held), got - held, 0.0)
        names, group = groups_of(contract, spec, axes)
        flat, count = group.flatten(), len(names)
        errors, sizes = difference.square().mean(-1).flatten(), torch.nan_to_num(held).square().mean(-1).flatten()
        totals = [torch.bincount(flat, weights=x, minlength=count).sqrt() for x in (errors, sizes)]
        # Both are sums over the same rows, so that their ratio is that of the root mean squares.
        beyond = ~(totals[0] <= limit * level[name] * totals[1])
        if bool(beyond.any()):
            at = int(beyond.nonzero()[0])
            inside = torch.where(flat == at, errors, -1.0)
            row = _unravel(int(inside.argmax()), group.shape)
            place = [*row, int(difference[row].abs().argmax())]
            units = float(totals[0][at] / (level[name] * totals[1][at]))
            return _example(setting, name, _Worst(units / limit, "bar", names[at], units, limit, ()), place, held, got)
    return None
