"""Computes in float64 and rounds once.

hazard: reference-in-other-precision
behaviour: more precise than the contract asks
contract: center
mode: quick
expected: no_gain
"""

import torch


def run(x, offset, scale, cu_seqlens, y):
    rows = x.double()
    rows = rows - rows.mean(dim=-1, keepdim=True)
    if offset is not None:
        rows = rows + torch.repeat_interleave(offset.double(), cu_seqlens.diff(), dim=0)[:, None, :]
    y.copy_(scale * rows)
