"""The running sum of exponentials is kept in bfloat16, whose eight bits stop taking in small terms."""

import torch

COLUMNS = 16


def run(x, output):
    rows = x.float()
    power = torch.exp(rows - rows.amax(-1, keepdim=True))
    total = torch.zeros(x.shape[0], 1, dtype=torch.bfloat16, device=x.device)
    for part in power.split(COLUMNS, dim=-1):
        total += part.sum(-1, keepdim=True).bfloat16()
    output.copy_(power / total.float())
