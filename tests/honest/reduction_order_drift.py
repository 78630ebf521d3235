"""Sums by halves, in another order than any reference.

hazard: reduction-order-drift
behaviour: a tree reduction in float32
contract: center
mode: quick
expected: no_gain
"""

import torch


def tree_sum(rows):
    while rows.shape[-1] > 1:
        half = rows.shape[-1] // 2
        rows = rows[..., :half] + rows[..., half:]
    return rows


def run(x, offset, scale, cu_seqlens, y):
    rows = x.float()
    rows = rows - tree_sum(rows) / rows.shape[-1]
    if offset is not None:
        rows = rows + torch.repeat_interleave(offset, cu_seqlens.diff(), dim=0)[:, None, :]
    y.copy_(scale * rows)
