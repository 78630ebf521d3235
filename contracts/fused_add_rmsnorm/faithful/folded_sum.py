"""The sum of squares as a tree: the row is folded in half until one number is left, as lanes of a warp do it."""

import torch


def run(hidden_states, residual, weight, output, updated_residual):
    total = hidden_states.float() + residual.float()
    updated_residual.copy_(total)
    inverse = torch.rsqrt(folded(total.square()) / total.shape[1] + 1e-6)
    output.copy_(total * (weight.float() * inverse))


def folded(parts):
    while parts.shape[1] > 1:
        half = (parts.shape[1] + 1) // 2
        upper = parts[:, half:]
        parts = parts[:, :half].clone()
        parts[:, : upper.shape[1]] += upper
    return parts
