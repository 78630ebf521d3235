"""Float64 reference of Kimi Delta Attention, in chunks: the recurrence token by token gives the same to 1e-14, which
`tests/contracts/test_kda_prefill.py` holds it to, and takes several times as long.
"""

from itertools import pairwise

import torch

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
    tokens, heads, values = v.shape
    sequences, keys = cu_seqlens.numel() - 1, k.shape[2]
    final = v.new_zeros(sequences, heads, values, keys) if initial_state is None else initial_state.clone()
    out = v.new_empty(tokens, heads, values)
    spans = [
        (n, start, min(start + CHUNK, last))
        for n, (first, last) in enumerate(pairwise(cu_seqlens.tolist()))
        for start in range(first, last, CHUNK)
    ]
    if not spans:
        return {"out": out, "final_state": final}
    # Past a sequence's end stands a token of zeros: it neither decays nor writes.
    rows = torch.full((len(spans), CHUNK), tokens)
    for row, (_, start, stop) in zip(rows, spans, strict=True):
        row[: stop - start] = torch.arange(start, stop)

    def chunks(x):
        """[T,H,D] to [chunks,H,CHUNK,D]."""
        return torch.cat([x, x.new_zeros(1, *x.shape[1:])])[rows].transpose(1, 2).contiguous()

    log_decay = chunks(lower_bound * torch.sigmoid(torch.exp(A_log)[:, None] * (g + dt_bias)))
    total = log_decay.cumsum(2)
    end = total[:, :, -1:]
    query, key, gain = noise(chunks(_unit(q))), noise(chunks(_unit(k))), chunks(torch.sigmoid(beta)[..., None])
    read = noise(torch.cat([key, query], dim=2) * torch.exp(total).repeat(1, 1, 2, 1))
    later = noise(key * torch.exp(-total)).transpose(2, 3)
    leave = noise(key * torch.exp(end - total)).transpose(2, 3).contiguous()
    couple = (gain * (read[:, :, :CHUNK] @ later)).tril(-1)
    attend = noise((read[:, :, CHUNK:] @ later).tril())
    one = torch.eye(CHUNK, dtype=v.dtype).expand_as(couple)
    solve = noise(torch.linalg.solve_triangular(couple + one, one, upper=False, unitriangular=True))
    value, keep = noise(gain * chunks(v)), torch.exp(end).transpose(2, 3).contiguous()

    # Transposed, [H,K,V]: rows of a chunk times the state.
    states = final.transpose(2, 3).contiguous()
    for m, (n, start, stop) in enumerate(spans):
        found = torch.bmm(read[m], noise(states[n]))
        update = noise(torch.bmm(solve[m], noise(value[m] - gain[m] * found[:, :CHUNK])))
        result = torch.baddbmm(found[:, CHUNK:], attend[m], update)
        out[start:stop] = result[:, : stop - start].transpose(0, 1)
        states[n] = torch.baddbmm(states[n] * keep[m], leave[m], update)
    return {"out": scale * out, "final_state": states.transpose(2, 3).contiguous()}


def _unit(rows):
    return rows * torch.rsqrt((rows * rows).sum(-1, keepdim=True) + NORM_EPS)
