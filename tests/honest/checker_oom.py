"""Needs half a gigabyte of scratch memory in each call.

hazard: checker-oom
behaviour: large memory use
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
    scratch = torch.zeros(1 << 27)
    honest(x, offset, scale, cu_seqlens, y)
    del scratch
