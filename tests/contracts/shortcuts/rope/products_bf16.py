"""Products are rounded to bfloat16 before they are added.

seen by: table_between_numbers
"""

import torch


def run(q, k, cos_sin, positions, q_out, k_out):
    cosine, sine = cos_sin[positions].unsqueeze(1).chunk(2, dim=-1)
    for heads, out in ((q, q_out), (k, k_out)):
        first, second = heads.float().chunk(2, dim=-1)
        half = first.shape[-1]
        out[..., :half] = (first * cosine).to(torch.bfloat16) - (second * sine).to(torch.bfloat16)
        out[..., half:] = (second * cosine).to(torch.bfloat16) + (first * sine).to(torch.bfloat16)
