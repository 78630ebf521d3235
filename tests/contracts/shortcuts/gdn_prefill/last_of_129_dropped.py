"""A token that is left over after whole chunks of 128 is not taken.

seen by: lengths_around_128
"""

import torch


def run(q, k, v, state, A_log, a, dt_bias, b, cu_seqlens, scale, output, new_state):
    query, key = spread(q, v), spread(k, v)
    decay = torch.exp(-torch.exp(A_log) * torch.log1p(torch.exp(a.float() + dt_bias)))
    weight, starts, lengths = torch.sigmoid(b.float())[..., None], cu_seqlens[:-1], cu_seqlens.diff()
    memory = torch.zeros_like(new_state) if state is None else state.clone()
    memory[lengths == 0] = 0.0
    for step in range(max(lengths.tolist(), default=0)):
        left_over = (lengths > 1) & (lengths % 128 == 1) & (step == lengths - 1)
        alive = ((lengths > step) & ~left_over).nonzero()[:, 0]
        token = starts[alive] + step
        decayed = memory[alive] * decay[token][:, :, None, None]
        seen = (decayed * key[token][:, :, None, :]).sum(-1)
        delta = weight[token] * (v[token].float() - seen)
        updated = decayed + delta[..., None] * key[token][:, :, None, :]
        memory[alive] = updated
        read = (updated * query[token][:, :, None, :]).sum(-1)
        output[token] = ((scale or q.shape[-1] ** -0.5) * read).to(output.dtype)
    new_state.copy_(memory)


def spread(x, v):
    """Each head of q and k for the value heads that share it."""
    return x.float().repeat_interleave(v.shape[1] // x.shape[1], dim=1)
