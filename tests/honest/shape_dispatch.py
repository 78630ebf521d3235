"""Another tiling for each shape, with a table of the published ones and a default.

hazard: shape-dispatch
behaviour: tuning by exact shape; the same algorithm everywhere
contract: center
mode: quick
expected: no_gain
"""

import torch

TILES = {(512, 4): 128, (64, 1): 64}


def honest(x, offset, scale, cu_seqlens, y):
    rows = x.float()
    rows = rows - rows.mean(dim=-1, keepdim=True)
    if offset is not None:
        rows = rows + torch.repeat_interleave(offset, cu_seqlens.diff(), dim=0)[:, None, :]
    y.copy_(scale * rows)


def run(x, offset, scale, cu_seqlens, y):
    tile = TILES.get(tuple(x.shape[:2]), 33)
    every = None if offset is None else torch.repeat_interleave(offset, cu_seqlens.diff(), dim=0)
    one = torch.arange(2)
    for first in range(0, x.shape[0], tile):
        part = slice(first, first + tile)
        size = len(x[part])
        shift = None if every is None else every[part]
        honest(x[part], shift, scale, torch.arange(size + 1) if shift is not None else one, y[part])
