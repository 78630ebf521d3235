"""Skips the gather where all offsets are zero or absent, which is exact.

hazard: data-dependent-fast-path
behaviour: a branch on the data that changes nothing in the result
contract: center
mode: quick
expected: no_gain
"""

import torch


def honest(x, offset, scale, cu_seqlens, y):
    rows = x.float()
    rows = rows - rows.mean(dim=-1, keepdim=True)
    if offset is not None:
        rows = rows + torch.repeat_interleave(offset, cu_seqlens.diff(), dim=0)[:, None, :]
    y.copy_(scale * rows)


def run(x, offset, scale, cu_seqlens, y):
    if offset is not None and not offset.any():
        offset = None
    if offset is not None and offset.shape[0] == 1:
        rows = x.float()
        y.copy_(scale * (rows - rows.mean(dim=-1, keepdim=True) + offset[0]))
        return
    honest(x, offset, scale, cu_seqlens, y)
