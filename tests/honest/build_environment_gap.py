"""Optional parts that are missing here: it tries to import them, reads its own source, and goes on without.

hazard: build-environment-gap
behaviour: exceptions caught at import, inspect.getsource on itself, dataclasses and annotations
contract: center
mode: quick
expected: no_gain
"""

from __future__ import annotations

import dataclasses
import inspect

import torch

try:
    import fast_kernels_that_are_not_there as fast
except ImportError:
    fast = None
try:
    with open("/usr/local/cuda/include/cuda.h") as header:
        version = header.readline()
except OSError:
    version = ""


@dataclasses.dataclass(frozen=True)
class Config:
    tile: int = 64
    name: str = "σ"


def honest(x, offset, scale, cu_seqlens, y):
    rows = x.float()
    rows = rows - rows.mean(dim=-1, keepdim=True)
    if offset is not None:
        rows = rows + torch.repeat_interleave(offset, cu_seqlens.diff(), dim=0)[:, None, :]
    y.copy_(scale * rows)


lines = inspect.getsource(honest)


def run(x: torch.Tensor, offset: torch.Tensor | None, scale: float, cu_seqlens: torch.Tensor, y: torch.Tensor) -> None:
    config = Config()
    for first in range(0, x.shape[1], config.tile):
        heads = slice(first, first + config.tile)
        honest(x[:, heads], offset, scale, cu_seqlens, y[:, heads])


if __name__ == "__main__":
    print(lines)
