"""Which draws an exam makes, and the inputs of one draw. A recipe says what to draw; a stream makes it concrete."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from bot.contract.distribution import Distribution, Param, bounded
from bot.contract.schema import (
    Contract,
    Device,
    DType,
    Hidden,
    HiddenInt,
    HiddenLengths,
    HiddenRange,
    Limit,
    Probe,
    RaggedAxis,
    Relation,
    ScalarInput,
    Sizes,
    TensorInput,
    VarAxis,
    Workload,
    axis_of,
)
from bot.verify.draws import Array, draw, parameter
from bot.verify.philox import Stream

if TYPE_CHECKING:
    import torch  # A verifier starts its worker before it imports torch itself.

Held: TypeAlias = "Array | torch.Tensor"
"""A tensor's values: in storage form on the host, or, large ones of a GPU exam, on the device in their own type."""
Inputs: TypeAlias = "dict[str, Held | float | int | None]"

HOST_ELEMENTS = 1 << 22
"""A GPU exam draws, compares and keeps tensors of at least this many elements on the device, others as on a CPU."""
NEEDLE_SHARE = 3
"""One draw in this many is plain, the others carry needles: a kernel that turns exact as soon as anything looks
unusual must meet ordinary data as well (design.md, Needles)."""
NEEDLE_LENGTH = (0.002, 0.02)
"""Needles take 0.2 to 2 % of the leading axis, at least one step."""
STRETCH_LENGTH = (0.1, 0.4)
STRETCH_SHARE = 4
"""One needle in this many is a stretch of 10 to 40 %: a kernel that forgets where a sample of the data looks ordinary
passes short needles, since what it forgets about them is as short (tests/exploits/history_truncation.py)."""
NEEDLE_ROWS = 48
"""Tensors with fewer leading steps carry none: one step would be no small part."""


TAILS = 8
"""Kernels take a row in vectors of 2, 4 or 8 elements; each tail is code of its own."""
ABSENT_SHARE = 3
"""One hidden draw in this many lacks an optional input."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """One kind of draw: a cell, a probe, or hidden axis values."""

    kind: Literal["cell", "probe", "hidden"]
    name: str
    axes: Sizes
    draws: Mapping[str, Distribution]
    values: Mapping[str, Param]
    absent: frozenset[str]
    limits: Mapping[str, Limit]
    breaks: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """The concrete inputs of one call, in storage form, with the axis values they have."""

    recipe: Recipe
    axes: Sizes
    inputs: Inputs = field(repr=False)
    needles: bool

    @property
    def where(self) -> str:
        """What a reason calls it."""
        return self.recipe.name


def tensor_in(inputs: Inputs, name: str) -> Held:
    """A tensor among the inputs, which is there."""
    held = inputs[name]
    if held is None or isinstance(held, float | int):
        raise TypeError(f"`{name}` is no tensor")
    return held


class Drawer(Protocol):
    """Where tensors are drawn; the bits are the same everywhere."""

    def draw(
        self, dist: Distribution, shape: tuple[int, ...], dtype: DType, stream: Stream, *, beside: "Held | None" = None
    ) -> Held:
        """One tensor of this distribution, which lies where `beside` does."""

    def replace(self, held: Held, start: int, part: Held, heads: npt.NDArray[np.bool_] | None) -> None:
        """Write `part` into `held` from step `start` of the leading axis on, where `heads` of the next one says."""


class HostDrawer:
    """Draws arrays."""

    def draw(
        self, dist: Distribution, shape: tuple[int, ...], dtype: DType, stream: Stream, *, beside: object = None
    ) -> Held:
        """One tensor of this distribution, in storage form."""
        del beside  # All that lies on the host lies in one place.
        return draw(dist, shape, dtype, stream)

    def replace(self, held: Held, start: int, part: Held, heads: npt.NDArray[np.bool_] | None) -> None:
        """Write `part` into `held` from step `start` of the leading axis on, where `heads` of the next one says."""
        assert isinstance(held, np.ndarray)  # noqa: S101 - drawn here
        assert isinstance(part, np.ndarray)  # noqa: S101
        window = held[start : start + len(part)]
        chosen = True if heads is None else heads.reshape(1, -1, *([1] * (held.ndim - 2)))
        held[start : start + len(part)] = np.where(chosen, part, window)


HOST = HostDrawer()


def cell_recipe(contract: Contract, workload: Workload, regime: str) -> Recipe:
    """A workload in a regime."""
    family = contract.regimes[regime]
    return Recipe(
        kind="cell",
        name=f"{workload.name}/{regime}",
        axes=workload.axes,
        draws={**contract.draws, **family.draws},
        values=family.values,
        absent=frozenset(family.absent),
        limits=contract.limits,
    )


def probe_recipe(contract: Contract, probe: Probe) -> Recipe:
    """A probe: its regime with the probe's own draws in place of some."""
    family = contract.regimes[probe.regime]
    return Recipe(
        kind="probe",
        name=probe.name,
        axes=probe.axes,
        draws={**contract.draws, **family.draws, **probe.draws},
        values={**family.values, **probe.values},
        absent=frozenset(family.absent) | frozenset(probe.absent),
        limits={**contract.limits, **probe.limits},
        breaks=probe.breaks,
    )


def hidden_recipes(contract: Contract, device: Device, stream: Stream) -> Iterator[Recipe]:
    """Draws at secret axis values, the regimes taking turns from a secret start. Any of these may lack optional inputs:
    kernels treat them apart from the others, and sizes and what is absent meet nowhere else."""
    regimes = list(contract.regimes)
    optional = [name for name, spec in contract.inputs.items() if isinstance(spec, TensorInput) and spec.optional]
    for hidden in contract.hidden:
        if device not in hidden.device:
            continue
        start = int(stream.child(hidden.name, "regime").below(len(regimes))[0])
        for number in range(hidden.draws):
            own = stream.child(hidden.name, number)
            axes = hidden_axes(contract, hidden, own, turns=(stream.child(hidden.name, "tails"), number))
            regime = regimes[(start + number) % len(regimes)]
            workload = Workload(name=hidden.name, device=[device], axes=axes, scored=False)
            recipe = cell_recipe(contract, workload, regime)
            missing = {name for name in optional if own.child("absent", name).below(ABSENT_SHARE)[0] == 0}
            yield replace(recipe, kind="hidden", name=hidden.name, absent=recipe.absent | missing)


def relation_recipe(contract: Contract, relation: Relation, stream: Stream) -> Recipe:
    """The whole question of a relation, at secret sizes."""
    axes = hidden_axes(contract, relation, stream.child("axes"))
    family = contract.regimes[relation.regime]
    draws = {**contract.draws, **family.draws}
    limits, breaks = contract.limits, relation.breaks
    return Recipe("hidden", relation.name, axes, draws, family.values, frozenset(family.absent), limits, breaks)


def hidden_axes(
    contract: Contract, hidden: Hidden | Relation, stream: Stream, *, turns: tuple[Stream, int] | None = None
) -> Sizes:
    """Secret sizes. `turns`: what orders the tails of sizes from a range, and which of the draws this is."""
    axes: Sizes = {}
    order, number = turns or (stream, 0)
    for name, choice in hidden.axes.items():
        match choice:
            case HiddenInt(choice=options):
                axes[name] = options[int(stream.child(name).below(len(options))[0])]
            case HiddenRange(between=[low, high]):
                axis = contract.axes[name]
                assert isinstance(axis, VarAxis)  # noqa: S101 - load.py checked it
                tails = order.child("tail", name).shuffled(TAILS)
                tail, step = tails[number % TAILS], axis.multiple
                axes[name] = step * _from_range(low // step, high // step, tail, stream.child(name))
            case HiddenLengths():
                ragged = contract.axes[name]
                assert isinstance(ragged, RaggedAxis)  # noqa: S101 - load.py checked it
                axes[name] = _hidden_lengths(choice, ragged, stream.child(name))
    return axes


def _from_range(low: int, high: int, tail: int, stream: Stream) -> int:
    """A size of some number of binary places, which division by `TAILS` leaves `tail` of where the range has one."""
    places = low.bit_length() + int(stream.child("places").below(high.bit_length() - low.bit_length() + 1)[0])
    least, most = max(low, 1 << places - 1), min(high, (1 << places) - 1)
    size = least + int(stream.child("size").below(most - least + 1)[0])
    near = size - size % TAILS + tail
    return next((n for n in (near, near + TAILS, near - TAILS) if low <= n <= high), size)


def _hidden_lengths(choice: HiddenLengths, ragged: RaggedAxis, stream: Stream) -> list[int]:
    low, high = choice.total
    total = low + int(stream.child("total").below(high - low + 1)[0])
    low, high = choice.count
    count = low + int(stream.child("count").below(high - low + 1)[0])
    lengths = composition(total, count, ragged.min_length, stream.child("parts"))
    if choice.edges and count > 2 and ragged.min_length == 0:
        # An empty and a one-token sequence, their tokens given to the longest.
        edge = stream.child("edge").shuffled(count)[:2]
        longest = max((i for i in range(count) if i not in edge), key=lengths.__getitem__)
        for place, length in zip(edge, (0, min(1, total)), strict=True):
            lengths[longest] += lengths[place] - length
            lengths[place] = length
    return lengths


def composition(total: int, count: int, least: int, stream: Stream) -> list[int]:
    """`count` lengths of at least `least` that sum to `total`, cut points uniform."""
    spare = total - count * least
    if spare < 0:
        least, spare = 0, total
    cuts = [0, *sorted(int(x) for x in stream.below(spare + 1, count - 1)), spare] if count > 1 else [0, spare]
    return [b - a + least for a, b in pairwise(cuts)]


def make_case(
    contract: Contract,
    recipe: Recipe,
    stream: Stream,
    *,
    static: Stream,
    lengths: Literal["same", "other"] = "same",
    drawer: Drawer = HOST,
) -> Case:
    """The inputs of one call. `static` feeds inputs that keep their value for a worker's life.

    `lengths`: a secret permutation of the workload's own, or others with the same total and count.
    """
    axes = _with_lengths(contract, recipe, stream.child("lengths"), lengths)
    inputs: Inputs = {}
    for name, spec in contract.inputs.items():
        match spec:
            case ScalarInput():
                value = parameter(recipe.values.get(name, spec.value), stream.child("value", name))
                inputs[name] = int(value) if spec.dtype == "int" else value
            case TensorInput(offsets_of=str(ragged)):
                inputs[name] = np.cumsum([0, *_list(axes[ragged])], dtype=np.int64)
            case TensorInput() if name in recipe.absent:
                inputs[name] = None
            case TensorInput():
                shape, dist = contract.shape(spec, axes), bounded(recipe.draws[name], contract.bound(spec, axes))
                if spec.lifetime == "static":
                    inputs[name] = _drawn_once(drawer, dist, shape, spec.dtype, static.child("input", name))
                else:
                    inputs[name] = drawer.draw(dist, shape, spec.dtype, stream.child("input", name))
    needles = recipe.kind == "cell" and bool(stream.child("needles").below(NEEDLE_SHARE)[0])
    if needles:
        _add_needles(contract, axes, inputs, stream.child("needle"), drawer)
    return Case(recipe, axes, inputs, needles)


STATICS_KEPT = 8
"""So many inputs that keep their value are shared by the cases that have them: weights are gigabytes, and the calls of
a round are drawn before it."""
_statics: dict[tuple[str, str, tuple[int, ...], DType, Stream], Held] = {}


def _drawn_once(drawer: Drawer, dist: Distribution, shape: tuple[int, ...], dtype: DType, stream: Stream) -> Held:
    """A static input; nobody writes into it."""
    key = (type(drawer).__qualname__, repr(dist), shape, dtype, stream)
    held = _statics.pop(key) if key in _statics else drawer.draw(dist, shape, dtype, stream)
    if len(_statics) == STATICS_KEPT:
        del _statics[next(iter(_statics))]
    _statics[key] = held
    return held


def _list(value: int | list[int]) -> list[int]:
    return value if isinstance(value, list) else [value]


def _with_lengths(contract: Contract, recipe: Recipe, stream: Stream, mode: Literal["same", "other"]) -> Sizes:
    axes = dict(recipe.axes)
    if recipe.kind != "cell":
        return axes
    for name, axis in contract.axes.items():
        if isinstance(axis, RaggedAxis):
            given = _list(axes[name])
            if mode == "other" and len(given) > 1:
                axes[name] = composition(sum(given), len(given), axis.min_length, stream.child(name))
            else:
                axes[name] = [given[i] for i in stream.child(name).shuffled(len(given))]
    return axes


def foreign_family(contract: Contract, stream: Stream) -> Mapping[str, Distribution]:
    """How a regime or probe drawn from all of them draws the inputs."""
    families: list[Mapping[str, Distribution]] = [{**contract.draws, **r.draws} for r in contract.regimes.values()]
    families += [{**contract.draws, **contract.regimes[p.regime].draws, **p.draws} for p in contract.probes]
    return families[int(stream.child("family").below(len(families))[0])]


def _add_needles(contract: Contract, axes: Sizes, inputs: Inputs, stream: Stream, drawer: Drawer) -> None:
    """Replace a secret range of the leading axis, in a secret half of the next one, by another family's values."""
    foreign = foreign_family(contract, stream)
    span = NEEDLE_LENGTH if stream.child("stretch").below(STRETCH_SHARE)[0] else STRETCH_LENGTH
    for name, spec in contract.inputs.items():
        held = inputs[name]
        if not isinstance(spec, TensorInput) or held is None or isinstance(held, float | int) or spec.offsets_of:
            continue
        if spec.lifetime != "call" or len(spec.shape) < 2 or held.shape[0] < NEEDLE_ROWS or name not in foreign:
            continue
        place = stream.child("place", axis_of(spec.shape[0]) or "")
        length = max(1, round(held.shape[0] * place.child("length").between(*span)))
        start = int(place.child("start").below(held.shape[0] - length + 1)[0])
        dist = bounded(foreign[name], contract.bound(spec, axes))
        part = drawer.draw(dist, (length, *held.shape[1:]), spec.dtype, stream.child("part", name), beside=held)
        heads = None
        if held.ndim > 2:
            heads = stream.child("heads").below(2, held.shape[1]).astype(bool)
            heads[int(stream.child("head").below(held.shape[1])[0])] = True
        drawer.replace(held, start, part, heads)
