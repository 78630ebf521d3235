"""Terms 17 below the largest are not summed.

seen by: weight_farthest_in_the_tail
"""

import torch


def run(x, output):
    rows = x.float()
    below = rows - rows.amax(-1, keepdim=True)
    power = torch.exp(below)
    output.copy_(power / torch.where(below < -17.0, 0.0, power).sum(-1, keepdim=True))
