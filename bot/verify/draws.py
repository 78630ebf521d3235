"""From a contract's distributions to bytes: one input tensor, in its storage type, from one stream.

Values come from integers, table look-ups and correctly rounded IEEE multiplies and adds in float64, then one rounding
to float32 and one to the storage type, so that any machine draws the same bits. bfloat16 is stored as uint16 bits.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from bot.contract.distribution import (
    Activation,
    Arange,
    Between,
    Choice,
    Constant,
    DecayLogit,
    Distribution,
    LogUniform,
    Mixed,
    Normal,
    OneHot,
    Param,
    Repeated,
    Slab,
    Spiked,
    Stretch,
    Uniform,
)
from bot.contract.schema import DType
from bot.verify.philox import FRACTION, SILU_RANGE, Stream, normal_table, silu_table

Array = npt.NDArray[np.generic]
F64 = npt.NDArray[np.floating[Any]]
Shape = tuple[int, ...]
Simple = Constant | Normal | Uniform | LogUniform | DecayLogit
"""Kinds whose elements are each a function of a 16-bit index of their own."""
Held = TypeVar("Held")

STORAGE: dict[DType, np.dtype[np.generic]] = {
    "bfloat16": np.dtype("<u2"),
    "float16": np.dtype("<f2"),
    "float32": np.dtype("<f4"),
    "int64": np.dtype("<i8"),
    "int32": np.dtype("<i4"),
}
_ONE = 2.0**-FRACTION
REACH = SILU_RANGE << FRACTION
"""Where the SiLU table ends, in its own units."""


def store(values: F64, dtype: DType) -> Array:
    """Round float64 to the storage type, to nearest even, by way of float32."""
    if dtype in {"int64", "int32"}:
        return np.rint(values).astype(STORAGE[dtype])
    single = values.astype(np.float32)
    if dtype == "bfloat16":
        bits = single.view(np.uint32)
        rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
        return np.where(np.isnan(single), np.uint32(0x7FC0), rounded).astype(np.uint16)
    return single.astype(STORAGE[dtype])


def parameter(param: Param, stream: Stream) -> float:
    """A parameter's value in this draw."""
    match param:
        case Between(between=[low, high]):
            return stream.between(low, high)
        case Choice(choice=options):
            return float(options[int(stream.below(len(options))[0])])
        case _:
            return float(param)  # type: ignore[arg-type]


class Arrays(Protocol[Held]):
    """What a device does with arrays, so that the kinds of distribution are told once, in `draw_on`. All are in storage
    form; none outlives its use by `draw_on`, so that any may be changed in place."""

    def looked_up(self, dist: Simple, shape: Shape, dtype: DType, stream: Stream) -> Held:
        """Each element a function of its own 16-bit index."""

    def activation(self, dist: Activation, shape: Shape, dtype: DType, stream: Stream) -> Held:
        """See `Walk`; the shape is [tokens, heads, channels]."""

    def arange(self, dist: Arange, shape: Shape, dtype: DType) -> Held:
        """Element i of the flattened tensor is start + (i mod period) * step, in float64, then stored."""

    def zeros(self, shape: Shape, dtype: DType) -> Held:
        """All bits zero."""

    def repeat(self, held: Held, period: int) -> Held:
        """Each block of `period` steps of the first axis repeats its first step."""

    def clear_outside(self, held: Held, start: int, stop: int) -> Held:
        """Zero but for [start, stop) of the last axis."""

    def choose(self, parts: list[Held], stream: Stream) -> Held:
        """Each row from the part of a number below their count."""

    def put(self, held: Held, value: Array, stream: Stream) -> Held:
        """One element of each row, at a number below its width, is `value` (a single stored element)."""

    def replace(self, held: Held, start: int, part: Held) -> Held:
        """`part` in place of the steps of the first axis from `start` on."""


def draw(dist: Distribution, shape: Shape, dtype: DType, stream: Stream) -> Array:
    """One tensor of this distribution in storage form.

    Elements along the last axis form a row; `Activation` wants [tokens, heads, channels].
    """
    return draw_on(_HOST, dist, shape, dtype, stream)


def draw_on(arrays: Arrays[Held], dist: Distribution, shape: Shape, dtype: DType, stream: Stream) -> Held:  # noqa: PLR0911 - one arm a kind
    """`draw`, the array work done by `arrays`."""

    def part(of: Distribution, *labels: str | int, of_shape: Shape = shape) -> Held:
        return draw_on(arrays, of, of_shape, dtype, stream.child(*labels))

    match dist:
        case Activation():
            return arrays.activation(dist, shape, dtype, stream)
        case Arange():
            return arrays.arange(dist, shape, dtype)
        case OneHot():
            return arrays.put(arrays.zeros(shape, dtype), _value(dist, dtype, stream), stream.child("index"))
        case Repeated():
            return arrays.repeat(part(dist.of, "of"), dist.period)
        case Slab():
            slabs = max(shape[-1] // dist.width, 1)
            start = int(stream.child("slab").below(slabs)[0]) * dist.width
            return arrays.clear_outside(part(dist.of, "of"), start, start + dist.width)
        case Mixed():
            parts = [part(of, "part", i) for i, of in enumerate(dist.parts)]
            return arrays.choose(parts, stream.child("which"))
        case Spiked():
            return arrays.put(part(dist.of, "of"), _value(dist, dtype, stream), stream.child("spike"))
        case Stretch():
            length = round(shape[0] * stream.child("length").between(dist.low, dist.high))
            start = int(stream.child("start").below(shape[0] - length + 1)[0])
            other = part(dist.other, "other", of_shape=(length, *shape[1:]))
            return arrays.replace(part(dist.of, "of"), start, other)
        case _:
            return arrays.looked_up(dist, shape, dtype, stream)


def rows_of(shape: Shape) -> tuple[int, int]:
    """How many rows a tensor has, and how wide they are."""
    width = shape[-1] if shape else 1
    return math.prod(shape[:-1]) if shape else 1, width


def numbers(dist: Simple | Activation, stream: Stream) -> dict[str, float]:
    """Each parameter's value in this draw, by name."""
    names = (name for name in type(dist).model_fields if name != "kind")
    return {name: parameter(getattr(dist, name), stream.child(name)) for name in names}


def table(dist: Simple, value: dict[str, float], dtype: DType) -> Array:
    """Its 65,536 values, by index, in storage form."""
    return store(_function(dist, value)(np.arange(65536, dtype=np.int64)), dtype)


def _value(dist: OneHot | Spiked, dtype: DType, stream: Stream) -> Array:
    return store(np.array([parameter(dist.value, stream.child("value"))]), dtype)


def _function(dist: Simple, value: dict[str, float]) -> Callable[[npt.NDArray[np.int64]], F64]:
    match dist:
        case Constant():
            return lambda index: np.full(index.shape, value["value"])
        case Normal():
            std, mean = value["std"], value["mean"]
            return lambda index: normal_table()[index].astype(np.float64) * (std * _ONE) + mean
        case Uniform():
            low, high = value["low"], value["high"]
            return lambda index: (index + 0.5) * ((high - low) / 65536) + low
        case LogUniform():
            start, step = math.log(dist.low), math.log(dist.high / dist.low) / 65536
            return lambda index: _map(math.exp, start + (index + 0.5) * step)
        case DecayLogit():
            start, step = math.log(dist.low), math.log(dist.high / dist.low) / 65536
            # logit(1 / (bound * tau)) with the share kept inside [1e-7, 0.999], where bfloat16 gates still differ.
            bound = dist.bound

            def logit(log_tau: float) -> float:
                share = min(max(math.exp(-log_tau) / bound, 1e-7), 0.999)
                return math.log(share / (1.0 - share))

            return lambda index: _map(logit, start + (index + 0.5) * step)


def _map(function: Callable[[float], float], values: F64) -> F64:
    """libm's own function element by element: numpy's vector versions differ between processors."""
    return np.array([function(value) for value in values.tolist()], dtype=np.float64).reshape(values.shape)


@dataclass(frozen=True, slots=True)
class Walk:
    """An activation in integers of 2**-16: `walk = (walk * memory + fresh * noise) >> 12` along the tokens, and then
    silu(walk + common) * channel * token, each product rounded to float64.

    `common`: int64 [heads, channels]. `channel`: float64 [heads, channels], 2**-16 included. `tokens`: float64 [4096],
    by the upper 12 bits of an index. Indices of `noise` [tokens, heads, channels] are into the table of normals.
    """

    memory: int
    fresh: int
    common: npt.NDArray[np.int64]
    channel: F64
    tokens: F64
    noise: Stream
    token: Stream

    @classmethod
    def of(cls, dist: Activation, heads_and_channels: Shape, stream: Stream) -> "Walk":
        """In this draw."""
        value = numbers(dist, stream)
        common = _normals(heads_and_channels, stream.child("common")) * round(value["direction"] * 4096) >> 12
        indices = stream.child("channel").indices(math.prod(heads_and_channels))
        channel = _scales(value["channel_spread"])[indices >> 4].reshape(heads_and_channels)
        return cls(
            memory=round(value["correlation"] * 4096),
            fresh=round(math.sqrt(1 - value["correlation"] ** 2) * 4096),
            common=common,
            channel=channel * (value["scale"] * _ONE),
            tokens=_scales(value["token_spread"]),
            noise=stream.child("noise"),
            token=stream.child("token"),
        )


def _normals(shape: Shape, stream: Stream) -> npt.NDArray[np.int64]:
    return normal_table()[stream.indices(math.prod(shape))].astype(np.int64).reshape(shape)


def _scales(spread: float) -> F64:
    """exp(spread * n), n standard normal: 4,096 values, by the upper 12 bits of an index."""
    return _map(math.exp, normal_table()[::16].astype(np.float64) * (spread * _ONE))


class _Host:
    """Arrays of numpy."""

    def looked_up(self, dist: Simple, shape: Shape, dtype: DType, stream: Stream) -> Array:
        """For large tensors the function is tabulated first."""
        value, count = numbers(dist, stream), math.prod(shape)
        if count <= 65536:
            index = stream.child("index").indices(count).astype(np.int64)
            return store(_function(dist, value)(index), dtype).reshape(shape)
        return stream.child("index").gather(table(dist, value, dtype), count).reshape(shape)

    def activation(self, dist: Activation, shape: Shape, dtype: DType, stream: Stream) -> Array:
        tokens, heads, channels = shape
        walk = Walk.of(dist, (heads, channels), stream)
        noise = _normals(shape, walk.noise) * walk.fresh
        held = np.zeros((heads, channels), dtype=np.int64)
        for token in range(tokens):
            held = (held * walk.memory + noise[token]) >> 12
            noise[token] = held + walk.common
        index = (np.clip(noise, -REACH, REACH - 1) + REACH) * 32768 // REACH
        # Above the table the function is its argument: 8 * sigmoid(12) differs from 8 by 5e-5.
        shaped = np.where(noise >= REACH, noise, silu_table()[index]).astype(np.float64)
        norms = walk.tokens[walk.token.indices(tokens * heads) >> 4].reshape(tokens, heads, 1)
        return store(shaped * walk.channel * norms, dtype)

    def arange(self, dist: Arange, shape: Shape, dtype: DType) -> Array:
        flat = np.arange(math.prod(shape), dtype=np.int64)
        steps = flat % dist.period if dist.period else flat
        return store((dist.start + steps * dist.step).reshape(shape), dtype)

    def zeros(self, shape: Shape, dtype: DType) -> Array:
        return np.zeros(shape, dtype=STORAGE[dtype])

    def repeat(self, held: Array, period: int) -> Array:
        repeated: Array = held[np.arange(len(held)) // period * period]
        return repeated

    def clear_outside(self, held: Array, start: int, stop: int) -> Array:
        out = np.zeros_like(held)
        out[..., start:stop] = held[..., start:stop]
        return out

    def choose(self, parts: list[Array], stream: Stream) -> Array:
        rows, width = rows_of(parts[0].shape)
        which = stream.below(len(parts), rows)
        out = parts[0].reshape(rows, width)
        for number, part in enumerate(parts[1:], start=1):
            out = np.where((which == number)[:, None], part.reshape(rows, width), out)
        return out.reshape(parts[0].shape)

    def put(self, held: Array, value: Array, stream: Stream) -> Array:
        rows, width = rows_of(held.shape)
        if rows and width:
            held.reshape(rows, width)[np.arange(rows), stream.below(width, rows)] = value[0]
        return held

    def replace(self, held: Array, start: int, part: Array) -> Array:
        held[start : start + len(part)] = part
        return held


_HOST = _Host()
