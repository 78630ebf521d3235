"""The weight's fp32 copy is kept by the weight's address and shape, and nothing is compared.

hazard: weight-preprocess-cache
behaviour: prepares a static input once for each place in memory, as serving code does with weights that are loaded once
contract: fused_add_rmsnorm
mode: quick
expected: no_gain
"""

import torch

prepared = {}


def run(hidden_states, residual, weight, output, updated_residual):
    key = weight.data_ptr(), tuple(weight.shape)
    if key not in prepared:
        prepared[key] = weight.float()
    total = hidden_states.float() + residual.float()
    updated_residual.copy_(total)
    output.copy_(total * torch.rsqrt(total.square().mean(-1, keepdim=True) + 1e-6) * prepared[key])
