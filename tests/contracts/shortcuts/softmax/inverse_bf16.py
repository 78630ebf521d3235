"""The inverse of the sum is rounded to bfloat16.

seen by: sums_between_numbers
"""

import torch


def run(x, output):
    rows = x.float()
    power = torch.exp(rows - rows.amax(-1, keepdim=True))
    output.copy_(power * power.sum(-1, keepdim=True).reciprocal().to(torch.bfloat16).float())
