"""Kimi Delta Attention in windows of 32 tokens. The gate decays the state by orders of magnitude within a window, so
windows do not wait for each other: only the first one of a sequence reads a state, the initial one.
"""

import torch

CHUNK = 32
TOGETHER = 4


def run(q, k, v, g, beta, A_log, dt_bias, scale, lower_bound, initial_state, cu_seqlens, out, final_state):
    if initial_state is None:
        final_state.zero_()
    else:
        final_state.copy_(initial_state)
    rate, bias = torch.exp(A_log)[:, None, None], dt_bias[:, None, :]
    offsets = cu_seqlens.tolist()
    chunks = chunks_of(offsets)
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
        begins = [start == offsets[n] for n, start in zip(sequences, first, strict=True)]
        result = advance([final_state[n] for n in sequences], begins, *parts).transpose(1, 2)
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


def advance(states, begins, own, crossing, write, decay):
    """Outputs [chunks,H,32,V], in the place of `own`'s; a state [H,V,K] ends as its last window leaves it."""
    for c, (state, begin) in enumerate(zip(states, begins, strict=True)):
        if begin:
            own[c].baddbmm_(crossing[c], state.transpose(1, 2))
            state.mul_(decay[c])
        else:
            state.zero_()
        state.baddbmm_(own[c, :, :CHUNK].transpose(1, 2), write[c])
    return own[:, :, CHUNK:]
