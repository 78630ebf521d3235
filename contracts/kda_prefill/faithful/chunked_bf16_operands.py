"""Chunks of 16 tokens with every matrix operand rounded to bf16, as tensor cores take them; state, sums and the
triangular solve stay in fp32. The gate is split at the chunk's entry: 16 tokens reach e^80, which bf16 can hold.
"""

from itertools import pairwise

import torch

CHUNK = 16


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
    total = torch.cumsum(log_decay, dim=1)
    end = total[:, -1:]
    key_in, query_in = operand(key * torch.exp(total)), operand(query * torch.exp(total))
    key_out, key_end = operand(key * torch.exp(-total)), operand(key * torch.exp(end - total))
    entry = operand(state).transpose(1, 2)

    couple = weight * (key_in @ key_out.transpose(1, 2)).tril(-1)
    attend = operand((query_in @ key_out.transpose(1, 2)).tril())
    residual = weight * (value - key_in @ entry)
    update = operand(torch.linalg.solve_triangular(couple, residual, upper=False, unitriangular=True))
    state.mul_(torch.exp(end)).add_(update.transpose(1, 2) @ key_end)
    return query_in @ entry + attend @ update


def operand(x):
    return x.bfloat16().float()


def heads_first(x):
    return x.float().transpose(0, 1).contiguous()


def unit(rows):
    rows = rows.float()
    return rows * torch.rsqrt((rows * rows).sum(-1, keepdim=True) + 1e-6)
