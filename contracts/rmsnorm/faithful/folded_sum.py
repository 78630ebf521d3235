"""The sum of squares as a tree: the row is folded in half until one number is left, as lanes of a warp do it."""

import torch


def run(hidden_states, weight, output):
    values = hidden_states.float()
    inverse = torch.rsqrt(folded(values.square()) / values.shape[1] + 1e-6)
    output.copy_(values * (weight.float() * inverse))


def folded(parts):
    while parts.shape[1] > 1:
        half = (parts.shape[1] + 1) // 2
        upper = parts[:, half:]
        parts = parts[:, :half].clone()
        parts[:, : upper.shape[1]] += upper
    return parts
