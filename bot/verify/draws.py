"""From a contract's distributions to bytes: one input tensor, in its storage type, from one stream.

Values come from integers, table look-ups and correctly rounded IEEE multiplies and adds in float64, then one rounding
to float32 and one to the storage type, so that any machine draws the same bits. bfloat16 is stored as uint16 bits.
"""

import math
from collections.abc import Callable
from typing import Any

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

STORAGE: dict[DType, np.dtype[np.generic]] = {
    "bfloat16": np.dtype("<u2"),
    "float16": np.dtype("<f2"),
    "float32": np.dtype("<f4"),
    "int64": np.dtype("<i8"),
    "int32": np.dtype("<i4"),
}
_ONE = 2.0**-FRACTION


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


def draw(dist: Distribution, shape: Shape, dtype: DType, stream: Stream) -> Array:  # noqa: PLR0911 - one arm a kind
    """One tensor of this distribution in storage form.

    Elements along the last axis form a row; `Activation` wants [tokens, heads, channels].
    """
    match dist:
        case Activation():
            return store(_activation(dist, shape, stream), dtype)
        case Arange():
            flat = np.arange(math.prod(shape), dtype=np.int64)
            steps = flat % dist.period if dist.period else flat
            return store((dist.start + steps * dist.step).reshape(shape), dtype)
        case OneHot():
            return _one_hot(dist, shape, dtype, stream)
        case Repeated():
            part = draw(dist.of, shape, dtype, stream.child("of"))
            steps = np.arange(shape[0]) // dist.period * dist.period
            return part[steps]
        case Slab():
            return _slab(dist, shape, dtype, stream)
        case Mixed():
            return _mixed(dist, shape, dtype, stream)
        case Spiked():
            return _spiked(dist, shape, dtype, stream)
        case Stretch():
            return _stretch(dist, shape, dtype, stream)
        case _:
            return _elementwise(dist, shape, dtype, stream)


def _elementwise(
    dist: Constant | Normal | Uniform | LogUniform | DecayLogit, shape: Shape, dtype: DType, stream: Stream
) -> Array:
    """Each element is a function of its own 16-bit index; for large tensors the function is tabulated first."""
    function = _function(dist, stream)
    count = math.prod(shape)
    if count <= 65536:
        return store(function(stream.child("index").indices(count).astype(np.int64)), dtype).reshape(shape)
    table = store(function(np.arange(65536, dtype=np.int64)), dtype)
    return stream.child("index").gather(table, count).reshape(shape)


def _function(
    dist: Constant | Normal | Uniform | LogUniform | DecayLogit, stream: Stream
) -> Callable[[npt.NDArray[np.int64]], F64]:
    match dist:
        case Constant():
            value = parameter(dist.value, stream.child("value"))
            return lambda index: np.full(index.shape, value)
        case Normal():
            mean, std = parameter(dist.mean, stream.child("mean")), parameter(dist.std, stream.child("std"))
            return lambda index: normal_table()[index].astype(np.float64) * (std * _ONE) + mean
        case Uniform():
            low, high = parameter(dist.low, stream.child("low")), parameter(dist.high, stream.child("high"))
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


def _normals(shape: Shape, stream: Stream) -> npt.NDArray[np.int64]:
    return normal_table()[stream.indices(math.prod(shape))].astype(np.int64).reshape(shape)


def _scales(shape: Shape, spread: float, stream: Stream) -> F64:
    """exp(spread * n), n standard normal."""
    table = _map(math.exp, normal_table()[::16].astype(np.float64) * (spread * _ONE))
    scales: F64 = table[stream.indices(math.prod(shape)) >> 4].reshape(shape)
    return scales


def _activation(dist: Activation, shape: Shape, stream: Stream) -> F64:
    tokens, heads, channels = shape
    value = {
        name: parameter(getattr(dist, name), stream.child(name))
        for name in ("direction", "correlation", "channel_spread", "token_spread", "scale")
    }
    memory = round(value["correlation"] * 4096)
    fresh = round(math.sqrt(1 - value["correlation"] ** 2) * 4096)
    common = _normals((heads, channels), stream.child("common")) * round(value["direction"] * 4096) >> 12
    noise = _normals(shape, stream.child("noise")) * fresh
    walk = np.zeros((heads, channels), dtype=np.int64)
    for token in range(tokens):
        walk = (walk * memory + noise[token]) >> 12
        noise[token] = walk + common
    table = silu_table()
    reach = SILU_RANGE << FRACTION
    index = (np.clip(noise, -reach, reach - 1) + reach) * 32768 // reach
    # Above the table the function is its argument: 8 * sigmoid(12) differs from 8 by 5e-5.
    shaped = np.where(noise >= reach, noise, table[index]).astype(np.float64)
    channel = _scales((1, heads, channels), value["channel_spread"], stream.child("channel"))
    token_scale = _scales((tokens, heads, 1), value["token_spread"], stream.child("token"))
    return shaped * (channel * (value["scale"] * _ONE)) * token_scale


def _rows(shape: Shape) -> tuple[int, int]:
    width = shape[-1] if shape else 1
    return math.prod(shape[:-1]) if shape else 1, width


def _one_hot(dist: OneHot, shape: Shape, dtype: DType, stream: Stream) -> Array:
    rows, width = _rows(shape)
    out = np.zeros((rows, width))
    if rows and width:
        out[np.arange(rows), stream.child("index").below(width, rows)] = parameter(dist.value, stream.child("value"))
    return store(out.reshape(shape), dtype)


def _slab(dist: Slab, shape: Shape, dtype: DType, stream: Stream) -> Array:
    part = draw(dist.of, shape, dtype, stream.child("of"))
    slabs = max(shape[-1] // dist.width, 1)
    start = int(stream.child("slab").below(slabs)[0]) * dist.width
    out = np.zeros_like(part)
    out[..., start : start + dist.width] = part[..., start : start + dist.width]
    return out


def _mixed(dist: Mixed, shape: Shape, dtype: DType, stream: Stream) -> Array:
    rows, width = _rows(shape)
    parts = [
        draw(part, shape, dtype, stream.child("part", i)).reshape(rows, width) for i, part in enumerate(dist.parts)
    ]
    which = stream.child("which").below(len(parts), rows)
    out = parts[0]
    for number, part in enumerate(parts[1:], start=1):
        out = np.where((which == number)[:, None], part, out)
    return out.reshape(shape)


def _spiked(dist: Spiked, shape: Shape, dtype: DType, stream: Stream) -> Array:
    rows, width = _rows(shape)
    out = draw(dist.of, shape, dtype, stream.child("of")).reshape(rows, width).copy()
    if rows and width:
        value = store(np.array([parameter(dist.value, stream.child("value"))]), dtype)[0]
        out[np.arange(rows), stream.child("spike").below(width, rows)] = value
    return out.reshape(shape)


def _stretch(dist: Stretch, shape: Shape, dtype: DType, stream: Stream) -> Array:
    out = draw(dist.of, shape, dtype, stream.child("of")).copy()
    length = round(shape[0] * stream.child("length").between(dist.low, dist.high))
    start = int(stream.child("start").below(shape[0] - length + 1)[0])
    out[start : start + length] = draw(dist.other, (length, *shape[1:]), dtype, stream.child("other"))
    return out
