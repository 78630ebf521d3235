"""Which part of which input reaches which output: change inputs part by part, differently in each independent slice.

A slice is a head of a sequence, or a row where a contract has neither. Inputs are cut in eight parts along their
tokens, or along their last axis where they have none. What is not read, or is read where it must not be, shows as a
map.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from bot.contract.distribution import Distribution, bounded
from bot.contract.schema import Contract, CountAxis, Sizes, TensorInput, TotalAxis, axis_of
from bot.evaluation import Influence
from bot.verify.cases import Case, foreign_family
from bot.verify.draws import draw
from bot.verify.oracle import Expected, Tensor
from bot.verify.philox import Stream

PARTS = 8
TOUCHED = 2 / 3
"""Share of the slices that a check changes; in the others nothing may move."""
AUDIBLE = 4.0
"""Noise units by which the oracle must answer for the candidate's answer to tell anything."""

Indices = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Layout:
    """Of each element of an input: its slice by two numbers (sequence or row, group) and its part. Arrays that
    broadcast to the input's shape; −1: the input does not have that axis."""

    axis: str
    sequence: Indices
    group: Indices
    part: Indices


def changeable(contract: Contract, case: Case) -> list[str]:
    """Inputs that are new in every call and drawn."""
    return [
        name
        for name, spec in contract.inputs.items()
        if isinstance(spec, TensorInput)
        and spec.lifetime == "call"
        and spec.offsets_of is None
        and isinstance(case.inputs[name], np.ndarray)
        and case.inputs[name].size  # type: ignore[union-attr] # an array, as just asked
    ]


def measured(contract: Contract) -> list[str]:
    """Outputs that are numbers: a set has no change to measure."""
    return [name for name, spec in contract.outputs.items() if spec.compare == "rows"]


def layout(contract: Contract, spec: TensorInput, axes: Sizes) -> Layout:
    """Where an input is cut."""
    shape = contract.shape(spec, axes)
    grouped = {name for output in contract.outputs.values() for name in output.groups}
    ragged = any(isinstance(axis, TotalAxis) for axis in contract.axes.values())
    none = np.full((1,) * len(shape), -1, dtype=np.int64)
    sequence, group, part, axis = none, none, none, ""
    for position, extent in enumerate(spec.shape):
        name = axis_of(extent) or ""
        kind = contract.axes.get(name)
        view = [1] * len(shape)
        view[position] = shape[position]
        steps = np.arange(shape[position], dtype=np.int64)
        if isinstance(kind, TotalAxis):
            lengths = axes[kind.total_of]
            assert isinstance(lengths, list)  # noqa: S101 - consistency.py checked it
            sequence = np.repeat(np.arange(len(lengths)), lengths).reshape(view)
            inside = [np.arange(n, dtype=np.int64) * PARTS // max(n, 1) for n in lengths]
            part, axis = np.concatenate([*inside, np.zeros(0, dtype=np.int64)]).reshape(view), "tokens"
        elif isinstance(kind, CountAxis):
            sequence = steps.reshape(view)
        elif name in grouped:
            group = (np.maximum(group, 0) * shape[position] + steps.reshape(view)).astype(np.int64)
        elif not ragged and not grouped and position == 0 and len(shape) > 1:
            sequence = steps.reshape(view)
    if not axis:
        view = [1] * len(shape)
        view[-1] = shape[-1]
        part = (np.arange(shape[-1], dtype=np.int64) * PARTS // max(shape[-1], 1)).reshape(view)
        axis = axis_of(spec.shape[-1]) or "last axis"
    return Layout(axis, sequence, group, part)


def perturbed(contract: Contract, case: Case, stream: Stream) -> Case:
    """The inputs with secret parts changed in a secret two thirds of the slices, some to another family's values."""
    foreign = foreign_family(contract, stream)
    inputs = dict(case.inputs)
    touched = _touched(contract, case, stream.child("touched"))
    for name in changeable(contract, case):
        own = stream.child("input", name)
        source = foreign if own.child("foreign").below(2)[0] and name in foreign else case.recipe.draws
        where = layout(contract, _tensor(contract, name), case.axes)
        mask = _part(where, int(own.child("part").below(PARTS)[0])) & touched(where)
        inputs[name] = _replaced(contract, case, name, source, mask, own)
    return replace(case, inputs=inputs, needles=True)


def _touched(contract: Contract, case: Case, stream: Stream) -> Callable[[Layout], Mask]:
    """Which slices change. An input that is shared by several changes where one of them does."""
    layouts = [layout(contract, _tensor(contract, name), case.axes) for name in changeable(contract, case)]
    rows = 1 + max((int(x.sequence.max(initial=0)) for x in layouts), default=0)
    groups = 1 + max((int(x.group.max(initial=0)) for x in layouts), default=0)
    order = stream.shuffled(rows * groups)
    count = max(1, min(round(TOUCHED * rows * groups), rows * groups - 1))
    chosen = np.zeros(rows * groups, dtype=np.bool_)
    chosen[order[:count]] = True
    table: Mask = chosen.reshape(rows, groups)

    def mask(where: Layout) -> Mask:
        found: Mask = table
        found = found if (where.group >= 0).all() else np.any(found, axis=1, keepdims=True)
        found = found if (where.sequence >= 0).all() else np.any(found, axis=0, keepdims=True)
        return np.asarray(found[np.maximum(where.sequence, 0), np.maximum(where.group, 0)])

    return mask


def _part(where: Layout, offset: int) -> Mask:
    """Another part in each slice."""
    wanted = (offset + np.maximum(where.sequence, 0) + 3 * np.maximum(where.group, 0)) % PARTS
    mask: Mask = where.part == wanted
    return mask


def _replaced(
    contract: Contract, case: Case, name: str, source: Mapping[str, Distribution], mask: Mask, stream: Stream
) -> npt.NDArray[np.generic]:
    held, spec = case.inputs[name], _tensor(contract, name)
    assert isinstance(held, np.ndarray)  # noqa: S101 - changeable() gave the name
    dist = bounded(source[name], contract.bound(spec, case.axes))
    fresh = draw(dist, held.shape, spec.dtype, stream.child("values"))
    return np.where(np.broadcast_to(mask, held.shape), fresh, held)


def _tensor(contract: Contract, name: str) -> TensorInput:
    spec = contract.inputs[name]
    assert isinstance(spec, TensorInput)  # noqa: S101 - changeable() gave the name
    return spec


Outputs = Mapping[str, Tensor]
Answer = Callable[[Case], tuple[Outputs, Outputs] | None]
"""Exact and given outputs for a case, in float64; None when there was no answer."""


def influence_map(
    contract: Contract, case: Case, units: Outputs, before: tuple[Outputs, Outputs], answer: Answer, stream: Stream
) -> list[Influence]:
    """How a kernel answers to each input, one at a time. `before`: exact and given outputs for the case itself. Ends
    early, with the inputs it has finished, when there is no answer."""
    found = []
    # What has no tokens first: one or two calls each, where tokens take more.
    names = sorted(
        changeable(contract, case), key=lambda n: layout(contract, _tensor(contract, n), case.axes).axis == "tokens"
    )
    for name in names if measured(contract) else []:
        row = influence_of(contract, case, name, units, before, answer, stream.child(name))
        if row is None:
            break
        found.append(row)
    return found


def reach(contract: Contract, case: Case, expected: Expected, exact: Callable[[Case], Outputs], stream: Stream) -> int:
    """In how many parts of the outputs the oracle answers when all inputs change in their first part: how far this draw
    remembers."""
    inputs = dict(case.inputs)
    names = changeable(contract, case)
    tokens = [n for n in names if layout(contract, _tensor(contract, n), case.axes).axis == "tokens"]
    for name in tokens or names:
        where = layout(contract, _tensor(contract, name), case.axes)
        inputs[name] = _replaced(contract, case, name, case.recipe.draws, where.part == 0, stream.child(name))
    after = exact(replace(case, inputs=inputs))
    heard = 0
    for output in measured(contract):
        block = _Block(contract, output, case.axes, expected.units[output])
        moved = _moved(expected.exact[output], after[output])
        block.add(moved, moved, 0, {})
        heard += sum(share is not None for row in block.result()[0] for share in row)
    return heard


def influence_of(
    contract: Contract,
    case: Case,
    name: str,
    units: Outputs,
    before: tuple[Outputs, Outputs],
    answer: Answer,
    stream: Stream,
) -> Influence | None:
    """How a kernel answers to one input, part by part of it and of the outputs; None when there was no answer."""
    where = layout(contract, _tensor(contract, name), case.axes)
    slices = _slices(where)
    blocks = {output: _Block(contract, output, case.axes, units[output]) for output in measured(contract)}
    covered: set[int] = set()
    for offset in range(PARTS):
        changed = {(offset + ahead) % PARTS for ahead in slices.values()}
        if changed <= covered:
            continue
        covered |= changed
        inputs = {**case.inputs, name: _replaced(contract, case, name, case.recipe.draws, _part(where, offset), stream)}
        after = answer(replace(case, inputs=inputs))
        if after is None:
            return None
        for output, block in blocks.items():
            wanted, given = (_moved(one[output], two[output]) for one, two in zip(before, after, strict=True))
            block.add(wanted, given, offset, slices)
    shares, leaks = zip(*(block.result() for block in blocks.values()), strict=True)
    return Influence(
        input=name,
        axis=where.axis,
        outputs=list(blocks),
        shares=[[cell for rows in shares for cell in rows[part]] for part in range(PARTS)],
        leaks=[[cell for rows in leaks for cell in rows[part]] for part in range(PARTS)],
    )


def _moved(before: Tensor, after: Tensor) -> Tensor:
    return torch.nan_to_num(after - before, posinf=0.0, neginf=0.0)


class _Block:
    """Sums over one output: part of the input by part of the output, in units."""

    def __init__(self, contract: Contract, output: str, axes: Sizes, unit: Tensor) -> None:
        """Learn where the output's slices and parts are."""
        spec = contract.outputs[output]
        where = layout(contract, TensorInput(shape=spec.shape, dtype=spec.dtype), axes)
        shape = contract.shape(spec, axes)
        rows, groups = np.maximum(where.sequence, 0), np.maximum(where.group, 0)
        self.rows, self.groups = int(rows.max(initial=0)) + 1, int(groups.max(initial=0)) + 1
        number = (rows * self.groups + groups) * PARTS + where.part
        self.number = torch.from_numpy(np.broadcast_to(number, shape).copy()).flatten()
        self.unit = unit.unsqueeze(-1)
        self.limit = contract.limits[output].maximum
        self.along = np.zeros((PARTS, PARTS))
        self.own = np.zeros((PARTS, PARTS))
        self.count = np.zeros((PARTS, PARTS))
        self.stray = np.zeros((PARTS, PARTS), dtype=np.bool_)

    def add(self, wanted: Tensor, given: Tensor, offset: int, slices: Mapping[tuple[int, int], int]) -> None:
        """Count one change of the input: in each slice another part of it was changed."""
        wanted, given = wanted / self.unit, given / self.unit
        along, own, stray, count = (
            torch.bincount(self.number, weights=values.flatten(), minlength=self.rows * self.groups * PARTS)
            .reshape(self.rows, self.groups, PARTS)
            .numpy()
            for values in (given * wanted, wanted.square(), given.square(), torch.ones_like(wanted))
        )
        for row in range(self.rows):
            for group in range(self.groups):
                # A slice of the output that the input does not tell apart is reached by all of its slices.
                ahead = slices.get((row, group), slices.get((row, 0), slices.get((0, group), 0)))
                part = (offset + ahead) % PARTS
                self.along[part] += along[row, group]
                self.own[part] += own[row, group]
                self.count[part] += count[row, group]
                still = (own[row, group] == 0) & (count[row, group] > 0)
                loud = stray[row, group] > self.limit**2 * count[row, group]
                self.stray[part] |= still & loud

    def result(self) -> tuple[list[list[float | None]], list[list[bool]]]:
        """Shares and leaks, part of the input by part of the output."""
        heard = self.own >= AUDIBLE**2 * np.maximum(self.count, 1)
        shares = self.along / np.where(heard, self.own, 1.0)
        return (
            [
                [_round(float(s)) if h else None for s, h in zip(row, hears, strict=True)]
                for row, hears in zip(shares, heard, strict=True)
            ],
            self.stray.tolist(),
        )


def _slices(where: Layout) -> dict[tuple[int, int], int]:
    """Of each slice of an input, by how many parts it is ahead of the first."""
    rows, groups = int(where.sequence.max(initial=-1)) + 1, int(where.group.max(initial=-1)) + 1
    return {(row, group): (row + 3 * group) % PARTS for row in range(max(rows, 1)) for group in range(max(groups, 1))}


def _round(share: float) -> float | None:
    return round(max(-9.99, min(9.99, share)), 2) if math.isfinite(share) else None


def exact_and_given(expected: Expected, outputs: Outputs) -> tuple[Outputs, Outputs]:
    """What `influence_map` compares."""
    return expected.exact, {name: value.double() for name, value in outputs.items()}
