"""RMS normalisation in Triton: whole rows in registers, read once, reduced in fp32, rounded once.

A program owns a tile of ROWS whole rows, BLOCK columns wide (the power of two that holds H). All of a class of widths
share one compilation: H enters as `groups * VECTOR`, by which the compiler knows how far loads may be widened.
"""

import math

import torch
import triton
import triton.language as tl

EPS = 1e-6
TILE = 4096
"""Elements of a program for ordinary calls: with 32 a thread, four 16-byte loads are on their way at once."""
FEW_ROWS = 264
"""Up to two rows for each of an H200's 132 multiprocessors latency decides: more threads, one load each."""

RESOURCES = {"sm_90a": {"registers": 168, "spills": 0}, "sm_100a": {"registers": 168, "spills": 0}}


@triton.jit(do_not_specialize=["rows", "groups"])
def _rows(x_ptr, weight_ptr, out_ptr, rows, groups, EPS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
          VECTOR: tl.constexpr):  # fmt: skip
    """x, out [rows, groups * VECTOR] bf16, weight [groups * VECTOR] bf16; out = x * rsqrt(mean(x^2) + EPS) * weight."""
    width = groups * VECTOR
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    # 2^20 rows of 2^14 columns do not fit 32 bits.
    place = row.to(tl.int64)[:, None] * width + column[None, :]
    inside = (row < rows)[:, None] & (column < width)[None, :]
    x = tl.load(x_ptr + place, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
    # Asked for before the sum is known, so that its latency hides behind that of x. Every program reads it again.
    weight = tl.load(weight_ptr + column, mask=column < width, other=0.0, eviction_policy="evict_last").to(tl.float32)
    inverse = tl.rsqrt(tl.sum(x * x, axis=1) / width + EPS)
    y = x * inverse[:, None] * weight[None, :]
    tl.store(out_ptr + place, y.to(tl.bfloat16), mask=inside)


def _shape(rows: int, width: int) -> tuple[int, int, int]:
    """Columns and rows of a tile, and its warps."""
    block = triton.next_power_of_2(width)
    if rows <= FEW_ROWS:
        return block, 1, min(max(block // 256, 1), 16)
    height = max(TILE // block, 1)
    return block, height, min(max(block * height // 1024, 1), 16)


def run(hidden_states: torch.Tensor, weight: torch.Tensor, output: torch.Tensor) -> None:
    """hidden_states [B, H], weight [H], output [B, H], all bf16 and contiguous; on the current stream."""
    rows, width = hidden_states.shape
    if rows == 0:
        return
    block, height, warps = _shape(rows, width)
    vector = math.gcd(width, 8)
    _rows[(triton.cdiv(rows, height),)](
        hidden_states, weight, output, rows, width // vector, EPS, block, height, vector, num_warps=warps
    )
