"""Exponentials are kept in the output between two passes: rounded to bfloat16 before they are summed and divided."""

import torch


def run(x, output):
    rows = x.float()
    output.copy_(torch.exp(rows - rows.amax(-1, keepdim=True)))
    output.copy_(output.float() / output.float().sum(-1, keepdim=True))
