"""Rounds to bfloat16 half up by hand, where torch rounds half to even.

hazard: bitwise-across-toolchains
behaviour: last bits differ from the baseline's
contract: center
mode: quick
expected: no_gain
"""

import torch


def run(x, offset, scale, cu_seqlens, y):
    rows = x.float()
    rows = rows - rows.mean(dim=-1, keepdim=True)
    if offset is not None:
        rows = rows + torch.repeat_interleave(offset, cu_seqlens.diff(), dim=0)[:, None, :]
    bits = (scale * rows).contiguous().view(torch.int32)
    y.view(torch.int16).copy_((bits + 0x8000) >> 16)
