"""Chunks of 64 tokens in fp32. 64 tokens can decay by e^-320, so products of gates are formed in blocks of 16 with the
border before the row block as reference: every factor is then at most one, or spans a single block.
"""

from itertools import pairwise

import torch

CHUNK = 64
BLOCK = 16


def run(q, k, v, g, beta, A_log, dt_bias, scale, lower_bound, initial_state, cu_seqlens, out, final_state):
    query, key, value = heads_first(unit(q) * scale), heads_first(unit(k)), heads_first(v)
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
            total = torch.cumsum(log_decay[:, now], dim=1)
            out[now] = chunk(state, query[:, now], key[:, now], value[:, now], total, weight[:, now]).transpose(0, 1)


def chunk(state, query, key, value, total, weight):
    """Outputs [H,C,V]; `state` [H,V,K] moves to the end of the chunk."""
    grown, end = torch.exp(total), total[:, -1:]
    couple = weight * gated_products(key, key, total).tril(-1)
    attend = gated_products(query, key, total).tril()
    entry = state.transpose(1, 2)
    residual = weight * (value - (key * grown) @ entry)
    update = torch.linalg.solve_triangular(couple, residual, upper=False, unitriangular=True)
    result = (query * grown) @ entry + attend @ update
    state.mul_(torch.exp(end)).add_(update.transpose(1, 2) @ (key * torch.exp(end - total)))
    return result


def gated_products(rows, columns, total):
    """sum over channels of rows_i columns_j exp(G_i - G_j) for all j up to the end of i's block, zero beyond."""
    heads, tokens, _ = rows.shape
    result = rows.new_zeros(heads, tokens, tokens)
    for start in range(0, tokens, BLOCK):
        block, seen = slice(start, start + BLOCK), slice(0, start + BLOCK)
        border = total[:, start - 1, None] if start else torch.zeros_like(total[:, :1])
        left = rows[:, block] * torch.exp(total[:, block] - border)
        right = columns[:, seen] * torch.exp(border - total[:, seen])
        result[:, block, seen] = left @ right.transpose(1, 2)
    return result


def heads_first(x):
    return x.float().transpose(0, 1).contiguous()


def unit(rows):
    rows = rows.float()
    return rows * torch.rsqrt((rows * rows).sum(-1, keepdim=True) + 1e-6)
