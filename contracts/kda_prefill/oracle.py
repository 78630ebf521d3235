"""Float64 reference of Kimi Delta Attention: the recurrence token by token, as the contract states it."""

from itertools import pairwise

import torch

NORM_EPS = 1e-6
COPY_LIFETIME = 16
"""Tokens for which one rounded copy of the state may serve a chunked kernel as a matrix operand."""


def oracle(*, q, k, v, g, beta, A_log, dt_bias, scale, lower_bound, initial_state, cu_seqlens, noise):
    """Both outputs in float64; `noise` stands where a faithful kernel rounds a matrix operand.

    Shapes: q, k, g [T,H,K], v [T,H,V], beta [T,H], states [N,H,V,K]. The running state itself is never perturbed. It
    is kept transposed here, [H,K,V]: a row vector times a matrix is several times faster than a matrix times a column.
    """
    tokens, heads, values = v.shape
    sequences, keys = cu_seqlens.numel() - 1, k.shape[2]
    query, key = noise(_unit(q)), noise(_unit(k))
    decay = torch.exp(lower_bound * torch.sigmoid(torch.exp(A_log)[:, None] * (g + dt_bias)))[..., None]
    # Gated copies are rounded once more, and apart. What a token writes is held twice in a chunked kernel: gated to
    # meet the later tokens of its chunk, and gated to the chunk's end to enter the state.
    reads = torch.stack([noise(key), noise(query)], dim=2)
    written = noise(noise(key))[..., None]
    gain = noise(noise(torch.sigmoid(beta)[..., None].expand(tokens, heads, values)))

    final = v.new_zeros(sequences, heads, values, keys) if initial_state is None else initial_state.clone()
    read = v.new_empty(tokens, heads, 2, values)
    delta = v.new_empty(tokens, heads, values)
    # Views of every token at once: indexing inside the loop costs as much as the arithmetic.
    decays, readers, results, writers = (x.unbind(0) for x in (decay, reads, read, written))
    values_in, recalled, deltas, gains, outer = (
        x.unbind(0) for x in (v, read[:, :, 0], delta, gain, delta[:, :, None, :])
    )
    offsets = cu_seqlens.tolist()
    for n, (first, last) in enumerate(pairwise(offsets)):
        state = final[n].transpose(1, 2).contiguous()
        copy = torch.empty_like(state)
        ones = torch.ones_like(state)
        for t in range(first, last):
            if (t - first) % COPY_LIFETIME == 0:
                rounding = noise(ones)
            state.mul_(decays[t])
            # Without noise the copy is the state itself.
            held = state if rounding is ones else torch.mul(state, rounding, out=copy)
            torch.bmm(readers[t], held, out=results[t])
            torch.sub(values_in[t], recalled[t], out=deltas[t]).mul_(gains[t])
            state.addcmul_(writers[t], outer[t])
        final[n] = state.transpose(1, 2)
    # The output reads the state after the update: S' q = S q + d (k · q), with S the decayed state.
    overlap = (written[..., 0] * reads[:, :, 1]).sum(-1, keepdim=True)
    return {"out": scale * (read[:, :, 1] + delta * overlap), "final_state": final}


def _unit(rows):
    return rows * torch.rsqrt((rows * rows).sum(-1, keepdim=True) + NORM_EPS)
