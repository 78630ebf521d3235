"""Float64 reference of the gated delta rule, in chunks: the recurrence token by token gives the same to 1e-12, which
`tests/contracts/test_gdn_prefill.py` holds it to, and takes several times as long.
"""

import torch

from bot.verify.ground import chunks

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
    heads, keys, values = v.shape[1], k.shape[2], v.shape[2]
    packed = chunks(cu_seqlens, CHUNK)
    final = v.new_zeros(len(packed.order), heads, values, keys) if state is None else state.clone()
    final[cu_seqlens.diff() == 0] = 0.0
    if not packed.steps:
        return {"output": torch.empty_like(v), "new_state": final}

    def cut(x):
        """[T,H,D] to [chunks,HV,CHUNK,D], each head of q and k for the value heads that share it."""
        return packed.cut(x).repeat_interleave(heads // x.shape[1], dim=1)

    dt = a + dt_bias
    log_decay = cut((-torch.exp(A_log) * torch.logaddexp(dt, torch.zeros_like(dt)))[..., None])
    query, key, gain = cut(q), cut(k), cut(torch.sigmoid(b)[..., None])
    total = log_decay.cumsum(2)
    end, grown = total[:, :, -1:], torch.exp(total)
    ratio = (total - total.transpose(2, 3)).tril().exp()
    couple = (noise(gain * key) @ key.transpose(2, 3) * ratio).tril(-1)
    attend = noise((query @ key.transpose(2, 3) * ratio).tril())
    leave = noise(key * torch.exp(end - total)).transpose(2, 3).contiguous()
    one = torch.eye(CHUNK, dtype=v.dtype, device=v.device).expand_as(couple)
    solve = noise(torch.linalg.solve_triangular(couple + one, one, upper=False, unitriangular=True))
    fresh, reach = noise(solve @ noise(gain * cut(v))), noise(solve @ noise(gain * key * grown))
    read, keep = torch.cat([reach, noise(query * grown)], dim=2), torch.exp(end)

    # Transposed, [N,HV,K,V]: rows of a chunk times the state.
    states, results = final[packed.order].transpose(2, 3).contiguous(), []
    for first, last in packed.steps:
        here, held = slice(first, last), states[: last - first]
        found = read[here] @ noise(held)
        update = noise(fresh[here] - found[:, :, :CHUNK])
        results.append(found[:, :, CHUNK:] + attend[here] @ update)
        states[: last - first] = held * keep[here] + leave[here] @ update
    final[packed.order] = states.transpose(2, 3)
    return {"output": (scale or keys**-0.5) * packed.join(results), "new_state": final}
