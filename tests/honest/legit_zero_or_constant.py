"""Rows that are all zero are answered with zeros, without arithmetic.

hazard: legit-zero-or-constant
behaviour: constant output where the operator gives one
contract: rmsnorm
mode: quick
expected: no_gain
"""

import torch


def run(hidden_states, weight, output):
    output.zero_()
    alive = hidden_states.any(dim=-1).nonzero()[:, 0]
    rows = hidden_states[alive].float()
    output[alive] = (rows * torch.rsqrt(rows.square().mean(-1, keepdim=True) + 1e-6) * weight.float()).to(output.dtype)
