"""The inverse of a chunk of 32 tokens by doubling, (I - L)(I + L^2)(I + L^4)..., with operands in fp16: powers of L
grow to 1e5 and more where keys repeat, and their small differences are lost.
"""

from itertools import pairwise

import torch

CHUNK = 32


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
    entry, end, grown = memory.transpose(1, 2).clone(), total[:, -1:], torch.exp(total)
    ratio = (total - total.transpose(1, 2)).tril().exp()
    couple = (weight * (key @ key.transpose(1, 2)) * ratio).tril(-1)
    attend = (query @ key.transpose(1, 2) * ratio).tril()
    residual = weight * (value - grown * (key @ entry))
    update = doubled(couple) @ residual
    memory.mul_(torch.exp(end)).add_(update.transpose(1, 2) @ (key * torch.exp(end - total)))
    return grown * (query @ entry) + attend @ update


def doubled(lower):
    eye = torch.eye(lower.shape[-1], device=lower.device)
    inverse, power = eye - lower, lower
    for _ in range(4):
        power = product(power, power)
        inverse = product(inverse, eye + power)
    return inverse


def product(left, right):
    return left.half().float() @ right.half().float()


def spread(x, v):
    """Each head of q and k for the value heads that share it."""
    return heads_first(x).repeat_interleave(v.shape[1] // x.shape[1], dim=0)


def heads_first(x):
    return x.float().transpose(0, 1).contiguous()
