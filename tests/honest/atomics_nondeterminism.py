"""Partial sums are added in an order that differs from call to call.

hazard: atomics-nondeterminism
behaviour: not repeatable bit for bit
contract: rmsnorm
mode: quick
expected: no_gain
"""

import random

import torch


def run(hidden_states, weight, output):
    rows = hidden_states.float()
    width = rows.shape[1]
    starts = list(range(0, width, 64))
    random.shuffle(starts)
    total = torch.zeros(rows.shape[0], 1)
    for start in starts:
        total += rows[:, start : start + 64].square().sum(-1, keepdim=True)
    output.copy_(rows * torch.rsqrt(total / width + 1e-6) * weight.float())
