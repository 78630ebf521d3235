"""The residual is handed on as it came; the normalised rows are right."""

import torch


def run(hidden_states, residual, weight, output, updated_residual):
    total = hidden_states.float() + residual.float()
    updated_residual.copy_(residual)
    output.copy_(total * torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + 1e-6) * weight.float())
