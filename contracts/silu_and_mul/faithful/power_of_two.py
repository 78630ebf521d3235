"""The exponential in base two, which is what the hardware has, and a reciprocal in place of the quotient."""

import math

import torch


def run(x, output):
    gate, value = x.float().unbind(1)
    output.copy_(gate * value * torch.exp2(gate * -math.log2(math.e)).add_(1.0).reciprocal_())
