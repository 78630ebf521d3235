"""The mean of squares in place of their sum, put right by the root of the width: but the epsilon grows with it."""

import torch


def run(x, output):
    rows = x.float()
    output.copy_(rows * torch.rsqrt(rows.pow(2).mean(-1, keepdim=True) + 1e-6) * x.shape[1] ** -0.5)
