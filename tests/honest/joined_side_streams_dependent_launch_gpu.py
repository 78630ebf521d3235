"""Two launches that overlap: the second is there when the first begins, and waits for it before it reads its results.

hazard: joined-side-streams
behaviour: work of a call goes on after a later launch of it has begun
contract: rmsnorm
device: cuda
mode: quick
expected: accepted
"""

import torch

import triton
import triton.language as tl
from triton.language.extra import cuda


@triton.jit
def measure(hidden_states, inverse, width, WIDTH: tl.constexpr):
    cuda.gdc_launch_dependents()
    row = tl.program_id(0)
    column = tl.arange(0, WIDTH)
    x = tl.load(hidden_states + row.to(tl.int64) * width + column, mask=column < width, other=0.0).to(tl.float32)
    tl.store(inverse + row, tl.rsqrt(tl.sum(x * x) / width + 1e-6))


@triton.jit
def scale(hidden_states, weight, inverse, output, width, WIDTH: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, WIDTH)
    inside = column < width
    place = row.to(tl.int64) * width + column
    scaled = tl.load(hidden_states + place, mask=inside, other=0.0).to(tl.float32)
    scaled = scaled * tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    cuda.gdc_wait()
    tl.store(output + place, (scaled * tl.load(inverse + row)).to(tl.bfloat16), mask=inside)


def run(hidden_states, weight, output):
    rows, width = hidden_states.shape
    if rows:
        inverse = torch.empty(rows, device=hidden_states.device)
        wide = triton.next_power_of_2(width)
        measure[(rows,)](hidden_states, inverse, width, wide)
        scale[(rows,)](hidden_states, weight, inverse, output, width, wide, launch_pdl=True)
