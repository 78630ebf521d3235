"""The second half of a row is taken for the gate: the layout of other models."""

import torch


def run(x, output):
    value, gate = x.float().unbind(1)
    output.copy_(torch.nn.functional.silu(gate) * value)
