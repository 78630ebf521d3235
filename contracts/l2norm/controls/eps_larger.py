"""An epsilon of 1e-5, the default of other layers."""

import torch


def run(x, output):
    rows = x.float()
    output.copy_(rows * torch.rsqrt(rows.pow(2).sum(-1, keepdim=True) + 1e-5))
