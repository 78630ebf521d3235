"""By the logarithm of the sum: one exponential a pass and no quotient."""

import torch


def run(x, output):
    rows = x.float()
    shifted = rows - rows.amax(-1, keepdim=True)
    output.copy_(torch.exp(shifted - torch.exp(shifted).sum(-1, keepdim=True).log()))
