"""Float64 reference of Kimi Delta Attention, in chunks: the recurrence token by token gives the same to 1e-14, which
`tests/contracts/test_kda_prefill.py` holds it to, and takes several times as long.
"""

import torch

from bot.verify.ground import chunks

NORM_EPS = 1e-6
CHUNK = 32
"""Tokens of a chunk: a decay of e^-5 a token makes factors of e^160 at most, far inside float64."""


def oracle(*, q, k, v, g, beta, A_log, dt_bias, scale, lower_bound, initial_state, cu_seqlens, noise):
    """Both outputs in float64; `noise` stands where a faithful kernel may round a matrix operand.

    Shapes: q, k, g [T,H,K], v [T,H,V], beta [T,H], states [N,H,V,K]. The running state is never perturbed, only the
    copies of it that meet a matrix product are. A chunk has inclusive sums G of log-decays, entry state S, and

        (I + L) U = beta * (V - (k e^G) S)    L[i,j] = beta[i] (k[i] e^G[i]) (k[j] e^-G[j]) for i > j
        out = scale * ((q e^G) S + A U)       A[i,j] = (q[i] e^G[i]) (k[j] e^-G[j]) for i >= j
        S'  = S e^G[end] + (k e^(G[end]-G)) U
    """
    heads, keys, values = *k.shape[1:], v.shape[2]
    packed = chunks(cu_seqlens, CHUNK)
    final = v.new_zeros(len(packed.order), heads, values, keys) if initial_state is None else initial_state.clone()
    if not packed.steps:
        return {"out": torch.empty_like(v), "final_state": final}
    log_decay = packed.cut(lower_bound * torch.sigmoid(torch.exp(A_log)[:, None] * (g + dt_bias)))
    total = log_decay.cumsum(2)
    end = total[:, :, -1:]
    query, key, gain = (
        noise(packed.cut(_unit(q))),
        noise(packed.cut(_unit(k))),
        packed.cut(torch.sigmoid(beta)[..., None]),
    )
    read = noise(torch.cat([key, query], dim=2) * torch.exp(total).repeat(1, 1, 2, 1))
    later = noise(key * torch.exp(-total)).transpose(2, 3)
    leave = noise(key * torch.exp(end - total)).transpose(2, 3).contiguous()
    couple = (gain * (read[:, :, :CHUNK] @ later)).tril(-1)
    attend = noise((read[:, :, CHUNK:] @ later).tril())
    one = torch.eye(CHUNK, dtype=v.dtype, device=v.device).expand_as(couple)
    solve = noise(torch.linalg.solve_triangular(couple + one, one, upper=False, unitriangular=True))
    value, keep = noise(gain * packed.cut(v)), torch.exp(end).transpose(2, 3).contiguous()

    # Transposed, [N,H,K,V]: rows of a chunk times the state.
    states, results = final[packed.order].transpose(2, 3).contiguous(), []
    for first, last in packed.steps:
        here, held = slice(first, last), states[: last - first]
        found = read[here] @ noise(held)
        update = noise(solve[here] @ noise(value[here] - gain[here] * found[:, :, :CHUNK]))
        results.append(found[:, :, CHUNK:] + attend[here] @ update)
        states[: last - first] = held * keep[here] + leave[here] @ update
    final[packed.order] = states.transpose(2, 3)
    return {"out": scale * packed.join(results), "final_state": final}


def _unit(rows):
    return rows * torch.rsqrt((rows * rows).sum(-1, keepdim=True) + NORM_EPS)
