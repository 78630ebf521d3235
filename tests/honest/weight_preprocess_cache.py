"""The weight's fp32 copy is kept for as long as the weight tensor lives.

hazard: weight-preprocess-cache
behaviour: prepares a static input once per tensor, and forgets it with the tensor
contract: rmsnorm
mode: quick
expected: no_gain
"""

import weakref

import torch

prepared = {}


def scale_of(weight):
    key = id(weight)
    if key not in prepared:
        prepared[key] = weight.float()
        weakref.finalize(weight, prepared.pop, key)
    return prepared[key]


def run(hidden_states, weight, output):
    rows = hidden_states.float()
    output.copy_(rows * torch.rsqrt(rows.square().mean(-1, keepdim=True) + 1e-6) * scale_of(weight))
