"""The sum of squares as a tree: the row is folded in half until one number is left, as lanes of a warp do it."""

import torch


def run(x, output):
    rows = x.float()
    output.copy_(rows * torch.rsqrt(folded(rows.square()) + 1e-6))


def folded(parts):
    while parts.shape[1] > 1:
        half = (parts.shape[1] + 1) // 2
        upper = parts[:, half:]
        parts = parts[:, :half].clone()
        parts[:, : upper.shape[1]] += upper
    return parts
