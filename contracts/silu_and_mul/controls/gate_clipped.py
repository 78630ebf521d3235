"""The gate is kept between -8 and 8, where a table of the sigmoid ends."""

import torch


def run(x, output):
    gate, value = x.float().unbind(1)
    output.copy_(gate * torch.sigmoid(gate.clamp(-8.0, 8.0)) * value)
