"""The sigmoid is replaced by a straight line between -3 and 3, as networks for small processors do."""

import torch


def run(x, output):
    gate, value = x.float().unbind(1)
    output.copy_(torch.nn.functional.hardswish(gate) * value)
