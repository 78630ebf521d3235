"""Draws on a CUDA device, equal bit for bit with the CPU's (`bot.verify.draws`).

What a kind of distribution means, parameters, tables and all that is small come from there; what grows with a tensor
is made here, in integers and in single float64 operations, compiled without fusing a multiply with an add.

This module imports Triton, so nothing imports this module where there is no device.
"""

import contextlib
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import triton
import triton.language as tl

from bot.contract.distribution import Activation, Arange, Constant, Distribution
from bot.contract.schema import DType
from bot.verify.draws import (
    E4M3_LARGEST,
    E4M3_NORMAL,
    E4M3_ROUNDER,
    REACH,
    STORAGE,
    Array,
    Shape,
    Simple,
    Walk,
    draw_on,
    numbers,
    rows_of,
    table,
)
from bot.verify.draws import draw as draw_on_host
from bot.verify.philox import Stream, normal_table, silu_table

FEW = 65536
"""Up to this many elements are looked up on the host: their table alone would cost it as much."""
_TABLES_KEPT = 64
_TORCH: dict[DType, torch.dtype] = {dtype: getattr(torch, dtype) for dtype in STORAGE}
_HELD: dict[DType, torch.dtype] = {**_TORCH, "float8_e4m3fn": torch.uint8}
"""While it is made: few functions of torch know 8-bit floats."""
_REACH = tl.constexpr(REACH)
_LARGEST, _NORMAL, _ROUNDER = (tl.constexpr(x) for x in (E4M3_LARGEST, E4M3_NORMAL, E4M3_ROUNDER))
_INTEGERS = tl.constexpr(4503599627370496.0)
"""2**52: from here on every float64 is an integer."""

_COUNTERS = 512
"""Counters of the generator in one program: four a thread, so that 32 look-ups of a thread are under way at once."""
_ELEMENTS = 1024
_LANES = 32
"""Walks in one program: one warp, since there are few walks to spread over the processors."""


def draw(dist: Distribution, shape: Shape, dtype: DType, stream: Stream, device: torch.device) -> torch.Tensor:
    """One tensor of this distribution on `device` in its logical dtype, its bytes those of `bot.verify.draws.draw`.

    It is made on the device's current stream.
    """
    # With its number: tables are kept for a device, and which one "cuda" is may change.
    device = torch.empty(0, device=device).device
    with torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext():
        return draw_on(_Device(device), dist, shape, dtype, stream).view(_TORCH[dtype])


def replace_window(
    held: torch.Tensor, start: int, part: torch.Tensor, heads: npt.NDArray[np.bool_] | None = None
) -> None:
    """Put `part` [length, *held.shape[1:]] in place of the steps of the first axis of `held` from `start` on.

    `heads`: one truth value for each step of the second axis; where it is false, `held` stays as it is.
    """
    if held.dtype == torch.float8_e4m3fn:
        held, part = held.view(torch.uint8), part.view(torch.uint8)
    window = held[start : start + len(part)]
    if heads is None:
        window.copy_(part)
    else:
        chosen = torch.from_numpy(np.flatnonzero(heads)).to(held.device)
        window.index_copy_(1, chosen, part.index_select(1, chosen))


class _Device:
    """Tensors of one device in their logical dtype: `bot.verify.draws.Arrays` says what each function does."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def looked_up(self, dist: Simple, shape: Shape, dtype: DType, stream: Stream) -> torch.Tensor:
        count = math.prod(shape)
        if count <= FEW:
            return self.given(draw_on_host(dist, shape, dtype, stream), dtype)
        entries = _table(dist, numbers(dist, stream), dtype, self._device)
        if isinstance(dist, Constant):
            return entries[:1].expand(count).contiguous().reshape(shape)
        return self._gathered(entries, count, stream.child("index")).reshape(shape)

    def activation(self, dist: Activation, shape: Shape, dtype: DType, stream: Stream) -> torch.Tensor:
        tokens, heads, channels = shape
        out = torch.empty(shape, dtype=_HELD[dtype], device=self._device)
        if 0 in shape:
            return out
        walk, lanes = Walk.of(dist, (heads, channels), stream), heads * channels
        norms = self._gathered(_copied(walk.tokens, self._device), tokens * heads, walk.token, shift=4)
        _walk[(triton.cdiv(lanes, _LANES),)](
            _bits(out),
            _integers(normal_table, self._device),
            _integers(silu_table, self._device),
            _copied(walk.common, self._device),
            _copied(walk.channel, self._device),
            norms,
            *_key(walk.noise),
            tokens,
            heads,
            channels,
            walk.memory,
            walk.fresh,
            dtype=dtype,
            size=_LANES,
            num_warps=1,
            enable_fp_fusion=False,
        )
        return out

    def arange(self, dist: Arange, shape: Shape, dtype: DType) -> torch.Tensor:
        count = math.prod(shape)
        out = torch.empty(shape, dtype=_HELD[dtype], device=self._device)
        if count:
            # A float argument would arrive in float32.
            line = torch.tensor([dist.start, dist.step], dtype=torch.float64, device=self._device)
            grid = (triton.cdiv(count, _ELEMENTS),)
            _arange[grid](
                _bits(out), line, count, dist.period or count, dtype=dtype, size=_ELEMENTS, enable_fp_fusion=False
            )
        return out

    def zeros(self, shape: Shape, dtype: DType) -> torch.Tensor:
        return torch.zeros(shape, dtype=_HELD[dtype], device=self._device)

    def given(self, values: Array, dtype: DType) -> torch.Tensor:
        return _copied(values, self._device).view(_HELD[dtype])

    def packed(self, parts: list[torch.Tensor], shape: Shape, dtype: DType) -> torch.Tensor:
        steps = [part.reshape(shape[0], -1).view(torch.uint8) for part in parts if part.numel()]
        if not steps:
            return self.zeros(shape, dtype)
        return torch.cat(steps, dim=1).view(_HELD[dtype]).reshape(shape)

    def repeat(self, held: torch.Tensor, period: int) -> torch.Tensor:
        return held.index_select(0, torch.arange(len(held), device=self._device) // period * period)

    def clear_outside(self, held: torch.Tensor, start: int, stop: int) -> torch.Tensor:
        held[..., :start].zero_()
        held[..., stop:].zero_()
        return held

    def choose(self, parts: list[torch.Tensor], ends: list[int], stream: Stream) -> torch.Tensor:
        shape = parts[0].shape
        rows, width = rows_of(shape)
        which = self._below(ends[-1], rows, stream)[:, None]
        out = parts[0].reshape(rows, width)
        for begin, part in zip(ends, parts[1:], strict=False):
            out = torch.where(which >= begin, part.reshape(rows, width), out)
        return out.reshape(shape)

    def put(self, held: torch.Tensor, value: Array, stream: Stream) -> torch.Tensor:
        rows, width = rows_of(held.shape)
        if rows and width:
            column = self._below(width, rows, stream)[:, None]
            values = _copied(value, self._device).view(held.dtype).expand(rows, 1)
            held.view(rows, width).scatter_(1, column, values)
        return held

    def replace(self, held: torch.Tensor, start: int, part: torch.Tensor) -> torch.Tensor:
        replace_window(held, start, part)
        return held

    def _gathered(self, entries: torch.Tensor, count: int, stream: Stream, shift: int = 0) -> torch.Tensor:
        """`entries[indices >> shift]`, [count], for `count` 16-bit indices of the stream."""
        blocks = triton.cdiv(count, 8)
        # Whole blocks of the generator are stored, so that no store of 16 bytes is taken apart.
        out = torch.empty(8 * blocks, dtype=entries.dtype, device=self._device)
        _gather[(triton.cdiv(blocks, _COUNTERS),)](
            _bits(out), _bits(entries), *_key(stream), blocks, shift=shift, size=_COUNTERS
        )
        return out[:count]

    def _below(self, bound: int, count: int, stream: Stream) -> torch.Tensor:
        """`stream.below(bound, count)`: int64 [count]."""
        blocks = triton.cdiv(count, 4)
        out = torch.empty(4 * blocks, dtype=torch.int64, device=self._device)
        if blocks:
            _below[(triton.cdiv(blocks, _COUNTERS),)](out, *_key(stream), bound, blocks, size=_COUNTERS)
        return out[:count]


def _key(stream: Stream) -> list[int]:
    """`stream.identity()` as two signed integers of 64 bits: Philox's key, and the upper half of its counters."""
    halves: list[int] = stream.identity().view("<i8").tolist()
    return halves


def _bits(held: torch.Tensor) -> torch.Tensor:
    """Over the same bytes, in a type that kernels keep as it is: Triton's interpreter has no bfloat16."""
    return held.view(torch.int16) if held.dtype == torch.bfloat16 else held


def _copied(array: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    """On the device, in the array's own type; bfloat16 as uint16."""
    return torch.from_numpy(array).to(device)


_tables: dict[tuple[str, str, DType, torch.device], torch.Tensor] = {}


def _table(dist: Simple, value: dict[str, float], dtype: DType, device: torch.device) -> torch.Tensor:
    """`bot.verify.draws.table` on the device, in the logical dtype; the last few stay there."""
    # Parameters by their digits: 0.0 and -0.0 are equal, but their tables are not.
    key = (dist.kind, repr(value), dtype, device)
    held = _tables.pop(key, None)
    if held is None:
        held = _copied(table(dist, value, dtype), device).view(_HELD[dtype])
    if len(_tables) == _TABLES_KEPT:
        del _tables[next(iter(_tables))]
    _tables[key] = held
    return held


@functools.cache
def _integers(make: Callable[[], npt.NDArray[np.int32]], device: torch.device) -> torch.Tensor:
    """A table of fixed integers, int32 [65536]; copied once, for it is read-only on the host."""
    return _copied(make().copy(), device)


def _compiled(*varying: str) -> Callable[[Callable[..., None]], Any]:
    """A kernel, or a function of one. Of the `varying` integers no value has a kernel of its own, as 1 and multiples
    of 16 would: compiling takes longer than drawing."""
    return lambda function: triton.jit(function, do_not_specialize=varying)


@_compiled()
def _words(key: tl.tensor, upper: tl.tensor, block: tl.tensor) -> tl.tuple:
    """The four words of each block of the generator; `block`: int64."""
    c0 = (block & 0xFFFFFFFF).to(tl.uint32)
    c1 = (block >> 32).to(tl.uint32)
    c2 = tl.zeros_like(c0) + upper.to(tl.uint32)
    c3 = tl.zeros_like(c0) + (upper >> 32).to(tl.uint32)
    k0 = key.to(tl.uint32)
    k1 = (key >> 32).to(tl.uint32)
    for _ in tl.static_range(10):
        # One product of 64 bits is one instruction, where Triton's own Philox takes one for either half.
        p0 = c0.to(tl.uint64) * 0xD2511F53
        p1 = c2.to(tl.uint64) * 0xCD9E8D57
        c0 = (p1 >> 32).to(tl.uint32) ^ c1 ^ k0
        c1 = p1.to(tl.uint32)
        c2 = (p0 >> 32).to(tl.uint32) ^ c3 ^ k1
        c3 = p0.to(tl.uint32)
        k0 += 0x9E3779B9
        k1 += 0xBB67AE85
    return c0, c1, c2, c3


@_compiled()
def _looked_up(entries: tl.tensor, word: tl.tensor, shift: tl.constexpr) -> tl.tensor:
    """The entries of both halves of a word, the low one first."""
    low = tl.load(entries + ((word & 0xFFFF) >> shift).to(tl.int32), eviction_policy="evict_last")
    high = tl.load(entries + (word >> (16 + shift)).to(tl.int32), eviction_policy="evict_last")
    return tl.join(low, high)


@_compiled("key", "upper", "blocks")
def _gather(
    out: tl.tensor,
    entries: tl.tensor,
    key: tl.tensor,
    upper: tl.tensor,
    blocks: tl.tensor,
    shift: tl.constexpr,
    size: tl.constexpr,
) -> None:
    """out[8 * blocks] = entries[index >> shift], `size` blocks of 8 indices a program; a thread stores those of whole
    blocks, which lie side by side. Entries stay in the processor's own cache (128 KiB of bfloat16 do); what is stored
    must not push them out."""
    block = tl.program_id(0).to(tl.int64) * size + tl.arange(0, size)
    w0, w1, w2, w3 = _words(key, upper, block)
    even = tl.join(_looked_up(entries, w0, shift), _looked_up(entries, w2, shift))
    odd = tl.join(_looked_up(entries, w1, shift), _looked_up(entries, w3, shift))
    # [size, half, pair, word of the pair] -> [size, pair, word, half]
    values = tl.reshape(tl.permute(tl.join(even, odd), (0, 2, 3, 1)), (size, 8))
    place = block[:, None] * 8 + tl.arange(0, 8)[None, :]
    tl.store(out + place, values, mask=block[:, None] < blocks, eviction_policy="evict_first")


@_compiled("key", "upper", "bound", "blocks")
def _below(
    out: tl.tensor,
    key: tl.tensor,
    upper: tl.tensor,
    bound: tl.tensor,
    blocks: tl.tensor,
    size: tl.constexpr,
) -> None:
    """out[4 * blocks], int64: each word times `bound` (< 2**31), its upper half."""
    block = tl.program_id(0).to(tl.int64) * size + tl.arange(0, size)
    w0, w1, w2, w3 = _words(key, upper, block)
    words = tl.reshape(tl.join(tl.join(w0, w2), tl.join(w1, w3)), (size, 4))
    place = block[:, None] * 4 + tl.arange(0, 4)[None, :]
    tl.store(out + place, (words.to(tl.int64) * bound) >> 32, mask=block[:, None] < blocks)


@_compiled()
def _stored(values: tl.tensor, dtype: tl.constexpr) -> tl.tensor:
    """`bot.verify.draws.store`: float64 to the storage type, to nearest even, by way of float32."""
    if dtype == "bfloat16":
        single = values.to(tl.float32)
        bits = single.to(tl.uint32, bitcast=True)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        held = tl.where(single == single, rounded, 0x7FC0).to(tl.int16)  # noqa: PLR0124 - a NaN is not itself
    elif dtype == "float8_e4m3fn":
        single = values.to(tl.float32)
        sign = (single.to(tl.uint32, bitcast=True) >> 31) << 7
        size = tl.minimum(tl.abs(single), _LARGEST)
        bits = size.to(tl.uint32, bitcast=True)
        normal = ((bits + 0x7FFFF + ((bits >> 20) & 1)) >> 20) - 960
        rounder = tl.full(size.shape, _ROUNDER, tl.float32)
        small = (size + rounder).to(tl.uint32, bitcast=True) - rounder.to(tl.uint32, bitcast=True)
        found = tl.where(size < _NORMAL, small, normal)
        held = (tl.where(single == single, found, 0x7F) | sign).to(tl.uint8)  # noqa: PLR0124 - as above
    elif dtype == "float16":
        held = values.to(tl.float32).to(tl.float16)
    elif dtype == "float32":
        held = values.to(tl.float32)
    else:
        # Adding 2**52 leaves no binary places; libdevice has a function for this, but the interpreter has not.
        size = tl.abs(values)
        whole = tl.where(size < _INTEGERS, (size + _INTEGERS) - _INTEGERS, size)
        signed = tl.where(values < 0, -whole, whole)
        held = signed.to(tl.int64) if dtype == "int64" else signed.to(tl.int32)
        if dtype == "int8" or dtype == "uint8":  # noqa: PLR1714 - compiled
            held = held.to(tl.int8).to(tl.uint8, bitcast=True) if dtype == "uint8" else held.to(tl.int8)
    return held


@_compiled("count", "period")
def _arange(
    out: tl.tensor, line: tl.tensor, count: tl.tensor, period: tl.tensor, dtype: tl.constexpr, size: tl.constexpr
) -> None:
    """out[count]; `line`: start and step, float64."""
    at = tl.program_id(0).to(tl.int64) * size + tl.arange(0, size)
    values = tl.load(line) + (at % period).to(tl.float64) * tl.load(line + 1)
    tl.store(out + at, _stored(values, dtype), mask=at < count)


@_compiled()
def _noise(normals: tl.tensor, key: tl.tensor, upper: tl.tensor, element: tl.tensor) -> tl.tensor:
    """The standard normal of each element, int64. A block of the generator is made eight times over, once for each of
    its elements: there are so few lanes that this costs less than handing its words around."""
    w0, w1, w2, w3 = _words(key, upper, element >> 3)
    place = (element & 7).to(tl.int32)
    word = tl.where(place < 4, tl.where(place < 2, w0, w1), tl.where(place < 6, w2, w3))
    index = tl.where(place & 1 == 0, word & 0xFFFF, word >> 16).to(tl.int32)
    return tl.load(normals + index).to(tl.int64)


@_compiled()
def _shaped(silu: tl.tensor, held: tl.tensor) -> tl.tensor:
    """SiLU of int64 in 2**-16, as float64 in 2**-16; above its table the function is its argument."""
    index = (tl.minimum(tl.maximum(held, -_REACH), _REACH - 1) + _REACH) * 32768 // _REACH
    return tl.where(held >= _REACH, held, tl.load(silu + index).to(tl.int64)).to(tl.float64)


@_compiled("key", "upper", "tokens", "heads", "channels", "memory", "fresh")
def _walk(  # noqa: PLR0913, PLR0917 - what one kernel needs
    out: tl.tensor,
    normals: tl.tensor,
    silu: tl.tensor,
    common: tl.tensor,
    channel: tl.tensor,
    norms: tl.tensor,
    key: tl.tensor,
    upper: tl.tensor,
    tokens: tl.tensor,
    heads: tl.tensor,
    channels: tl.tensor,
    memory: tl.tensor,
    fresh: tl.tensor,
    dtype: tl.constexpr,
    size: tl.constexpr,
) -> None:
    """`bot.verify.draws.Walk` into out [tokens, heads, channels], one lane for each head and channel.

    `normals`, `silu`: int32 [65536]. `common`, `channel`: int64 and float64 [heads, channels]. `norms`: float64
    [tokens, heads]. Four tokens are taken together, loads before stores: a warp is alone on its scheduler, so that it
    must hide its own latencies, and no load is moved before a store that might write what it reads.
    """
    lane = tl.program_id(0) * size + tl.arange(0, size)
    inside = lane < heads * channels
    head = lane // channels
    shared = tl.load(common + lane, mask=inside, other=0)
    scale = tl.load(channel + lane, mask=inside, other=0.0)
    walk = tl.zeros_like(shared)
    lanes = heads.to(tl.int64) * channels
    e0 = lane.to(tl.int64)
    row = norms + head
    token = 0
    # Triton's interpreter has no range over an argument.
    while token < tokens:
        e1, e2, e3 = e0 + lanes, e0 + 2 * lanes, e0 + 3 * lanes
        n0 = _noise(normals, key, upper, e0)
        n1 = _noise(normals, key, upper, e1)
        n2 = _noise(normals, key, upper, e2)
        n3 = _noise(normals, key, upper, e3)
        m0, m1 = inside, inside & (token + 1 < tokens)
        m2, m3 = inside & (token + 2 < tokens), inside & (token + 3 < tokens)
        norm0 = tl.load(row, mask=m0, other=0.0)
        norm1 = tl.load(row + heads, mask=m1, other=0.0)
        norm2 = tl.load(row + 2 * heads, mask=m2, other=0.0)
        norm3 = tl.load(row + 3 * heads, mask=m3, other=0.0)
        h0 = (walk * memory + n0 * fresh) >> 12
        h1 = (h0 * memory + n1 * fresh) >> 12
        h2 = (h1 * memory + n2 * fresh) >> 12
        walk = (h2 * memory + n3 * fresh) >> 12
        x0 = _shaped(silu, h0 + shared) * scale * norm0
        x1 = _shaped(silu, h1 + shared) * scale * norm1
        x2 = _shaped(silu, h2 + shared) * scale * norm2
        x3 = _shaped(silu, walk + shared) * scale * norm3
        tl.store(out + e0, _stored(x0, dtype), mask=m0)
        tl.store(out + e1, _stored(x1, dtype), mask=m1)
        tl.store(out + e2, _stored(x2, dtype), mask=m2)
        tl.store(out + e3, _stored(x3, dtype), mask=m3)
        e0 += 4 * lanes
        row += 4 * heads
        token += 4
