"""In the order of the public definition: what the key held is taken away and its mixture with the new value put in
its place, each as a product of its own; fp32, the state transposed.
"""

import torch


def run(q, k, v, state, A_log, a, dt_bias, b, scale, output, new_state):
    share = v.shape[2] // q.shape[2]
    query, key = (x.float().transpose(1, 2).repeat_interleave(share, dim=1) for x in (q, k))
    decay = torch.exp(-torch.exp(A_log) * torch.nn.functional.softplus(a.float() + dt_bias)).transpose(1, 2)[..., None]
    weight, value = torch.sigmoid(b.float()).transpose(1, 2)[..., None], v.float().transpose(1, 2)
    kept = (torch.zeros_like(new_state) if state is None else state).transpose(2, 3) * decay
    held = key @ kept
    mixed = weight * value + (1 - weight) * held
    now = kept - key.transpose(2, 3) @ held + key.transpose(2, 3) @ mixed
    output.copy_(((scale or q.shape[-1] ** -0.5) * (query @ now)).transpose(1, 2))
    new_state.copy_(now.transpose(2, 3))
