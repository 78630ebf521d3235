"""A kernel of ours that a GPU's worker compiles before it says that it is ready.

The first kernel of a process pays for Triton's import, its launcher in C and its compiler's start, and none of that is
the candidate's. Runs inside the sandbox, like worker.py.
"""

import torch
import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def _nothing(place: torch.Tensor, count: tl.constexpr) -> None:
    lane = tl.arange(0, count)
    tl.store(place + lane, tl.load(place + lane))


def compile_one(place: torch.Tensor) -> None:
    """Compile and run it once. `place`: fp32 [32] on the device."""
    _nothing[(1,)](place, 32)
