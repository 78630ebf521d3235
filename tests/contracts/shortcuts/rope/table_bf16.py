"""The table is kept in bfloat16.

seen by: table_between_numbers
"""

import torch


def run(q, k, cos_sin, positions, q_out, k_out):
    cosine, sine = cos_sin.to(torch.bfloat16).float()[positions].unsqueeze(1).chunk(2, dim=-1)
    for heads, out in ((q, q_out), (k, k_out)):
        first, second = heads.float().chunk(2, dim=-1)
        half = first.shape[-1]
        out[..., :half] = first * cosine - second * sine
        out[..., half:] = second * cosine + first * sine
