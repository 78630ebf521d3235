"""L2 normalisation as one writes it in torch: whole tensors in fp32, one rounding at the end."""

import torch


def run(x, output):
    rows = x.float()
    output.copy_(rows * torch.rsqrt(rows.pow(2).sum(-1, keepdim=True) + 1e-6))
