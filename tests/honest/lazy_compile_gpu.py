"""A Triton kernel whose source is written when the first call of a width comes, in a thread that compiles it there.

hazard: lazy-compile
behaviour: generated source on disk, a compile thread, the first call of each width takes long
contract: rmsnorm
device: cuda
mode: quick
expected: accepted
"""

import importlib.util
import threading
from pathlib import Path

import torch

import triton

SOURCE = """
import triton
import triton.language as tl


@triton.jit
def normalise(hidden_states, weight, output):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, {block})
    inside = column < {width}
    x = tl.load(hidden_states + row * {width} + column, mask=inside, other=0.0).to(tl.float32)
    inverse = tl.rsqrt(tl.sum(x * x) / {width} + 1e-6)
    scaled = x * inverse * tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(output + row * {width} + column, scaled.to(tl.bfloat16), mask=inside)
"""
compiled = {}


def build(width, *tensors):
    path = Path(f"/tmp/normalise_{width}.py")
    path.write_text(SOURCE.format(width=width, block=triton.next_power_of_2(width)))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with torch.cuda.device(tensors[0].device):
        module.normalise.warmup(*tensors, grid=(1,))
    compiled[width] = module.normalise


def run(hidden_states, weight, output):
    rows, width = hidden_states.shape
    if not rows:
        return
    if width not in compiled:
        thread = threading.Thread(target=build, args=(width, hidden_states, weight, output))
        thread.start()
        thread.join()
    compiled[width][(rows,)](hidden_states, weight, output)
