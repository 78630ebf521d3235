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
    Among,
    Arange,
    Between,
    Choice,
    Constant,
    DecayLogit,
    Distribution,
    Ids,
    LogUniform,
    Mixed,
    Normal,
    OneHot,
    Packed,
    Param,
    Portion,
    Repeated,
    Slab,
    Spiked,
    Stretch,
    Uniform,
)
from bot.contract.schema import FLOATING, DType
from bot.verify.philox import FRACTION, SILU_RANGE, Stream, normal_table, silu_table

Array = npt.NDArray[np.generic]
F64 = npt.NDArray[np.floating[Any]]
Shape = tuple[int, ...]
Simple = Constant | Normal | Uniform | LogUniform | DecayLogit | Among | Portion
"""Kinds whose elements are each a function of a 16-bit index of their own."""
Held = TypeVar("Held")

STORAGE: dict[DType, np.dtype[np.generic]] = {
    "bfloat16": np.dtype("<u2"),
    "float16": np.dtype("<f2"),
    "float32": np.dtype("<f4"),
    "float8_e4m3fn": np.dtype("<u1"),
    "int64": np.dtype("<i8"),
    "int32": np.dtype("<i4"),
    "int8": np.dtype("<i1"),
    "uint8": np.dtype("<u1"),
}
_ONE = 2.0**-FRACTION
REACH = SILU_RANGE << FRACTION
"""Where the SiLU table ends, in its own units."""


def store(values: F64, dtype: DType) -> Array:
    """Round float64 to the storage type, to nearest even, by way of float32. 8-bit floats end at ±448, as what
    quantises to them does; NaN stays NaN."""
    if dtype not in FLOATING:
        return np.rint(values).astype(STORAGE[dtype])
    single = values.astype(np.float32)
    if dtype == "float8_e4m3fn":
        return _eight_bits(single)
    if dtype == "bfloat16":
        bits = single.view(np.uint32)
        rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
        return np.where(np.isnan(single), np.uint32(0x7FC0), rounded).astype(np.uint16)
    return single.astype(STORAGE[dtype])


E4M3_LARGEST = 448.0
E4M3_NORMAL = 2.0**-6
"""The largest and the least normal number of float8_e4m3fn, whose subnormal ones are multiples of 2**-9."""
E4M3_ROUNDER = 2.0**14
"""A float32 from here on has no places below 2**-9: adding it rounds to them."""


def _eight_bits(single: npt.NDArray[np.float32]) -> Array:
    """float32 to the bits of float8_e4m3fn. Normal numbers keep 3 of 23 places of the significand, and their exponent
    is told from 7 instead of 127."""
    size = np.minimum(np.abs(single), np.float32(E4M3_LARGEST))
    bits = size.view(np.uint32)
    normal = ((bits + np.uint32(0x7FFFF) + ((bits >> np.uint32(20)) & np.uint32(1))) >> np.uint32(20)) - np.uint32(960)
    rounder = np.float32(E4M3_ROUNDER)
    small = (size + rounder).view(np.uint32) - rounder.view(np.uint32)
    held = np.where(size < np.float32(E4M3_NORMAL), small, normal)
    sign = np.signbit(single).astype(np.uint8) << np.uint8(7)
    stored: Array = np.where(np.isnan(single), np.uint32(0x7F), held).astype(np.uint8) | sign
    return stored


def values_of(held: Array, dtype: DType) -> npt.NDArray[np.float64]:
    """What a stored tensor holds, as float64."""
    if dtype == "bfloat16":
        return (held.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    if dtype == "float8_e4m3fn":
        bits = held.astype(np.int64)
        exponent, place = bits >> 3 & 15, bits & 7
        size = np.where(exponent > 0, np.ldexp(8.0 + place, exponent - 10), np.ldexp(place, -9))
        found: npt.NDArray[np.float64] = np.where(bits & 127 == 127, np.nan, np.where(bits > 127, -size, size))
        return found
    return held.astype(np.float64)


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

    def given(self, values: Array, dtype: DType) -> Held:
        """These values, in storage form."""

    def packed(self, parts: list[Held], shape: Shape, dtype: DType) -> Held:
        """Bytes of this shape: of each step of the first axis, those of the parts' steps one after the other."""

    def arange(self, dist: Arange, shape: Shape, dtype: DType) -> Held:
        """Element i of the flattened tensor is start + (i mod period) * step, in float64, then stored."""

    def zeros(self, shape: Shape, dtype: DType) -> Held:
        """All bits zero."""

    def repeat(self, held: Held, period: int) -> Held:
        """Each block of `period` steps of the first axis repeats its first step."""

    def clear_outside(self, held: Held, start: int, stop: int) -> Held:
        """Zero but for [start, stop) of the last axis."""

    def choose(self, parts: list[Held], ends: list[int], stream: Stream) -> Held:
        """Each row from the part whose share a number below the last of `ends` falls into."""

    def put(self, held: Held, value: Array, stream: Stream) -> Held:
        """One element of each row, at a number below its width, is `value` (a single stored element)."""

    def replace(self, held: Held, start: int, part: Held) -> Held:
        """`part` in place of the steps of the first axis from `start` on."""


def draw(dist: Distribution, shape: Shape, dtype: DType, stream: Stream) -> Array:
    """One tensor of this distribution in storage form.

    Elements along the last axis form a row; `Activation` wants [tokens, heads, channels].
    """
    return draw_on(_HOST, dist, shape, dtype, stream)


def draw_on(arrays: Arrays[Held], dist: Distribution, shape: Shape, dtype: DType, stream: Stream) -> Held:  # noqa: C901, PLR0911 - one arm a kind
    """`draw`, the array work done by `arrays`."""

    def part(of: Distribution, *labels: str | int, of_shape: Shape = shape, as_: DType = dtype) -> Held:
        return draw_on(arrays, of, of_shape, as_, stream.child(*labels))

    match dist:
        case Activation():
            return arrays.activation(dist, shape, dtype, stream)
        case Arange():
            return arrays.arange(dist, shape, dtype)
        case Ids():
            return arrays.given(store(_ids(dist, shape, stream), dtype), dtype)
        case Packed():
            parts = [
                part(p.of, "packed", i, of_shape=(shape[0], *p.shape), as_=p.dtype) for i, p in enumerate(dist.parts)
            ]
            return arrays.packed(parts, shape, dtype)
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
            return arrays.choose(parts, dist.ends, stream.child("which"))
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
    """Each parameter's value in this draw, by name; a list's values by their places."""
    if isinstance(dist, Among):
        return {str(place): value for place, value in enumerate(dist.values)}
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
        case Among():
            values = np.array(dist.values)
            return lambda index: values[index * len(values) >> 16]
        case Portion():
            low, step, last = value["low"], (value["high"] - value["low"]) / 65535, value["below"] - 1
            return lambda index: np.rint((index * step + low) * last)
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


ALL_OF_THEM = 4096
"""Up to this many ids, or where a row takes a quarter of them, a row's are the first of them all in random order."""


def _ids(dist: Ids, shape: Shape, stream: Stream) -> F64:
    """See `Ids`. Few of many are drawn one by one, twice as many as wanted, and count where they are new."""
    assert dist.below is not None  # noqa: S101 - cases.py put the bound in
    rows, width = rows_of(shape)
    wanted = round(parameter(dist.share, stream.child("share")) * width)
    blocks, of_all = -(-wanted // dist.run), dist.below // dist.run
    out = np.full((rows, width), -1.0)
    for row in range(rows):
        own = stream.child("row", row)
        if dist.repeated:
            chosen = own.below(max(of_all, 1), blocks)
        elif of_all <= max(ALL_OF_THEM, 4 * blocks):
            chosen = _order(of_all, own)[:blocks]
        else:
            drawn = own.below(of_all, 2 * blocks)
            chosen = drawn[np.sort(np.unique(drawn, return_index=True)[1])][:blocks]
        ids = (chosen[:, None] * dist.run + np.arange(dist.run)).reshape(-1)[:wanted]
        places = np.sort(_order(width, own.child("places"))[: len(ids)]) if dist.scattered else np.arange(len(ids))
        out[row, places] = ids
    return out.reshape(shape)


def _order(count: int, stream: Stream) -> npt.NDArray[np.int64]:
    """A permutation of range(count): by random words, where two are equal by their places."""
    return np.argsort(stream.words(count), kind="stable").astype(np.int64)


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

    def given(self, values: Array, dtype: DType) -> Array:  # noqa: ARG002 - a device must know
        return values

    def packed(self, parts: list[Array], shape: Shape, dtype: DType) -> Array:
        steps = [np.ascontiguousarray(part).reshape(shape[0], -1).view(np.uint8) for part in parts if part.size]
        if not steps:
            return self.zeros(shape, dtype)
        return np.concatenate(steps, axis=1).view(STORAGE[dtype]).reshape(shape)

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

    def choose(self, parts: list[Array], ends: list[int], stream: Stream) -> Array:
        rows, width = rows_of(parts[0].shape)
        which = stream.below(ends[-1], rows)
        out = parts[0].reshape(rows, width)
        for begin, part in zip(ends, parts[1:], strict=False):  # Those of a part begin where the one before ends.
            out = np.where((which >= begin)[:, None], part.reshape(rows, width), out)
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
