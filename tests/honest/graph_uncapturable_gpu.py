"""Looks at its data on the host in the midst of a call, and launches what they need.

hazard: graph-uncapturable
behaviour: a call waits for the device, allocates, and is no graph
contract: rmsnorm
device: cuda
mode: quick
expected: accepted
"""

import torch

FINE = 1e6


def run(hidden_states, weight, output):
    rows = hidden_states.float()
    if rows.numel() and rows.abs().max().item() > FINE:
        rows = rows.double()
    inverse = torch.rsqrt((rows * rows).mean(-1, keepdim=True) + 1e-6)
    output.copy_(rows * inverse * weight.to(rows.dtype))
