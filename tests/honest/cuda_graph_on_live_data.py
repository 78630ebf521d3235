"""Operations are recorded once per address and replayed on whatever lies there now, as a captured graph does.

hazard: cuda-graph-on-live-data
behaviour: replays keyed on addresses, which look like memoisation, but compute from live contents
contract: center
mode: full
expected: accepted
"""

import torch

recorded = {}


def record(x, offset, cu_seqlens, y):
    rows = torch.empty(x.shape)
    mean = torch.empty(*x.shape[:-1], 1)
    steps = [
        lambda scale: rows.copy_(x),
        lambda scale: torch.mean(rows, dim=-1, keepdim=True, out=mean),
        lambda scale: rows.sub_(mean),
    ]
    if offset is not None:
        steps.append(lambda scale: rows.add_(torch.repeat_interleave(offset, cu_seqlens.diff(), dim=0)[:, None, :]))
    return [*steps, lambda scale: y.copy_(rows.mul_(scale))]


def run(x, offset, scale, cu_seqlens, y):
    key = (x.data_ptr(), y.data_ptr(), tuple(x.shape), offset is None or tuple(offset.shape), cu_seqlens.data_ptr())
    if key not in recorded:
        recorded[key] = record(x, offset, cu_seqlens, y)
    for step in recorded[key]:
        step(scale)
