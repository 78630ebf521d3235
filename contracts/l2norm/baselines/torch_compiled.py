"""The plain operations through `torch.compile`, which makes one kernel of them."""

import torch


@torch.compile
def normalised(x):
    rows = x.float()
    return (rows * torch.rsqrt((rows * rows).sum(-1, keepdim=True) + 1e-6)).to(x.dtype)


def run(x, output):
    output.copy_(normalised(x))
