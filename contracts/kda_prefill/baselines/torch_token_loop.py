"""Kimi Delta Attention as the plain recurrence in fp32: one sequence after another, one token at a time, all heads
together. The state is kept as [H,K,V], which makes each read a row vector times a matrix.
"""

import torch


def run(q, k, v, g, beta, A_log, dt_bias, scale, lower_bound, initial_state, cu_seqlens, out, final_state):
    query = unit(q.float()) * scale
    key = unit(k.float())
    decay = torch.exp(lower_bound * torch.sigmoid(torch.exp(A_log)[:, None] * (g.float() + dt_bias)))
    weight = torch.sigmoid(beta.float())[..., None]
    value = v.float()
    read = torch.empty_like(value)

    offsets = cu_seqlens.tolist()
    for n in range(len(offsets) - 1):
        if initial_state is None:
            state = torch.zeros_like(final_state[n]).transpose(1, 2).contiguous()
        else:
            state = initial_state[n].transpose(1, 2).contiguous()
        for t in range(offsets[n], offsets[n + 1]):
            state.mul_(decay[t][:, :, None])
            delta = weight[t] * (value[t] - torch.bmm(key[t][:, None, :], state)[:, 0])
            state.addcmul_(key[t][:, :, None], delta[:, None, :])
            torch.bmm(query[t][:, None, :], state, out=read[t][:, None, :])
        final_state[n] = state.transpose(1, 2)
    out.copy_(read)


def unit(rows):
    return rows * torch.rsqrt((rows * rows).sum(-1, keepdim=True) + 1e-6)
