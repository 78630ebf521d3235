"""Float64 reference of L2 normalisation; the epsilon stands inside the root."""

import torch

EPS = 1e-6


def oracle(*, x, noise):
    """The output in float64; `noise` stands at a row's factor, all that a kernel holds in fp32 between two passes."""
    return {"output": x * noise(torch.rsqrt((x * x).sum(-1, keepdim=True) + EPS))}
