"""Keeps operands in bfloat16, as the contract's `compute` says a kernel may, and sums in float32.

hazard: tf32-policy
behaviour: as little precision as is declared
contract: center
mode: quick
expected: no_gain
"""

import torch


def run(x, offset, scale, cu_seqlens, y):
    ones = torch.full((x.shape[-1], 1), 1 / x.shape[-1], dtype=torch.bfloat16)
    rows = x.float() - torch.matmul(x.float(), ones.float())
    if offset is not None:
        rows = rows + torch.repeat_interleave(offset.bfloat16().float(), cu_seqlens.diff(), dim=0)[:, None, :]
    y.copy_(scale * rows)
