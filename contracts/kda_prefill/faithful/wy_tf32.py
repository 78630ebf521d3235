"""The WY form with operands rounded to tf32: each chunk of 16 tokens becomes one affine map of the state at its entry,
for all chunks of a sequence before the state is known; the chain only applies the maps.
"""

from itertools import pairwise

import torch

CHUNK = 16
DROPPED_BITS = 13
"""Of the 23 of a mantissa in fp32; tf32 keeps 10."""


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
        places = [slice(first, min(first + CHUNK, end)) for first in range(begin, end, CHUNK)]
        parts = [prepare(*(x[:, now] for x in (query, key, value, log_decay, weight))) for now in places]
        for now, (reach, fresh, query_in, attend, key_end, kept) in zip(places, parts, strict=True):
            entry = operand(state).transpose(1, 2)
            update = fresh - reach @ entry
            out[now] = (scale * (query_in @ entry + attend @ operand(update))).transpose(0, 1)
            state.mul_(kept).add_(operand(update).transpose(1, 2) @ key_end)


def prepare(query, key, value, log_decay, weight):
    """What a chunk does to a state it has not seen: it writes `fresh` less `reach` times the state."""
    total = torch.cumsum(log_decay, dim=1)
    end = total[:, -1:]
    middle = total[:, total.shape[1] // 2, None]
    rows, columns = torch.exp(total - middle), operand(key * torch.exp(middle - total))
    couple = weight * (operand(key * rows) @ columns.transpose(1, 2)).tril(-1)
    attend = (operand(query * rows) @ columns.transpose(1, 2)).tril()
    eye = torch.eye(key.shape[1], device=key.device).expand_as(couple)
    solve = operand(torch.linalg.solve_triangular(couple, eye, upper=False, unitriangular=True) * weight.mT)
    reach = operand(solve @ operand(key * torch.exp(total)))
    fresh = solve @ operand(value)
    return (
        reach,
        fresh,
        operand(query * torch.exp(total)),
        operand(attend),
        operand(key * torch.exp(end - total)),
        end.exp(),
    )


def operand(x):
    """Rounded to nearest, ties away from zero."""
    bits = x.contiguous().view(torch.int32) + (1 << (DROPPED_BITS - 1))
    return (bits >> DROPPED_BITS << DROPPED_BITS).view(torch.float32)


def heads_first(x):
    return x.float().transpose(0, 1).contiguous()


def unit(rows):
    rows = rows.float()
    return rows * torch.rsqrt((rows * rows).sum(-1, keepdim=True) + 1e-6)
