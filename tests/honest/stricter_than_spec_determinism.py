"""Works through the rows in a random order, with random numbers of its own from every generator.

hazard: stricter-than-spec-determinism
behaviour: random use, reseeding, and version counters that rise by another amount each time
contract: center
mode: quick
expected: no_gain
"""

import random

import numpy
import torch


def honest(x, offset, scale, cu_seqlens, y):
    rows = x.float()
    rows = rows - rows.mean(dim=-1, keepdim=True)
    if offset is not None:
        rows = rows + torch.repeat_interleave(offset, cu_seqlens.diff(), dim=0)[:, None, :]
    y.copy_(scale * rows)


def run(x, offset, scale, cu_seqlens, y):
    torch.manual_seed(random.randrange(2**31))
    order = torch.randperm(x.shape[1])
    for head in order.tolist():
        honest(x[:, head : head + 1], offset, scale, cu_seqlens, y[:, head : head + 1])
    for _ in range(int(numpy.random.default_rng().integers(1, 5))):
        y.mul_(1)
