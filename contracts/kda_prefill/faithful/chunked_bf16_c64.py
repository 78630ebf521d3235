"""Chunks of 64 tokens with every matrix operand rounded to bf16, state and sums in fp32. Products of gates are split in
blocks of 16 at the border before the row block; the solve goes block by block, with an fp32 inverse of 16 tokens each.
"""

from itertools import pairwise

import torch

CHUNK = 64
BLOCK = 16


def run(q, k, v, g, beta, A_log, dt_bias, scale, lower_bound, initial_state, cu_seqlens, out, final_state):
    query, key, value = heads_first(unit(q)), heads_first(unit(k)), heads_first(v)
    gate = torch.exp(A_log)[:, None, None] * (heads_first(g) + dt_bias[:, None, :])
    log_decay = lower_bound * torch.sigmoid(gate)
    weight = torch.sigmoid(heads_first(beta[..., None]))
    if initial_state is None:
        final_state.zero_()
    else:
        final_state.copy_(initial_state)
    for state, (begin, end) in zip(final_state, pairwise(cu_seqlens.tolist()), strict=True):
        for first in range(begin, end, CHUNK):
            now = slice(first, min(first + CHUNK, end))
            total = torch.cumsum(log_decay[:, now], dim=1)
            result = chunk(state, query[:, now], key[:, now], value[:, now], total, weight[:, now])
            out[now] = (scale * result).transpose(0, 1)


def chunk(state, query, key, value, total, weight):
    """Outputs [H,C,V] before scaling; `state` [H,V,K] moves to the end of the chunk."""
    grown, end = torch.exp(total), total[:, -1:]
    entry = operand(state).transpose(1, 2)
    update = weight * (value - operand(key * grown) @ entry)
    result = operand(query * grown) @ entry
    for start in range(0, key.shape[1], BLOCK):
        block, seen = slice(start, start + BLOCK), slice(0, start + BLOCK)
        border = total[:, start - 1, None] if start else torch.zeros_like(end)
        left = torch.exp(total[:, block] - border)
        right = operand(key[:, seen] * torch.exp(border - total[:, seen])).transpose(1, 2)
        couple = weight[:, block] * (operand(key[:, block] * left) @ right)
        update[:, block] -= operand(couple[..., :start]) @ operand(update[:, :start])
        solve = couple[..., start:].tril(-1)
        update[:, block] = torch.linalg.solve_triangular(solve, update[:, block], upper=False, unitriangular=True)
        attend = (operand(query[:, block] * left) @ right).tril(start)
        result[:, block] += operand(attend) @ operand(update[:, seen])
    state.mul_(torch.exp(end)).add_(operand(update).transpose(1, 2) @ operand(key * torch.exp(end - total)))
    return result


def operand(x):
    return x.bfloat16().float()


def heads_first(x):
    return x.float().transpose(0, 1).contiguous()


def unit(rows):
    rows = rows.float()
    return rows * torch.rsqrt((rows * rows).sum(-1, keepdim=True) + 1e-6)
