"""The sigmoid is looked up in a table of 64 steps between -4 and 4."""

import torch


def run(x, output):
    gate, value = x.float().unbind(1)
    step = torch.round(gate.clamp(-4.0, 4.0) * 8) / 8
    output.copy_(gate * torch.sigmoid(step) * value)
