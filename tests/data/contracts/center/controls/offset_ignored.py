"""The offset is never read."""

import torch


def run(x, offset, scale, cu_seqlens, y):
    rows = x.float()
    y.copy_((scale * (rows - rows.mean(dim=-1, keepdim=True))).to(torch.bfloat16))
