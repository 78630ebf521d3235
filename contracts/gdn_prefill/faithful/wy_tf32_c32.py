"""The WY form in chunks of 32 tokens with operands rounded to tf32."""

from itertools import pairwise

import torch

CHUNK = 32
DROPPED_BITS = 13
"""Of the 23 of a mantissa in fp32; tf32 keeps 10."""


def run(q, k, v, state, A_log, a, dt_bias, b, cu_seqlens, scale, output, new_state):
    query, key, value = spread(q, v), spread(k, v), heads_first(v)
    log_decay = -torch.exp(A_log) * torch.nn.functional.softplus(a.float() + dt_bias)
    log_decay, weight = heads_first(log_decay[..., None]), heads_first(torch.sigmoid(b.float())[..., None])
    for n, (begin, end) in enumerate(pairwise(cu_seqlens.tolist())):
        memory = torch.zeros_like(new_state[n]) if state is None or begin == end else state[n].clone()
        for first in range(begin, end, CHUNK):
            now = slice(first, min(first + CHUNK, end))
            total = torch.cumsum(log_decay[:, now], dim=1)
            result = chunk(memory, query[:, now], key[:, now], value[:, now], total, weight[:, now])
            output[now] = ((scale or q.shape[-1] ** -0.5) * result).transpose(0, 1)
        new_state[n] = memory


def chunk(memory, query, key, value, total, weight):
    """Outputs [HV,C,V] before scaling; `memory` [HV,V,K] moves to the end of the chunk."""
    entry, end = operand(memory).transpose(1, 2), total[:, -1:]
    ratio = (total - total.transpose(1, 2)).tril().exp()
    couple = (operand(weight * key) @ key.transpose(1, 2) * ratio).tril(-1)
    one = torch.eye(key.shape[1], device=key.device).expand_as(couple)
    inverse = operand(torch.linalg.solve_triangular(couple, one, upper=False, unitriangular=True))
    reach = operand(inverse @ operand(weight * torch.exp(total) * key))
    fresh = operand(inverse @ operand(weight * value))
    update = fresh - reach @ entry
    attend = operand((query @ key.transpose(1, 2) * ratio).tril())
    memory.mul_(torch.exp(end)).add_(operand(update * torch.exp(end - total)).transpose(1, 2) @ key)
    return torch.exp(total) * (query @ entry) + attend @ operand(update)


def operand(x):
    """Rounded to nearest, ties away from zero."""
    bits = x.contiguous().view(torch.int32) + (1 << (DROPPED_BITS - 1))
    return (bits >> DROPPED_BITS << DROPPED_BITS).view(torch.float32)


def spread(x, v):
    """Each head of q and k for the value heads that share it."""
    return heads_first(x).repeat_interleave(v.shape[1] // x.shape[1], dim=0)


def heads_first(x):
    return x.float().transpose(0, 1).contiguous()
