"""Sums of squares by atomic additions, in whatever order they come.

hazard: atomics-nondeterminism
behaviour: two runs differ in the last bit
contract: rmsnorm
device: cuda
mode: quick
expected: accepted
"""

import torch


def run(hidden_states, weight, output):
    rows = hidden_states.float()
    count, width = rows.shape
    owner = torch.arange(count, device=rows.device)[:, None].expand(count, width).reshape(-1)
    sums = torch.zeros(count, device=rows.device).index_add_(0, owner, (rows * rows).reshape(-1))
    inverse = torch.rsqrt(sums / width + 1e-6)[:, None]
    output.copy_(rows * inverse * weight.float())
