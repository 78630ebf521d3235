"""Returns its reused workspace beside filling the output.

hazard: workspace-output-alias
behaviour: a return value that the next call overwrites
contract: center
mode: quick
expected: no_gain
"""

import torch

workspace = {}


def honest(x, offset, scale, cu_seqlens, y):
    rows = x.float()
    rows = rows - rows.mean(dim=-1, keepdim=True)
    if offset is not None:
        rows = rows + torch.repeat_interleave(offset, cu_seqlens.diff(), dim=0)[:, None, :]
    y.copy_(scale * rows)


def run(x, offset, scale, cu_seqlens, y):
    result = workspace.setdefault(tuple(y.shape), torch.empty_like(y))
    honest(x, offset, scale, cu_seqlens, result)
    y.copy_(result)
    return result
