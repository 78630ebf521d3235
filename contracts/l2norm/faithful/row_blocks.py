"""Some rows at a time, so that the fp32 copy stays in the cache; all arithmetic in place."""

import torch

ELEMENTS = 65536


def run(x, output):
    count = max(1, ELEMENTS // x.shape[1])
    for first in range(0, x.shape[0], count):
        rows = x[first : first + count].float()
        inverse = torch.linalg.vecdot(rows, rows).add_(1e-6).rsqrt_()
        output[first : first + count] = rows.mul_(inverse[:, None])
