"""torch's own fused `rms_norm`."""

import torch


def run(hidden_states, weight, output):
    output.copy_(torch.rms_norm(hidden_states, (hidden_states.shape[-1],), weight, 1e-6))
