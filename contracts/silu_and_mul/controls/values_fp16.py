"""All arithmetic in half precision, which ends at 65,504 and below at 6e-8."""

import torch


def run(x, output):
    gate, value = x.half().unbind(1)
    output.copy_(torch.nn.functional.silu(gate) * value)
