"""The sigmoid as exp(x) / (1 + exp(x)), which is no number from a gate of 89 on."""

import torch


def run(x, output):
    gate, value = x.float().unbind(1)
    power = torch.exp(gate)
    output.copy_(gate * (power / (1 + power)) * value)
