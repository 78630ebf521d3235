"""The sigmoid as (1 + tanh(x / 2)) / 2, in which nothing is left of a gate below -17."""

import torch


def run(x, output):
    gate, value = x.float().unbind(1)
    output.copy_(gate * (0.5 + 0.5 * torch.tanh(0.5 * gate)) * value)
