"""Kimi Delta Attention in chunks of 16 tokens, exact for every gate. The Gram matrices and triangular
inverses of several chunks and all heads are prepared in one batch; then the state is carried from chunk to chunk.

With G the cumulative log-decay in a chunk and S the state [V,K] at its entry:

    u = M v - M (k exp G) S'               M = (I + L)^-1 diag(b)
    o = A u + (q exp G) S'                 L, A: products of k and of q with k, times exp(G_i - G_j), lower triangles
    S <- S exp(G_end) + u' (k exp(G_end - G))
"""

import torch

CHUNK = 16
"""exp(G_i - G_j) is split at the middle of a chunk: with e^-5 a token no factor leaves e^45, and fp32 reaches e^88."""

TOGETHER = 8
"""Chunks prepared in one batch: at four heads temporaries of 256 KiB, which fit the second-level cache."""


def run(q, k, v, g, beta, A_log, dt_bias, scale, lower_bound, initial_state, cu_seqlens, out, final_state):
    if initial_state is None:
        final_state.zero_()
    else:
        final_state.copy_(initial_state)
    rate, bias = torch.exp(A_log)[:, None, None], dt_bias[:, None, :]
    chunks = chunks_of(cu_seqlens.tolist())
    for group in (chunks[i : i + TOGETHER] for i in range(0, len(chunks), TOGETHER)):
        sequences, first, last = zip(*group, strict=True)
        slots = torch.tensor(first, device=q.device)[:, None] + torch.arange(CHUNK, device=q.device)
        ends = torch.tensor(last, device=q.device)[:, None]
        # A slot past the end repeats its own sequence's last token, without decay and without weight.
        token, filled = torch.minimum(slots, ends), slots <= ends
        tensors = torch.stack([x[token] for x in (k, q, v, g)]).permute(1, 3, 0, 2, 4)
        tensors = tensors.to(torch.float32, memory_format=torch.contiguous_format)
        gate = tensors[:, :, 3].add_(bias).mul_(rate).sigmoid_().mul_(filled[:, None, :, None] * lower_bound)
        weight = beta[token].float().sigmoid_().mul_(filled[..., None]).transpose(1, 2)[..., None]
        parts = prepare(tensors[:, :, :2].flatten(2, 3), tensors[:, :, 2], gate, weight, scale)
        result = advance([final_state[n] for n in sequences], *parts).transpose(1, 2)
        out[token[filled]] = result[filled].to(out.dtype)


def chunks_of(offsets):
    """Sequence, first and last token of every chunk; none straddles a border."""
    return [
        (n, first, min(first + CHUNK, offsets[n + 1]) - 1)
        for n in range(len(offsets) - 1)
        for first in range(offsets[n], offsets[n + 1], CHUNK)
    ]


def prepare(pair, value, gate, weight, scale):
    """What needs no state, keys above queries: own [M v; A M v], crossing [-M (k exp G); q exp G - A M (k exp G)],
    k exp(G_end - G) and exp(G_end).
    """
    norm = torch.rsqrt_((pair * pair).sum(-1, keepdim=True).add_(1e-6))
    norm[:, :, CHUNK:] *= scale
    pair.mul_(norm)
    total = torch.ones(CHUNK, CHUNK, device=gate.device).tril_() @ gate
    middle, end = total[:, :, CHUNK // 2, None], total[:, :, -1:]
    up = torch.exp(total - middle)
    down = pair[:, :, :CHUNK] / up
    pair.unflatten(2, (2, CHUNK)).mul_(up[:, :, None])
    gram = pair @ down.transpose(2, 3)
    couple = gram[:, :, :CHUNK].tril(-1).mul_(weight)
    eye = torch.eye(CHUNK, device=gate.device).expand_as(couple)
    solve = torch.linalg.solve_triangular(couple, eye, upper=False, unitriangular=True) * weight.transpose(2, 3)
    both = torch.cat([solve, gram[:, :, CHUNK:].tril() @ solve], dim=2)
    pair.mul_(torch.exp(middle))
    crossing = (both @ pair[:, :, :CHUNK]).neg_()
    crossing[:, :, CHUNK:] += pair[:, :, CHUNK:]
    return both @ value, crossing, down.mul_(torch.exp(end - middle)), torch.exp(end)


def advance(states, own, crossing, write, decay):
    """Outputs [chunks,H,16,V], in the place of `own`'s; each chunk moves its sequence's state [H,V,K] on."""
    for c, state in enumerate(states):
        own[c].baddbmm_(crossing[c], state.transpose(1, 2))
        state.mul_(decay[c]).baddbmm_(own[c, :, :CHUNK].transpose(1, 2), write[c])
    return own[:, :, CHUNK:]
