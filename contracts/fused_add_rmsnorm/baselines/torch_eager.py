"""Residual addition and RMS normalisation as one writes them in torch: whole tensors in fp32, rounded at the end."""

import torch


def run(hidden_states, residual, weight, output, updated_residual):
    total = hidden_states.float() + residual.float()
    updated_residual.copy_(total)
    inverse = torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + 1e-6)
    output.copy_(total * inverse * weight.float())
