"""Keeps a workspace for each shape and writes it anew in each call.

hazard: workspace-and-plan-cache
behaviour: state between calls that holds no results
contract: rmsnorm
device: cuda
mode: quick
expected: accepted
"""

import torch

spaces = {}


def run(hidden_states, weight, output):
    key = tuple(hidden_states.shape)
    if key not in spaces:
        spaces[key] = torch.empty(key, dtype=torch.float32, device=hidden_states.device)
    rows = spaces[key].copy_(hidden_states)
    inverse = torch.rsqrt((rows * rows).mean(-1, keepdim=True) + 1e-6)
    output.copy_(rows.mul_(inverse).mul_(weight))
