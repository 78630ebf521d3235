"""Float64 reference of the gated delta rule, in chunks: the recurrence token by token gives the same to 1e-12, which
`tests/contracts/test_gdn_prefill.py` holds it to, and takes several times as long.
"""

from itertools import pairwise

import torch

CHUNK = 32


def oracle(*, q, k, v, state, A_log, a, dt_bias, b, cu_seqlens, scale, noise):
    """Both outputs in float64; `noise` stands where a faithful kernel may round a matrix operand.

    Shapes: q, k [T,HQ,K], v [T,HV,V], a, b [T,HV], states [N,HV,V,K]. q and k as they are given are exact operands, and
    the running state is never perturbed, only the copies of it that meet a matrix product are. A chunk has inclusive
    sums G of log-decays, ratios D[i,j] = e^(G[i]-G[j]), none above one, and the state S at its entry:

        U = M (b V) - M (b k e^G) S        M = (I + L)^-1, L[i,j] = b[i] k[i] k[j] D[i,j] for i > j
        out = scale * ((q e^G) S + A U)    A[i,j] = q[i] k[j] D[i,j] for i >= j
        S'  = S e^G[end] + (k e^(G[end]-G)) U
    """
    tokens, heads, values = v.shape
    sequences, keys = cu_seqlens.numel() - 1, k.shape[2]
    final = v.new_zeros(sequences, heads, values, keys) if state is None else state.clone()
    final[cu_seqlens.diff() == 0] = 0.0
    out = v.new_empty(tokens, heads, values)
    spans = [
        (n, start, min(start + CHUNK, last))
        for n, (first, last) in enumerate(pairwise(cu_seqlens.tolist()))
        for start in range(first, last, CHUNK)
    ]
    if not spans:
        return {"output": out, "new_state": final}
    # Past a sequence's end stands a token of zeros: it neither decays nor writes.
    rows = torch.full((len(spans), CHUNK), tokens)
    for row, (_, start, stop) in zip(rows, spans, strict=True):
        row[: stop - start] = torch.arange(start, stop)

    def chunks(x):
        """[T,H,D] to [chunks,HV,CHUNK,D], each head of q and k for the value heads that share it."""
        spread = torch.cat([x, x.new_zeros(1, *x.shape[1:])])[rows].transpose(1, 2)
        return spread.repeat_interleave(heads // x.shape[1], dim=1).contiguous()

    dt = a + dt_bias
    log_decay = chunks((-torch.exp(A_log) * torch.logaddexp(dt, torch.zeros_like(dt)))[..., None])
    query, key, gain = chunks(q), chunks(k), chunks(torch.sigmoid(b)[..., None])
    total = log_decay.cumsum(2)
    end, grown = total[:, :, -1:], torch.exp(total)
    ratio = (total - total.transpose(2, 3)).tril().exp()
    couple = (noise(gain * key) @ key.transpose(2, 3) * ratio).tril(-1)
    attend = noise((query @ key.transpose(2, 3) * ratio).tril())
    leave = noise(key * torch.exp(end - total)).transpose(2, 3).contiguous()
    one = torch.eye(CHUNK, dtype=v.dtype).expand_as(couple)
    solve = noise(torch.linalg.solve_triangular(couple + one, one, upper=False, unitriangular=True))
    fresh, reach = noise(solve @ noise(gain * chunks(v))), noise(solve @ noise(gain * key * grown))
    read, keep = torch.cat([reach, noise(query * grown)], dim=2), torch.exp(end)

    # Transposed, [HV,K,V]: rows of a chunk times the state.
    states = final.transpose(2, 3).contiguous()
    for m, (n, start, stop) in enumerate(spans):
        found = torch.bmm(read[m], noise(states[n]))
        update = noise(fresh[m] - found[:, :CHUNK])
        result = torch.baddbmm(found[:, CHUNK:], attend[m], update)
        out[start:stop] = result[:, : stop - start].transpose(0, 1)
        states[n] = torch.baddbmm(states[n] * keep[m], leave[m], update)
    return {"output": (scale or keys**-0.5) * out, "new_state": states.transpose(2, 3).contiguous()}
