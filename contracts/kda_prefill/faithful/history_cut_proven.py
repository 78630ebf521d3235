"""History is cut where the gates of this very call prove that it does not matter, and only there: a part of a sequence
starts from zero some tokens early when what is dropped stays below 2^-20 of every output of the part and of the state
it leaves. Otherwise the part goes on from the state before it.
"""

import torch

PART = 64
HALO = 48
NEGLIGIBLE = 2.0**-20


def run(q, k, v, g, beta, A_log, dt_bias, scale, lower_bound, initial_state, cu_seqlens, out, final_state):
    query, key, value = unit(q.float()), unit(k.float()), v.float()
    decay = torch.exp(lower_bound * torch.sigmoid(torch.exp(A_log)[:, None] * (g.float() + dt_bias)))
    weight = torch.sigmoid(beta.float())[..., None]
    rows = (query, key, value, decay, weight)
    offsets = cu_seqlens.tolist()
    for n in range(len(offsets) - 1):
        begin, end = offsets[n], offsets[n + 1]
        entry = torch.zeros_like(final_state[n]) if initial_state is None else initial_state[n]
        state = entry.transpose(1, 2).contiguous()
        largest = state.flatten(1).norm(dim=-1)
        for first in range(begin, end, PART):
            last = min(first + PART, end)
            read = cut(largest, state, rows, (begin, first, last)) if first - HALO > begin else None
            if read is None:
                read = recur(state, rows, first, last)
            out[first:last] = (scale * read).to(out.dtype)
        final_state[n] = state.transpose(1, 2)


def cut(largest, state, rows, places):
    """Reads of a part computed from zero, with `state` [H,K,V] moved to its end; None where that is not proven."""
    begin, first, last = places
    early = first - HALO
    # A token multiplies the state by decays and by I - b k k', whose norm is at most one, and adds at most b |v|: no
    # state up to `early` exceeds `largest` plus those sums, and each later token shrinks it by its largest decay.
    bound = largest + (rows[4] * rows[2])[begin:early].norm(dim=-1).sum(0)
    dropped = bound * rows[3][early : first + 1].amax(-1).prod(0)
    if not bool((dropped < NEGLIGIBLE).all()):
        return None
    fresh = torch.zeros_like(state)
    read = recur(fresh, rows, early, last)[HALO:]
    least = torch.minimum(read.norm(dim=-1).amin(0), fresh.norm(dim=1).amin(-1))
    if not bool((dropped <= NEGLIGIBLE * least).all()):
        return None
    state.copy_(fresh)
    return read


def recur(state, rows, first, last):
    """Reads [tokens,H,V] of the tokens first … last − 1; `state` [H,K,V] moves on with them."""
    query, key, value, decay, weight = rows
    read = torch.empty_like(value[first:last])
    for t in range(first, last):
        state.mul_(decay[t][:, :, None])
        delta = weight[t] * (value[t] - torch.bmm(key[t][:, None, :], state)[:, 0])
        state.addcmul_(key[t][:, :, None], delta[:, None, :])
        torch.bmm(query[t][:, None, :], state, out=read[t - first][:, None, :])
    return read


def unit(rows):
    return rows * torch.rsqrt((rows * rows).sum(-1, keepdim=True) + 1e-6)
