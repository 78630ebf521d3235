"""How inputs are drawn, as a contract declares it. Values only: drawing itself happens in the verifier.

A parameter (`Param`) is a number, or is drawn anew for each draw: `{between: [lo, hi]}` uniformly, `{choice: […]}`.
All distributions are built from integers and tables, so that a CPU and a GPU draw the same bits (design.md, Draws).
"""

from collections.abc import Iterator
from itertools import accumulate
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Frozen(BaseModel):
    """A document of ours: immutable, strict, nothing unknown."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


class Between(Frozen):
    """A parameter drawn uniformly from a closed interval, once per draw."""

    between: Annotated[list[float], Field(min_length=2, max_length=2)]

    @model_validator(mode="after")
    def _ordered(self) -> "Between":
        if not self.between[0] <= self.between[1]:
            raise ValueError("the first bound must not exceed the second")
        return self


class Choice(Frozen):
    """A parameter drawn from a list, once per draw."""

    choice: Annotated[list[float], Field(min_length=1)]


Param = float | Between | Choice


def numbers(param: Param) -> list[float]:
    """The numbers that a parameter is made of: its options, or its ends."""
    return param.between if isinstance(param, Between) else param.choice if isinstance(param, Choice) else [param]


def reach(param: Param) -> tuple[float, float]:
    """The least and the largest value that a parameter may be drawn as."""
    return min(numbers(param)), max(numbers(param))


class Interval(Frozen):
    """Values from `low` to `high`, which no draw may turn round."""

    low: Param
    high: Param

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if reach(self.low)[1] > reach(self.high)[0]:
            raise ValueError(f"low, up to {reach(self.low)[1]:g}, may exceed high, from {reach(self.high)[0]:g} on")
        return self


class Constant(Frozen):
    """Every element has this value."""

    kind: Literal["constant"]
    value: Param


class Normal(Frozen):
    """Gaussian (cut at 4.2 standard deviations), `mean + std * n`."""

    kind: Literal["normal"]
    std: Param = 1.0
    mean: Param = 0.0

    @model_validator(mode="after")
    def _spread(self) -> Self:
        if reach(self.std)[0] < 0:
            raise ValueError(f"a standard deviation of {reach(self.std)[0]:g} is less than none")
        return self


class Uniform(Interval):
    """Uniform in [low, high]."""

    kind: Literal["uniform"]


class LogUniform(Interval):
    """Positive, the logarithm uniform: exp of Uniform(ln low, ln high)."""

    kind: Literal["log_uniform"]
    low: Annotated[float, Field(gt=0)]
    high: Annotated[float, Field(gt=0)]


class Activation(Frozen):
    """What a short convolution with SiLU leaves: one-sided, correlated along the first axis, with a common direction
    per head, outlier channels and tokens of differing norm (research/kernels.md 5.3, 5.4). Shape [T, H, D].

    `direction`: weight of the common direction; `correlation`: moving-average memory in [0, 0.95];
    `channel_spread`, `token_spread`: standard deviations of the natural logarithm of the scales.
    """

    kind: Literal["activation"]
    direction: Param = 1.0
    correlation: Param = 0.5
    channel_spread: Param = 1.0
    token_spread: Param = 0.7
    scale: Param = 1.0


class DecayLogit(Interval):
    """Bias whose gate `bound * sigmoid(bias)` forgets with an e-fold of tau tokens, tau log-uniform in [low, high]:
    logit(1 / (bound * tau)). One value per element."""

    kind: Literal["decay_logit"]
    low: Annotated[float, Field(ge=1)]
    high: Annotated[float, Field(le=1_000_000)]
    bound: Annotated[float, Field(gt=0)] = 5.0


class Among(Frozen):
    """Each element is one of these values."""

    kind: Literal["among"]
    values: Annotated[list[float], Field(min_length=1)]


class Portion(Interval):
    """Integers for an input with a bound (`below`): each a portion of its largest value, uniform in [low, high].
    `below` is not written: the input's own bound stands there when it is drawn."""

    kind: Literal["portion"]
    low: Param = 0.0
    high: Param = 1.0
    below: int | None = Field(default=None, exclude=True)


class Ids(Frozen):
    """Ids from 0 up to the input's bound, for an input that has one (`below`): in each row (the last axis) different
    ones in random order, then −1.

    `share`: how much of a row is ids. `scattered`: the −1 stand among them. `run`: ids come in aligned runs of so many
    neighbours. `repeated`: each id is drawn by itself, so that some stand twice. `below` is not written, as above.
    """

    kind: Literal["ids"]
    share: Param = 1.0
    scattered: bool = False
    run: Annotated[int, Field(ge=1)] = 1
    repeated: bool = False
    below: int | None = Field(default=None, exclude=True)


class OneHot(Frozen):
    """One element of each row (the last axis) is `value`, the others are zero."""

    kind: Literal["one_hot"]
    value: Param = 1.0


class Arange(Frozen):
    """start, start + step, … over the flattened tensor, wrapped after `period` elements when given."""

    kind: Literal["arange"]
    start: float = 0.0
    step: float = 1.0
    period: Annotated[int, Field(gt=0)] | None = None


class Repeated(Frozen):
    """`of`, but each block of `period` steps along the first axis repeats its first step."""

    kind: Literal["repeated"]
    period: Annotated[int, Field(gt=0)]
    of: "Distribution"


class Slab(Frozen):
    """`of` inside one secret slab of `width` channels of the last axis, zero elsewhere."""

    kind: Literal["slab"]
    width: Annotated[int, Field(gt=0)]
    of: "Distribution"


class Mixed(Frozen):
    """Each row (the last axis) comes from one of the parts, chosen at random; an edge case among ordinary rows.

    `shares`: how likely each part is beside the others (`[31, 1]`: one row in 32 from the second); alike unless said.
    """

    kind: Literal["mixed"]
    parts: Annotated[list["Distribution"], Field(min_length=2)]
    shares: list[Annotated[int, Field(ge=1, le=4096)]] = []

    @model_validator(mode="after")
    def _a_share_each(self) -> Self:
        if self.shares and len(self.shares) != len(self.parts):
            raise ValueError(f"{len(self.shares)} shares for {len(self.parts)} parts")
        return self

    @property
    def ends(self) -> list[int]:
        """Where each part's share ends on a scale from 0 to their sum."""
        return list(accumulate(self.shares or [1] * len(self.parts)))


class Spiked(Frozen):
    """`of`, with one secret element of each row replaced by `value`."""

    kind: Literal["spiked"]
    value: Param
    of: "Distribution"


class Stretch(Frozen):
    """`of`, with one secret stretch of the first axis, `low` to `high` of its length, from `other`: data that change
    their character for long enough to matter, where a sample of them looks like the rest."""

    kind: Literal["stretch"]
    of: "Distribution"
    other: "Distribution"
    low: Annotated[float, Field(gt=0, le=1)] = 0.1
    high: Annotated[float, Field(gt=0, le=1)] = 0.4


class Part(Frozen):
    """Some values of a packed record: their shape, their type, how they are drawn."""

    shape: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1)]
    dtype: Literal["float8_e4m3fn", "bfloat16", "float16", "float32", "int8", "uint8", "int32"]
    of: "Distribution"


class Packed(Frozen):
    """Bytes: each step of the first axis is a record of these parts, one after the other without gaps."""

    kind: Literal["packed"]
    parts: Annotated[list[Part], Field(min_length=1)]


Distribution = Annotated[
    Constant
    | Normal
    | Uniform
    | LogUniform
    | Activation
    | DecayLogit
    | Among
    | Portion
    | Ids
    | OneHot
    | Arange
    | Repeated
    | Slab
    | Mixed
    | Spiked
    | Stretch
    | Packed,
    Field(discriminator="kind"),
]

for _model in (Repeated, Slab, Mixed, Spiked, Stretch, Part, Packed):
    _model.model_rebuild()


def bounded(dist: Distribution, below: int | None) -> Distribution:
    """The distribution with its input's bound in place."""
    match dist:
        case Portion() | Ids():
            return dist.model_copy(update={"below": below})
        case Mixed():
            return dist.model_copy(update={"parts": [bounded(part, below) for part in dist.parts]})
        case Stretch():
            update = {"of": bounded(dist.of, below), "other": bounded(dist.other, below)}
            return dist.model_copy(update=update)
        case Repeated() | Slab() | Spiked():
            return dist.model_copy(update={"of": bounded(dist.of, below)})
        case _:
            return dist


def within(dist: Distribution) -> Iterator[Distribution]:
    """A distribution and all those it is made of."""
    yield dist
    match dist:
        case Mixed():
            inner = dist.parts
        case Packed():
            inner = [part.of for part in dist.parts]
        case Stretch():
            inner = [dist.of, dist.other]
        case Repeated() | Slab() | Spiked():
            inner = [dist.of]
        case _:
            inner = []
    for part in inner:
        yield from within(part)
