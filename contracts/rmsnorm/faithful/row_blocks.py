"""A few rows at a time, so that the fp32 copy stays in the cache; all arithmetic in place."""

import torch

ROWS = 16


def run(hidden_states, weight, output):
    scale = weight.float()
    for first in range(0, hidden_states.shape[0], ROWS):
        rows = hidden_states[first : first + ROWS].float()
        inverse = torch.linalg.vecdot(rows, rows).div_(rows.shape[1]).add_(1e-6).rsqrt_()
        output[first : first + ROWS] = rows.mul_(inverse[:, None]).mul_(scale)
