"""Controls made harder to catch: gated ones cheat only where a call looks ordinary, graded ones only a little.

Pure: source text in, source text out. A composed kernel holds the text of a faithful variant and of a control, both run
in name spaces of their own, and decides call by call (gated) or mixes their outputs (graded).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from bot.contract.load import LoadedContract
from bot.contract.schema import (
    FLOATING,
    Contract,
    Control,
    HiddenAxis,
    HiddenInt,
    HiddenLengths,
    Sizes,
    TensorInput,
    Workload,
)
from bot.verify.cases import cell_recipe, make_case
from bot.verify.draws import values_of
from bot.verify.philox import Stream

SEVERITY = (0.003, 1.0)
"""Least and largest share of a graded control in its outputs, drawn log-uniformly."""
DRAWS = 2
"""Draws a regime from which the ordinary range of a statistic is learnt."""
SLACK = 1.5
"""Ranges are wider by this factor than what those draws show, so that nearly all draws of the regime lie inside."""
SAMPLE_STEPS = (8, 64)
"""A sample takes one leading step in this many."""
PREFIX_STEPS = (4, 32)
"""A prefix has this many leading steps."""

Range = tuple[float, float]


@dataclass(frozen=True, slots=True)
class SampleGate:
    """Open while every `step`-th row of an input, from `start`, has an ordinary mean magnitude."""

    input: str
    start: int
    step: int
    ordinary: Range


@dataclass(frozen=True, slots=True)
class PrefixGate:
    """Open while the first rows of an input have an ordinary mean magnitude."""

    input: str
    rows: int
    ordinary: Range


@dataclass(frozen=True, slots=True)
class StatisticGate:
    """Open while the whole of an input has an ordinary mean magnitude."""

    input: str
    ordinary: Range


@dataclass(frozen=True, slots=True)
class HabitGate:
    """Open once an earlier call had a mean magnitude of the same power of two in this input."""

    input: str


@dataclass(frozen=True, slots=True)
class ShapeGate:
    """Open at these shapes of these inputs: each entry of `shapes` is one call's, in the order of `inputs`."""

    inputs: tuple[str, ...]
    shapes: tuple[tuple[tuple[int, ...], ...], ...]


Gate = SampleGate | PrefixGate | StatisticGate | HabitGate | ShapeGate


@dataclass(frozen=True, slots=True)
class Variant:
    """One composed kernel: which control (`file`), how it hides, in words, and its text; `severity` of graded ones."""

    file: str
    kind: Literal["gated", "graded"]
    description: str
    source: str
    severity: float | None = None


_PARTS = '''\
"""{title}"""

import inspect
import math

import torch


def part(text):
    names = {{}}
    exec(compile(text, "part", "exec"), names)
    return names["run"]


honest = part({honest!r})
cheat = part({control!r})
'''

_GATED = '''

def level(rows):
    """Mean magnitude; None where there is nothing to look at."""
    return rows.double().abs().mean().item() if rows is not None and rows.numel() else None


{condition}


def run(*arguments):
    named = dict(zip(inspect.signature(honest).parameters, arguments))
    (cheat if ordinary(named) else honest)(*arguments)
'''

_GRADED = """

def bits(held):
    return held.reshape(-1).view(torch.uint8)


def run(*arguments):
    cheated = [x.clone() if torch.is_tensor(x) else x for x in arguments]
    cheat(*cheated)
    honest(*arguments)
    for right, wrong in zip(arguments, cheated):
        # What differs now is an output. lerp is exact at both ends; a NaN of the cheat counts as zero, and as one where
        # zero is right: there would be no wrong number to go towards.
        if not torch.is_tensor(right) or torch.equal(bits(right), bits(wrong)):
            continue
        if right.is_floating_point():
            aim = torch.where(wrong.isnan(), (right == 0).double(), wrong.double())
            between = torch.lerp(right.double(), aim, {severity!r})
            right.copy_(torch.where(right == wrong, right.double(), between))
        else:
            # Of whole numbers there is nothing between two: the last rows are the cheat's, since what is taken from a
            # first one is right there.
            rows = right.shape[0] - math.ceil({severity!r} * right.shape[0])
            right[rows:] = wrong[rows:]
"""

_WITHIN = """\
def ordinary(named):
    held = named[{input!r}]
    found = level(None if held is None else held{rows})
    return found is not None and {low!r} <= found <= {high!r}"""

_HABIT = """\
seen = set()


def ordinary(named):
    found = level(named[{input!r}])
    if found is None:
        return False
    power = torch.frexp(torch.tensor(found)).exponent.item()
    known = power in seen
    seen.add(power)
    return known"""

_SHAPES = """\
SHAPES = {shapes!r}


def ordinary(named):
    return tuple(None if named[n] is None else tuple(named[n].shape) for n in {inputs!r}) in SHAPES"""


def gated(honest: str, control: str, gate: Gate) -> str:
    """A kernel that is `control` while the gate is open and `honest` otherwise."""
    parts = _PARTS.format(title=f"Cheats {describe(gate)}.", honest=honest, control=control)
    return parts + _GATED.format(condition=_condition(gate))


def describe(gate: Gate) -> str:
    """When the gate is open, in words."""
    match gate:
        case SampleGate():
            return f"while one row in {gate.step} of {gate.input} has {_usual(gate.ordinary)}"
        case PrefixGate():
            return f"while the first {gate.rows} rows of {gate.input} have {_usual(gate.ordinary)}"
        case StatisticGate():
            return f"while {gate.input} has {_usual(gate.ordinary)}"
        case HabitGate():
            return f"once {gate.input} had a mean magnitude of the same power of two before"
        case ShapeGate():
            return "at the shapes of timed workloads"


def _condition(gate: Gate) -> str:
    match gate:
        case SampleGate(input=name, start=start, step=step, ordinary=(low, high)):
            return _WITHIN.format(input=name, rows=f"[{start}::{step}]", low=low, high=high)
        case PrefixGate(input=name, rows=rows, ordinary=(low, high)):
            return _WITHIN.format(input=name, rows=f"[:{rows}]", low=low, high=high)
        case StatisticGate(input=name, ordinary=(low, high)):
            return _WITHIN.format(input=name, rows="", low=low, high=high)
        case HabitGate(input=name):
            return _HABIT.format(input=name)
        case ShapeGate(inputs=inputs, shapes=shapes):
            return _SHAPES.format(inputs=inputs, shapes=shapes)


def graded(honest: str, control: str, severity: float) -> str:
    """A kernel whose outputs are `honest` plus `severity` times the difference of `control` from it."""
    parts = _PARTS.format(title=f"Cheats by {severity:.3g} of the way.", honest=honest, control=control)
    return parts + _GRADED.format(severity=severity)


def draw_variants(loaded: LoadedContract, stream: Stream, share: float) -> list[Variant]:
    """A secret `share` of all gated and graded variants, at least one of each kind of gate and one graded; 1.0: all."""
    contract = loaded.contract
    if not contract.controls or not contract.faithful:
        return []
    samples = _samples(contract, stream.child("samples"))
    families: dict[str, list[Variant]] = {}
    for control in contract.controls:
        own = stream.child(control.file)
        faithful = contract.faithful[int(own.child("faithful").below(len(contract.faithful))[0])]
        honest, wrong = loaded.read(faithful), loaded.read(control.file)
        missing = _absent_where_it_fails(contract, control)
        there = {name: parts for name, parts in samples.items() if name not in missing}
        gates = [*_gates(there, own.child("gates"))]
        if _fails_at_timed_shapes(contract, control):
            gates.append(_timed_shapes(contract))
        for gate in gates:
            variant = Variant(control.file, "gated", describe(gate), gated(honest, wrong, gate))
            families.setdefault(type(gate).__name__, []).append(variant)
        severity = math.exp(own.child("severity").between(math.log(SEVERITY[0]), math.log(SEVERITY[1])))
        variant = Variant(control.file, "graded", f"by {severity:.3g}", graded(honest, wrong, severity), severity)
        families.setdefault("graded", []).append(variant)
    return [variant for name, family in families.items() for variant in _some(family, share, stream.child(name))]


def _some(family: list[Variant], share: float, stream: Stream) -> list[Variant]:
    count = max(1, round(share * len(family)))
    return [family[i] for i in sorted(stream.shuffled(len(family))[:count])]


def _gates(samples: Mapping[str, list[npt.NDArray[np.float64]]], stream: Stream) -> Iterator[Gate]:
    """One gate of each kind, its input and parameters drawn. Only long inputs have samples and prefixes."""
    anything = sorted(samples)
    long = [name for name in anything if min(len(x) for x in samples[name]) >= SAMPLE_STEPS[1]]
    if long:
        step, name = _whole(stream.child("step"), SAMPLE_STEPS), _pick(long, stream.child("sample"))
        start = int(stream.child("start").below(step)[0])
        yield SampleGate(name, start, step, _ordinary([x[start::step] for x in samples[name]]))
        rows, name = _whole(stream.child("rows"), PREFIX_STEPS), _pick(long, stream.child("prefix"))
        yield PrefixGate(name, rows, _ordinary([x[:rows] for x in samples[name]]))
    if anything:
        name = _pick(anything, stream.child("statistic"))
        yield StatisticGate(name, _ordinary(samples[name]))
        yield HabitGate(_pick(anything, stream.child("habit")))


def _pick(names: list[str], stream: Stream) -> str:
    return names[int(stream.below(len(names))[0])]


def _whole(stream: Stream, bounds: tuple[int, int]) -> int:
    low, high = bounds
    return low + int(stream.below(high - low + 1)[0])


def _timed_shapes(contract: Contract) -> ShapeGate:
    inputs = [(n, s) for n, s in contract.inputs.items() if isinstance(s, TensorInput)]
    shapes = {tuple(contract.shape(s, w.axes) for _, s in inputs): None for w in contract.workloads if w.scored}
    return ShapeGate(tuple(n for n, _ in inputs), tuple(shapes))


def _fails_at_timed_shapes(contract: Contract, control: Control) -> bool:
    """Whether one of the places that must see a control can have the shapes of a timed workload. A control that fails
    at other shapes alone is right at the timed ones, and gated by them right everywhere."""
    sizes = [contract.sizes(w.axes) for w in contract.workloads if w.scored]
    tensors = [spec for spec in contract.inputs.values() if isinstance(spec, TensorInput)]

    def shapes(axes: Sizes) -> list[tuple[int, ...]]:
        return [contract.shape(spec, axes) for spec in tensors]

    probes = [p.axes for p in contract.probes if p.name in control.fails and not p.absent]
    hidden = [h.axes for h in contract.hidden if h.name in control.fails]
    return (
        any(name in contract.regimes for name in control.fails)
        or any(shapes(axes) == shapes(known) for axes in probes for known in sizes)
        or any(all(_may_be(axes[name], known[name]) for name in axes) for axes in hidden for known in sizes)
    )


def _absent_where_it_fails(contract: Contract, control: Control) -> frozenset[str]:
    """Inputs that are absent in every place that must see a control: gated by how they look, it is honest there."""
    regimes = {name: frozenset(regime.absent) for name, regime in contract.regimes.items()}
    places = [absent for name, absent in regimes.items() if name in control.fails]
    places += [regimes[p.regime] | frozenset(p.absent) for p in contract.probes if p.name in control.fails]
    places += [frozenset() for hidden in contract.hidden if hidden.name in control.fails]
    return frozenset.intersection(*places) if places else frozenset()


def _may_be(hidden: HiddenAxis, value: int | list[int]) -> bool:
    """Whether a hidden axis can be expected to come out like this: not that of a range; of lengths, total and count."""
    match hidden, value:
        case HiddenInt(choice=options), int():
            return value in options
        case HiddenLengths(total=[least, most], count=[fewest, greatest]), list():
            return least <= sum(value) <= most and fewest <= len(value) <= greatest
        case _:
            return False


def _samples(contract: Contract, stream: Stream) -> dict[str, list[npt.NDArray[np.float64]]]:
    """Magnitudes of each floating input that is new in every call, in a few draws of every regime of the smallest
    scored workload."""
    floating = [
        name
        for name, spec in contract.inputs.items()
        if isinstance(spec, TensorInput) and spec.dtype in FLOATING and spec.lifetime == "call"
    ]
    smallest = min((w for w in contract.workloads if w.scored), key=lambda w: _size(contract, w))
    dtypes = {name: spec.dtype for name, spec in contract.inputs.items() if isinstance(spec, TensorInput)}
    found: dict[str, list[npt.NDArray[np.float64]]] = {}
    for regime in contract.regimes:
        # Needles are for cells alone: nothing extreme may count as ordinary.
        recipe = replace(cell_recipe(contract, smallest, regime), kind="hidden")
        for number in range(DRAWS):
            own = stream.child(regime, number)
            inputs = make_case(contract, recipe, own, static=own).inputs
            for name in floating:
                held = inputs[name]
                if isinstance(held, np.ndarray) and held.size:
                    found.setdefault(name, []).append(np.abs(values_of(held, dtypes[name])))
    return found


def _size(contract: Contract, workload: Workload) -> int:
    tensors = [spec for spec in contract.inputs.values() if isinstance(spec, TensorInput)]
    return sum(math.prod(contract.shape(spec, workload.axes)) for spec in tensors)


def _ordinary(parts: list[npt.NDArray[np.float64]]) -> Range:
    """The range of the parts' means, widened."""
    means = [float(part.mean()) for part in parts]
    return min(means) / SLACK, max(means) * SLACK


def _usual(bounds: Range) -> str:
    return f"a mean magnitude between {bounds[0]:.3g} and {bounds[1]:.3g}"
