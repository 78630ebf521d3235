"""How inputs are drawn, as a contract declares it. Values only: drawing itself happens in the verifier.

A parameter (`Param`) is a number, or is drawn anew for each draw: `{between: [lo, hi]}` uniformly, `{choice: […]}`.
All distributions are built from integers and tables, so that a CPU and a GPU draw the same bits (design.md, Draws).
"""

from typing import Annotated, Literal

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


class Constant(Frozen):
    """Every element has this value."""

    kind: Literal["constant"]
    value: Param


class Normal(Frozen):
    """Gaussian (cut at 4.2 standard deviations), `mean + std * n`."""

    kind: Literal["normal"]
    std: Param = 1.0
    mean: Param = 0.0


class Uniform(Frozen):
    """Uniform in [low, high]."""

    kind: Literal["uniform"]
    low: Param
    high: Param


class LogUniform(Frozen):
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


class DecayLogit(Frozen):
    """Bias whose gate `bound * sigmoid(bias)` forgets with an e-fold of tau tokens, tau log-uniform in [low, high]:
    logit(1 / (bound * tau)). One value per element."""

    kind: Literal["decay_logit"]
    low: Annotated[float, Field(ge=1)]
    high: Annotated[float, Field(le=1_000_000)]
    bound: Annotated[float, Field(gt=0)] = 5.0


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
    """Each row (the last axis) comes from one of the parts, chosen at random; an edge case among ordinary rows."""

    kind: Literal["mixed"]
    parts: Annotated[list["Distribution"], Field(min_length=2)]


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


Distribution = Annotated[
    Constant
    | Normal
    | Uniform
    | LogUniform
    | Activation
    | DecayLogit
    | OneHot
    | Arange
    | Repeated
    | Slab
    | Mixed
    | Spiked
    | Stretch,
    Field(discriminator="kind"),
]

for _model in (Repeated, Slab, Mixed, Spiked, Stretch):
    _model.model_rebuild()
