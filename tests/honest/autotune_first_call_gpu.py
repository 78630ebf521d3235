"""A Triton kernel that tries two configurations in its first call of a shape.

hazard: autotune-first-call
behaviour: the first call takes long and writes the output several times
contract: rmsnorm
device: cuda
mode: quick
expected: accepted
"""

import torch

import triton
import triton.language as tl


@triton.autotune([triton.Config({}, num_warps=4), triton.Config({}, num_warps=8)], key=["width"])
@triton.jit
def normalise(hidden_states, weight, output, width, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    inside = column < width
    x = tl.load(hidden_states + row * width + column, mask=inside, other=0.0).to(tl.float32)
    inverse = tl.rsqrt(tl.sum(x * x) / width + 1e-6)
    scaled = x * inverse * tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(output + row * width + column, scaled.to(tl.bfloat16), mask=inside)


def run(hidden_states, weight, output):
    rows, width = hidden_states.shape
    if rows:
        normalise[(rows,)](hidden_states, weight, output, width, triton.next_power_of_2(width))
