"""RMS normalisation in CuTe-DSL: whole rows in registers, read once, reduced in fp32, rounded once.

A row belongs to LANES threads, each holding CHUNKS vectors of it, neighbours in memory to neighbouring threads. Short
rows share a warp, and a thread holds DEPTH of them; long ones take several warps, which meet once in shared memory.
LANES need not be a power of two: 7168 columns are 224 threads of four 16-byte loads each, and no thread is idle.
"""

import functools
import math
from typing import NamedTuple

import cutlass
import cutlass.cute as cute
import torch
from cuda.bindings import driver
from cutlass import BFloat16, Float32, Int32, Int64
from cutlass.cute.runtime import make_ptr

EPS = 1e-6
WARP = 32
THREADS = 128
"""Threads of a block at least, where rows are short."""
LOADS = 4
"""Loads that a thread has on its way at once: 64 bytes a thread cover the latency of HBM at half occupancy."""
FEW_ROWS = 264
"""Up to two rows for each of an H200's 132 multiprocessors latency decides: more threads, one load each."""

RESOURCES = {"sm_90a": {"registers": 80, "spills": 0}, "sm_100a": {"registers": 80, "spills": 0}}


class Tile(NamedTuple):
    """What one compilation is for. A block works on ROWS * DEPTH rows; VECTOR columns are one load of a thread."""

    vector: int
    lanes: int
    chunks: int
    rows: int
    depth: int


def _tile(rows: int, width: int, vector: int) -> Tile:
    """How B rows of H columns are spread over threads, when `vector` columns can be loaded at once."""
    groups = width // vector
    chunks = 1 if rows <= FEW_ROWS else LOADS
    lanes = -(-groups // chunks)
    # A warp is shared by a power of two of rows; more than a warp is whole warps.
    lanes = min(-(-lanes // WARP) * WARP, 1024) if lanes > WARP // 2 else 1 << max(lanes - 1, 0).bit_length()
    if groups <= WARP:
        # The row fits into one load of a warp: as many lanes as that takes, and more rows for each thread instead.
        lanes = 1 << (groups - 1).bit_length()
    chunks = -(-groups // lanes)
    depth = 1 if rows <= FEW_ROWS or lanes > WARP else max(LOADS // chunks, 1)
    return Tile(vector, lanes, chunks, max(THREADS // lanes, 1), depth)


@cute.kernel
def _rows(
    x: cute.Pointer, weight: cute.Pointer, out: cute.Pointer, rows: Int32, groups: Int32, tile: cutlass.Constexpr
):
    """x, out [rows, groups * vector], weight [groups * vector], bf16."""
    vector, lanes, chunks, block_rows, depth = tile
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    lane, slot = thread % lanes, thread // lanes
    width = groups * vector
    bits = 16 * vector
    # What is used once need not push the weight, which every block reads, out of the first cache.
    once = cute.nvgpu.CacheEvictionPriority.NO_ALLOCATE
    load = cute.make_copy_atom(cute.nvgpu.CopyG2ROp(), BFloat16, num_bits_per_copy=bits, l1c_evict_priority=once)
    copy = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), BFloat16, num_bits_per_copy=bits)

    held = cute.make_rmem_tensor((vector, chunks, depth), BFloat16)
    scale = cute.make_rmem_tensor((vector, chunks), BFloat16)
    held.fill(BFloat16(0.0))
    scale.fill(BFloat16(0.0))
    for d in cutlass.range_constexpr(depth):
        row = (block * depth + d) * block_rows + slot
        for c in cutlass.range_constexpr(chunks):
            group = c * lanes + lane
            if row < rows and group < groups:
                cute.copy(load, _vector(x, Int64(row) * groups + group, vector), held[None, c, d])
    # Asked for before the sum is known, so that its latency hides behind that of x. It comes from the caches.
    for c in cutlass.range_constexpr(chunks):
        group = c * lanes + lane
        if group < groups:
            cute.copy(copy, _vector(weight, Int64(group), vector), scale[None, c])

    weights = scale.load().to(Float32)
    for d in cutlass.range_constexpr(depth):
        values = held[None, None, d].load().to(Float32)
        total = (values * values).reduce(cute.ReductionOp.ADD, Float32(0.0), 0)
        total = _row_sum(total, thread, slot, lanes, block_rows)
        inverse = cute.math.rsqrt(total / Float32(width) + EPS, fastmath=True)
        held[None, None, d].store((values * inverse * weights).to(BFloat16))
    for d in cutlass.range_constexpr(depth):
        row = (block * depth + d) * block_rows + slot
        for c in cutlass.range_constexpr(chunks):
            group = c * lanes + lane
            if row < rows and group < groups:
                cute.copy(copy, held[None, c, d], _vector(out, Int64(row) * groups + group, vector))


@cute.jit
def _vector(base: cute.Pointer, number: Int64, vector: cutlass.Constexpr):
    """Vector `number` of a tensor. 2^20 rows of 2^14 columns do not fit 32 bits."""
    start = cute.assume(number * vector, divby=vector)
    return cute.make_tensor(base + start, cute.make_layout(vector))


@cute.jit
def _row_sum(part: Float32, thread: Int32, slot: Int32, lanes: cutlass.Constexpr, block_rows: cutlass.Constexpr):
    """The sum over a row's threads, in all of them."""
    total = cute.arch.warp_reduction_sum(part, threads_in_group=min(lanes, WARP))
    if cutlass.const_expr(lanes > WARP):
        warps = lanes // WARP
        shared = cutlass.utils.SmemAllocator().allocate_tensor(Float32, cute.make_layout(block_rows * warps))
        if thread % WARP == 0:
            shared[thread // WARP] = total
        cute.arch.sync_threads()
        total = Float32(0.0)
        if thread % WARP < warps:
            total = shared[slot * warps + thread % WARP]
        total = cute.arch.warp_reduction_sum(total)
    return total


@cute.jit
def _launch(
    x: cute.Pointer,
    weight: cute.Pointer,
    out: cute.Pointer,
    rows: Int32,
    groups: Int32,
    stream: driver.CUstream,
    tile: cutlass.Constexpr,
):
    _, lanes, _, block_rows, depth = tile
    blocks = cute.ceil_div(rows, block_rows * depth)
    _rows(x, weight, out, rows, groups, tile).launch(
        grid=(blocks, 1, 1), block=(lanes * block_rows, 1, 1), stream=stream
    )


@functools.cache
def _compiled(tile: Tile):
    pointer = make_ptr(BFloat16, 0, cute.AddressSpace.gmem, assumed_align=2 * tile.vector)
    sizes = Int32(1), Int32(1)
    return cute.compile(_launch, pointer, pointer, pointer, *sizes, driver.CUstream(0), tuple(tile))


@functools.lru_cache(maxsize=512)
def _prepared(rows: int, width: int, stream: int, *addresses: int):
    """A compiled launch and its packed arguments; `kept` owns what those point to. Packing takes CuTe-DSL longer than
    a small call takes the GPU, and depends on nothing but these numbers."""
    vector = math.gcd(width, 8, *(address // 2 for address in addresses))
    tile = _tile(rows, width, vector)
    pointers = [make_ptr(BFloat16, a, cute.AddressSpace.gmem, assumed_align=2 * vector) for a in addresses]
    arguments = (*pointers, Int32(rows), Int32(width // vector), driver.CUstream(stream))
    launch = _compiled(tile)
    packed, kept = launch.execution_args.generate_execution_args(arguments, {})
    return launch, packed, (arguments, kept)


def run(hidden_states: torch.Tensor, weight: torch.Tensor, output: torch.Tensor) -> None:
    """hidden_states [B, H], weight [H], output [B, H], all bf16 and contiguous; on the current stream."""
    rows, width = hidden_states.shape
    if rows == 0:
        return
    # Without a stream the launch would go to the default one, whatever stream the caller is on.
    stream = torch.cuda.current_stream().cuda_stream
    addresses = hidden_states.data_ptr(), weight.data_ptr(), output.data_ptr()
    launch, packed, _ = _prepared(rows, width, stream, *addresses)
    launch.run_compiled_program(packed)
