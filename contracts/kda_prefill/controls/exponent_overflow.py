"""Chunks of 64 tokens whose decays are powers of two, the exponent written straight into its eight bits: past 126 bits
of decay the number is not small but wrong. Slow gates never get there.
"""

from itertools import pairwise

import torch

CHUNK = 64
LOG2_E = 1.4426950408889634


def run(q, k, v, g, beta, A_log, dt_bias, scale, lower_bound, initial_state, cu_seqlens, out, final_state):
    query, key, value = heads_first(unit(q)), heads_first(unit(k)), heads_first(v)
    gate = torch.exp(A_log)[:, None, None] * (heads_first(g) + dt_bias[:, None, :])
    log_decay = lower_bound * torch.sigmoid(gate)
    weight = torch.sigmoid(heads_first(beta[..., None]))
    if initial_state is None:
        final_state.zero_()
    else:
        final_state.copy_(initial_state)
    offsets = cu_seqlens.tolist()
    for state, (begin, end) in zip(final_state, pairwise(offsets), strict=True):
        for first in range(begin, end, CHUNK):
            now = slice(first, min(first + CHUNK, end))
            rows = (query[:, now], key[:, now], value[:, now], log_decay[:, now], weight[:, now])
            out[now] = (scale * chunk(state, *rows)).transpose(0, 1)


def chunk(state, query, key, value, log_decay, weight):
    """Outputs [H,C,V] before scaling; `state` [H,V,K] moves to the end of the chunk."""
    total = torch.cumsum(log_decay * LOG2_E, dim=1)
    end = total[:, -1:]
    key_in, query_in, key_out = key * power(total), query * power(total), key * power(-total)
    entry = state.transpose(1, 2).clone()
    couple = weight * (key_in @ key_out.transpose(1, 2)).tril(-1)
    residual = weight * (value - key_in @ entry)
    update = torch.linalg.solve_triangular(couple, residual, upper=False, unitriangular=True)
    state.mul_(power(end)).add_(update.transpose(1, 2) @ (key * power(end - total)))
    return query_in @ entry + (query_in @ key_out.transpose(1, 2)).tril() @ update


def power(x):
    whole = torch.floor(x)
    return ((whole.int() + 127) << 23).view(torch.float32) * torch.exp2(x - whole)


def heads_first(x):
    return x.float().transpose(0, 1).contiguous()


def unit(rows):
    rows = rows.float()
    return rows * torch.rsqrt((rows * rows).sum(-1, keepdim=True) + 1e-6)
