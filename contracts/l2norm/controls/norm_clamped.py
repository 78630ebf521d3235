"""The norm is kept from falling below the epsilon, as `torch.nn.functional.normalize` has it: other small rows."""

import torch


def run(x, output):
    output.copy_(torch.nn.functional.normalize(x.float(), dim=-1, eps=1e-6))
