"""A gate above 5 counts as open.

seen by: gates_nearly_open
"""

import torch


def run(x, output):
    gate, value = x.float().unbind(1)
    output.copy_(gate * torch.where(gate > 5.0, 1.0, torch.sigmoid(gate)) * value)
