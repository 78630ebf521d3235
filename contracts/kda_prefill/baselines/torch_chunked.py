"""Kimi Delta Attention in chunks of 32 tokens, fp32, all heads together: matrix products through torch, a loop on the
host hands the state from chunk to chunk.
"""

from itertools import pairwise

import torch

CHUNK = 32


def run(q, k, v, g, beta, A_log, dt_bias, scale, lower_bound, initial_state, cu_seqlens, out, final_state):
    log_decay = lower_bound * torch.sigmoid(torch.exp(A_log)[:, None] * (g.float() + dt_bias))
    query, key, value = heads_first(unit(q) * scale), heads_first(unit(k)), heads_first(v.float())
    log_decay, weight = heads_first(log_decay), heads_first(torch.sigmoid(beta.float())[..., None])
    if initial_state is None:
        final_state.zero_()
    else:
        final_state.copy_(initial_state)
    for state, (begin, end) in zip(final_state, pairwise(cu_seqlens.tolist()), strict=True):
        for first in range(begin, end, CHUNK):
            now = slice(first, min(first + CHUNK, end))
            total = torch.cumsum(log_decay[:, now], dim=1)
            result = chunk(state, query[:, now], key[:, now], value[:, now], total, weight[:, now])
            out[now] = result.transpose(0, 1)


def chunk(state, query, key, value, total, weight):
    """Outputs [H,C,V]; `state` [H,V,K] moves to the end of the chunk. A token's decay is at least e^-5, so halves of a
    chunk of 32 meet at a border with factors of e^80 at most, which fp32 holds."""
    steps = total.shape[1]
    border = total[:, steps // 2, None]
    grown, later = torch.exp(total - border), key * torch.exp(border - total)
    entry = torch.exp(border) * state
    both = torch.cat([key * grown, query * grown], dim=1)
    near = both @ later.transpose(1, 2)
    far = both @ entry.transpose(1, 2)
    couple = weight * near[:, :steps].tril(-1)
    update = torch.linalg.solve_triangular(couple, weight * (value - far[:, :steps]), upper=False, unitriangular=True)
    end = total[:, -1:]
    state.mul_(torch.exp(end)).baddbmm_(update.transpose(1, 2), key * torch.exp(end - total))
    return far[:, steps:] + near[:, steps:].tril() @ update


def heads_first(x):
    return x.transpose(0, 1).contiguous()


def unit(rows):
    rows = rows.float()
    return rows * torch.rsqrt((rows * rows).sum(-1, keepdim=True) + 1e-6)
