"""The epsilon is added to the root instead of below it: no difference unless a row is tiny."""

import torch


def run(hidden_states, weight, output):
    values = hidden_states.float()
    root = torch.sqrt(values.pow(2).mean(-1, keepdim=True))
    output.copy_(values / (root + 1e-6) * weight.float())
