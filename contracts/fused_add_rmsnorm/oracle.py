"""Float64 reference of residual addition and RMS normalisation; the epsilon stands inside the root."""

import torch

EPS = 1e-6


def oracle(*, hidden_states, residual, weight, noise):
    """Both outputs in float64; `noise` stands at the sum, which kernels may round before they normalise it."""
    total = hidden_states + residual
    held = noise(total)
    inverse = torch.rsqrt((held * held).mean(-1, keepdim=True) + EPS)
    return {"output": held * inverse * weight, "updated_residual": total}
