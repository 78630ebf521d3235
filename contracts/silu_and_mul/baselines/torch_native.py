"""torch's own `silu` on bfloat16, which rounds before the product."""

import torch


def run(x, output):
    torch.mul(torch.nn.functional.silu(x[:, 0]), x[:, 1], out=output)
