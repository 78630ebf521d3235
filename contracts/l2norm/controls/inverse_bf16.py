"""The inverse norm is rounded to bfloat16, the type of what it multiplies."""

import torch


def run(x, output):
    rows = x.float()
    inverse = torch.rsqrt(rows.square().sum(-1, keepdim=True) + 1e-6).to(torch.bfloat16)
    output.copy_(rows * inverse.float())
