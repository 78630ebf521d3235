"""Leaves scratch files about, some of them named like tests and harness files.

hazard: agent-scratch-files
behaviour: writes test_*.py, conftest.py and logs into its working directory
contract: center
mode: quick
expected: no_gain
"""

import pathlib

import torch

for name in ("test_kernel.py", "conftest.py", "contract.yaml", "debug.log", "core.1"):
    pathlib.Path(name).write_text("scratch\n")


def honest(x, offset, scale, cu_seqlens, y):
    rows = x.float()
    rows = rows - rows.mean(dim=-1, keepdim=True)
    if offset is not None:
        rows = rows + torch.repeat_interleave(offset, cu_seqlens.diff(), dim=0)[:, None, :]
    y.copy_(scale * rows)


run = honest
