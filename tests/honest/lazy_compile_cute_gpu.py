"""A CuTe-DSL kernel for each width, compiled when that comes, launched on the stream that is current.

hazard: lazy-compile
behaviour: compiles in the midst of calls
contract: rmsnorm
device: cuda
mode: quick
expected: accepted
"""

import functools

import torch

import cutlass
import cutlass.cute as cute
from cuda.bindings import driver
from cutlass import BFloat16, Float32, Int32, Int64
from cutlass.cute.runtime import make_ptr

THREADS = 128
WARPS = THREADS // 32


@cute.kernel
def normalise(x: cute.Pointer, weight: cute.Pointer, out: cute.Pointer, width: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    layout = cute.make_layout(width)
    values = cute.make_tensor(x + Int64(row) * width, layout)
    scales = cute.make_tensor(weight, layout)
    results = cute.make_tensor(out + Int64(row) * width, layout)
    total = Float32(0.0)
    for column in cutlass.range(thread, width, THREADS):
        value = values[column].to(Float32)
        total += value * value
    total = cute.arch.warp_reduction_sum(total)
    shared = cutlass.utils.SmemAllocator().allocate_tensor(Float32, cute.make_layout(WARPS))
    if thread % 32 == 0:
        shared[thread // 32] = total
    cute.arch.sync_threads()
    total = Float32(0.0)
    for warp in cutlass.range_constexpr(WARPS):
        total += shared[warp]
    inverse = cute.math.rsqrt(total / Float32(width) + 1e-6, fastmath=True)
    for column in cutlass.range(thread, width, THREADS):
        results[column] = (values[column].to(Float32) * inverse * scales[column].to(Float32)).to(BFloat16)


@cute.jit
def launch(
    x: cute.Pointer,
    weight: cute.Pointer,
    out: cute.Pointer,
    rows: Int32,
    stream: driver.CUstream,
    width: cutlass.Constexpr,
):
    normalise(x, weight, out, width).launch(grid=(rows, 1, 1), block=(THREADS, 1, 1), stream=stream)


def pointer(address):
    return make_ptr(BFloat16, address, cute.AddressSpace.gmem, assumed_align=2)


@functools.cache
def compiled(width):
    return cute.compile(launch, pointer(0), pointer(0), pointer(0), Int32(1), driver.CUstream(0), width)


def run(hidden_states, weight, output):
    rows, width = hidden_states.shape
    if rows:
        stream = driver.CUstream(torch.cuda.current_stream().cuda_stream)
        addresses = (tensor.data_ptr() for tensor in (hidden_states, weight, output))
        compiled(width)(*map(pointer, addresses), Int32(rows), stream)
