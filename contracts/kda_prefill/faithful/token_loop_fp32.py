"""The recurrence in fp32, all sequences in lock step: at step t every sequence that is longer than t takes its token.
The state stays in the contract's layout and the sums are written out.
"""

import torch


def run(q, k, v, g, beta, A_log, dt_bias, scale, lower_bound, initial_state, cu_seqlens, out, final_state):
    query, key = unit(q.float()), unit(k.float())
    decay = torch.exp(lower_bound * torch.sigmoid(torch.exp(A_log)[:, None] * (g.float() + dt_bias)))
    weight = torch.sigmoid(beta.float())[..., None]
    state = torch.zeros_like(final_state) if initial_state is None else initial_state.clone()
    starts, lengths = cu_seqlens[:-1], cu_seqlens.diff()
    for step in range(max(lengths.tolist(), default=0)):
        alive = (lengths > step).nonzero()[:, 0]
        token = starts[alive] + step
        decayed = state[alive] * decay[token][:, :, None, :]
        seen = (decayed * key[token][:, :, None, :]).sum(-1)
        delta = weight[token] * (v[token].float() - seen)
        updated = decayed + delta[..., None] * key[token][:, :, None, :]
        state[alive] = updated
        out[token] = (scale * (updated * query[token][:, :, None, :]).sum(-1)).to(out.dtype)
    final_state.copy_(state)


def unit(rows):
    return rows * torch.rsqrt((rows * rows).sum(-1, keepdim=True) + 1e-6)
