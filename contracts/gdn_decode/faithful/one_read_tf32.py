"""The state is read once, by k and q together, rounded to tf32 for that."""

import torch

DROPPED_BITS = 13
"""Of the 23 of a mantissa in fp32; tf32 keeps 10."""


def run(q, k, v, state, A_log, a, dt_bias, b, scale, output, new_state):
    query, key = spread(q, v), spread(k, v)
    decay = torch.exp(-torch.exp(A_log) * torch.log1p(torch.exp(a[:, 0].float() + dt_bias)))
    weight, value = torch.sigmoid(b[:, 0].float())[..., None], v[:, 0].float()
    start = torch.zeros_like(new_state) if state is None else state
    seen = decay[..., None, None] * (operand(start) @ torch.stack([key, query], dim=-1))
    update = weight * (value - seen[..., 0])
    read = seen[..., 1] + update * (key * query).sum(-1, keepdim=True)
    output.copy_((read * (scale or q.shape[-1] ** -0.5))[:, None])
    torch.add(decay[..., None, None] * start, update[..., None] * key[:, :, None, :], out=new_state)


def spread(x, v):
    """[B,HV,K], each head of q and k for the value heads that share it."""
    return x[:, 0].float().repeat_interleave(v.shape[2] // x.shape[2], dim=1)


def operand(x):
    """Rounded to nearest, ties away from zero."""
    bits = x.contiguous().view(torch.int32) + (1 << (DROPPED_BITS - 1))
    return (bits >> DROPPED_BITS << DROPPED_BITS).view(torch.float32)
