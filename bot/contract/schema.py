"""What `contract.yaml` may say, as frozen types. `contracts/README.md` documents every key; a test compares the two.

A contract names axes, gives tensors their shapes in those axes, says how inputs are drawn in each regime and probe,
what is timed, against which baselines, and how far from the float64 oracle an honest kernel may be.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from bot.contract.distribution import Distribution, Frozen, Param

Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
Device = Literal["cpu", "cuda"]
DType = Literal["bfloat16", "float16", "float32", "float8_e4m3fn", "int64", "int32", "int8", "uint8"]
FLOATING: frozenset[DType] = frozenset({"bfloat16", "float16", "float32", "float8_e4m3fn"})
BYTES: Mapping[DType, int] = {
    "bfloat16": 2,
    "float16": 2,
    "float32": 4,
    "float8_e4m3fn": 1,
    "int64": 8,
    "int32": 4,
    "int8": 1,
    "uint8": 1,
}
"""Size of an element."""
Role = Literal["incumbent", "official", "competitor", "reference"]
Lifetime = Literal["call", "metadata", "static"]
Extent = Annotated[int, Field(ge=1, lt=2**31)] | Name | Annotated[str, Field(pattern=r"^[A-Za-z_]\w*\+[0-9]+$")]
"""One dimension of a shape: a number, an axis, or an axis plus a number (`N+1`)."""


Factor = Annotated[int, Field(ge=1)] | Name
"""Of a product: a number or an axis."""


class ConstAxis(Frozen):
    """An axis every workload has the same size in."""

    const: Annotated[int, Field(ge=1)]


class VarAxis(Frozen):
    """An axis a workload gives a size; the legal sizes are `min` to `max`, and multiples of `multiple`."""

    min: Annotated[int, Field(ge=0)] = 1
    max: Annotated[int, Field(ge=1)]
    multiple: Annotated[int, Field(ge=1)] = 1


class RaggedAxis(Frozen):
    """A list of lengths (packed sequences); the legal lengths are `min_length` to `max_length`."""

    ragged: Literal[True]
    min_length: Annotated[int, Field(ge=0)] = 0
    max_length: Annotated[int, Field(ge=1)]


class TotalAxis(Frozen):
    """The sum of a ragged axis: packed tokens."""

    total_of: Name


class CountAxis(Frozen):
    """The number of entries of a ragged axis: sequences."""

    count_of: Name


class DerivedAxis(Frozen):
    """`times` the size of another axis, in blocks of `over`: rounded up."""

    of: Name
    times: Annotated[int, Field(ge=1)] = 1
    over: Annotated[int, Field(ge=1)] = 1


Axis = ConstAxis | VarAxis | RaggedAxis | TotalAxis | CountAxis | DerivedAxis


class TensorInput(Frozen):
    """A tensor the candidate reads. `offsets_of`: the cumulative sums of that ragged axis instead of a drawn value.
    `infinite`: infinities are legal values. `below`: integers from −1 on stay under this bound: ids of an axis' steps,
    where −1 is none, or lengths.
    """

    shape: list[Extent]
    dtype: DType
    lifetime: Lifetime = "call"
    optional: bool = False
    infinite: bool = False
    offsets_of: Name | None = None
    below: Extent | None = None
    doc: str = ""


class ScalarInput(Frozen):
    """A number passed by value; `low` to `high` is what a draw may set it to."""

    dtype: Literal["float", "int"]
    value: float
    low: float | None = None
    high: float | None = None
    doc: str = ""


class Output(Frozen):
    """A tensor the candidate fills. A row is the last axis; `groups` are axes judged one by one besides sequences.

    `compare`: rows of numbers, or `set_at_cut`: each row holds the ids of the largest scores, in any order, ties free,
    −1 where fewer exist. The oracle then returns the scores of all ids.
    """

    shape: list[Extent]
    dtype: DType
    groups: list[Name] = []
    compare: Literal["rows", "set_at_cut"] = "rows"
    doc: str = ""


class Compute(Frozen):
    """The precision a faithful kernel may use: what matrix operands are rounded to, and what sums are kept in."""

    operands: Literal["float8_e4m3fn", "bfloat16", "float16", "float32"]
    accumulate: Literal["float32", "float64"]


class Limit(Frozen):
    """Largest honest error of one output, in noise units: over rows, the median, the 99 % quantile, the maximum.

    `floor_ulps`: least unit, in ulps of the output's dtype (of a set: of float32) at the reference's magnitude.
    `source`: the measurement behind the numbers.
    """

    median: Annotated[float, Field(gt=0)]
    p99: Annotated[float, Field(gt=0)]
    maximum: Annotated[float, Field(gt=0)]
    floor_ulps: Annotated[float, Field(ge=0)] = 0.25
    source: Annotated[str, Field(min_length=1)]


class Regime(Frozen):
    """A family of input distributions. `draws` replaces entries of the contract's own `draws`."""

    doc: str
    draws: dict[Name, Distribution] = {}
    values: dict[Name, Param] = {}
    absent: list[Name] = []


Sizes = dict[Name, int | list[int]]


class Workload(Frozen):
    """One concrete set of axis values. A scored workload is timed in every scored regime and counts."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{1,40}$")]
    device: Annotated[list[Device], Field(min_length=1)]
    axes: Sizes
    scored: bool = True
    anchor: bool = False


class HiddenInt(Frozen):
    """A secret size, one of these."""

    choice: Annotated[list[int], Field(min_length=1)]


class HiddenRange(Frozen):
    """A secret size from a range, near one power of two as likely as near the next. The draws take turns in what a
    division by 8 leaves, so that eight of them meet every tail."""

    between: Annotated[list[int], Field(min_length=2, max_length=2)]


class HiddenLengths(Frozen):
    """Secret lengths: `count` sequences that sum to `total`, empty and one-token ones among them when `edges`."""

    total: Annotated[list[int], Field(min_length=2, max_length=2)]
    count: Annotated[list[int], Field(min_length=2, max_length=2)]
    edges: bool = True


HiddenAxis = HiddenInt | HiddenRange | HiddenLengths


class Hidden(Frozen):
    """Draws at axis values nobody was told, from the legal domain. Optional inputs are absent from some of them."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{1,40}$")]
    device: Annotated[list[Device], Field(min_length=1)]
    draws: Annotated[int, Field(ge=1, le=32)]
    axes: dict[Name, HiddenAxis]


class Probe(Frozen):
    """An extreme or structured input made to break one shortcut, which `breaks` names."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9_]{1,48}$")]
    breaks: Annotated[str, Field(min_length=1)]
    device: Annotated[list[Device], Field(min_length=1)]
    axes: Sizes
    regime: Name
    draws: dict[Name, Distribution] = {}
    values: dict[Name, Param] = {}
    absent: list[Name] = []
    limits: dict[Name, Limit] = {}


class Relation(Frozen):
    """The same question put in two ways whose answers must agree: for lengths the oracle cannot reach.

    split: every sequence cut in two at a secret place, `carry` handing outputs of the first part to inputs of the
    second. alone: one sequence without the others. permuted: the steps of `axis` in another order. scaled: inputs times
    a power of two to the exponent in `powers`, outputs likewise, which no rounding disturbs.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9_]{1,48}$")]
    kind: Literal["split", "alone", "permuted", "scaled"]
    breaks: Annotated[str, Field(min_length=1)]
    device: Annotated[list[Device], Field(min_length=1)]
    regime: Name
    axes: dict[Name, HiddenAxis]
    carry: dict[Name, Name] = {}
    axis: Name | None = None
    powers: dict[Name, int] = {}


class Requires(Frozen):
    """What must be there for a baseline to exist; otherwise it is `unavailable`, shown and never counted. `minimum`: of
    the installed `distribution`, which has the module's name unless said. `architectures`: of the device; none: all.
    """

    module: str
    distribution: str | None = None
    minimum: Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)*((a|b|rc)[0-9]+)?((\.post|\.dev)[0-9]+)?$")] | None = None
    architectures: list[str] = []


class Baseline(Frozen):
    """A kernel to compare with, a file under `baselines/` with the candidate's interface."""

    name: Name
    role: Role
    file: Annotated[str, Field(pattern=r"^baselines/[A-Za-z0-9_]+\.py$")]
    device: Annotated[list[Device], Field(min_length=1)]
    requires: Requires | None = None
    doc: str = ""


class Control(Frozen):
    """A deliberately wrong kernel, which the exam must refuse; `fails` names probes or regimes that must see it."""

    file: Annotated[str, Field(pattern=r"^controls/[A-Za-z0-9_]+\.py$")]
    cheat: Annotated[str, Field(min_length=1)]
    fails: Annotated[list[str], Field(min_length=1)]


class Work(Frozen):
    """Least work: `operations` is a product of axes and numbers (`[6, T, H, K, V]`). Bytes follow from the tensors, but
    for inputs of which a kernel need not read all: `reads` has the least number of elements, as such a product.
    """

    operations: list[Factor]
    reads: dict[Name, list[Factor]] = {}


class Contract(Frozen):
    """What a kernel must compute, for which legal inputs, and how it is judged."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
    version: Annotated[int, Field(ge=1)]
    summary: str
    axes: dict[Name, Axis]
    inputs: dict[Name, TensorInput | ScalarInput]
    outputs: Annotated[dict[Name, Output], Field(min_length=1)]
    compute: Compute
    may_use: list[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]] = []
    limits: dict[Name, Limit]
    draws: dict[Name, Distribution] = {}
    regimes: Annotated[dict[Name, Regime], Field(min_length=1)]
    workloads: Annotated[list[Workload], Field(min_length=1)]
    hidden: list[Hidden] = []
    probes: list[Probe] = []
    relations: list[Relation] = []
    baselines: list[Baseline] = []
    controls: list[Control] = []
    faithful: list[Annotated[str, Field(pattern=r"^faithful/[A-Za-z0-9_]+\.py$")]] = []
    work: Work | None = None

    def sizes(self, axes: Mapping[str, int | list[int]]) -> dict[str, int | list[int]]:
        """All axis values of a workload: its own, the constants, and totals and counts of ragged axes."""
        known: dict[str, int | list[int]] = dict(axes)
        for name, axis in self.axes.items():
            match axis:
                case ConstAxis(const=value):
                    known[name] = value
                case TotalAxis(total_of=ragged):
                    known[name] = sum(_lengths(known[ragged]))
                case CountAxis(count_of=ragged):
                    known[name] = len(_lengths(known[ragged]))
                case VarAxis() | RaggedAxis() | DerivedAxis():
                    pass
        for name, axis in self.axes.items():
            if isinstance(axis, DerivedAxis):
                known[name] = -(-_extent(axis.of, known) * axis.times // axis.over)
        return known

    def shape(self, tensor: TensorInput | Output, axes: Mapping[str, int | list[int]]) -> tuple[int, ...]:
        """Concrete shape of a tensor in a workload with these axis values."""
        known = self.sizes(axes)
        return tuple(_extent(extent, known) for extent in tensor.shape)

    def bound(self, tensor: TensorInput | Output, axes: Mapping[str, int | list[int]]) -> int | None:
        """What a tensor's integers stay below in a workload with these axis values; None: anything its type holds."""
        below = tensor.below if isinstance(tensor, TensorInput) else None
        return None if below is None else _extent(below, self.sizes(axes))

    def fixed_axes(self) -> frozenset[str]:
        """Axes whose steps cannot be left out one by one: others are made of them, or values refer to them."""
        derived = {name: axis.of for name, axis in self.axes.items() if isinstance(axis, DerivedAxis)}
        bounds = [axis_of(s.below) for s in self.inputs.values() if isinstance(s, TensorInput) and s.below is not None]
        rigid = [n for n, axis in self.axes.items() if isinstance(axis, VarAxis) and axis.multiple > 1]
        return frozenset(derived.values()) | frozenset(derived.get(b or "", b or "") for b in bounds) | frozenset(rigid)

    def scored(self, device: Device) -> list[tuple[Workload, str]]:
        """The scored cells on a device: workload × regime."""
        return [(w, r) for w in self.workloads if w.scored and device in w.device for r in self.regimes]

    def anchor(self, device: Device) -> Workload:
        """The workload that stands for the others in smoke tests; the first one unless one is marked."""
        here = [w for w in self.workloads if device in w.device]
        return next((w for w in here if w.anchor), here[0])


def _lengths(value: int | list[int]) -> list[int]:
    if isinstance(value, int):
        raise TypeError("a ragged axis holds a list of lengths")
    return value


def _extent(extent: int | str, known: Mapping[str, int | list[int]]) -> int:
    if isinstance(extent, int):
        return extent
    name, _, plus = extent.partition("+")
    value = known[name]
    if isinstance(value, list):
        raise TypeError(f"{name} is ragged and cannot be a dimension")
    return value + int(plus or 0)


def axis_of(extent: int | str) -> str | None:
    """The axis a dimension refers to, or None for a plain number."""
    return None if isinstance(extent, int) else re.split(r"\+", extent)[0]
