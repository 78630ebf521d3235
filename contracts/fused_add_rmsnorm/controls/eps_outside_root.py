"""The epsilon is added to the root instead of below it: no difference unless a row is tiny."""

import torch


def run(hidden_states, residual, weight, output, updated_residual):
    total = hidden_states.float() + residual.float()
    updated_residual.copy_(total)
    output.copy_(total / (torch.sqrt(total.pow(2).mean(-1, keepdim=True)) + 1e-6) * weight.float())
