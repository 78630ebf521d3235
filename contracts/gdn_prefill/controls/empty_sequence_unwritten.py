"""Where there is no state, a sequence without tokens is skipped, and its new state left as it was."""

from itertools import pairwise

import torch


def run(q, k, v, state, A_log, a, dt_bias, b, cu_seqlens, scale, output, new_state):
    query, key = spread(q, v), spread(k, v)
    decay = torch.exp(-torch.exp(A_log) * torch.nn.functional.softplus(a.float() + dt_bias))
    weight, value = torch.sigmoid(b.float())[..., None], v.float()
    read = torch.empty_like(value)
    for n, (first, last) in enumerate(pairwise(cu_seqlens.tolist())):
        if state is None and first == last:
            continue
        entry = torch.zeros_like(new_state[n]) if state is None or first == last else state[n]
        memory = entry.transpose(1, 2).contiguous()
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
