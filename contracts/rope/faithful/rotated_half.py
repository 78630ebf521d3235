"""The usual form: heads times cosines, plus heads with their halves changed over times sines."""

import torch


def run(q, k, cos_sin, positions, q_out, k_out):
    cosine, sine = (part.repeat(1, 2).unsqueeze(1) for part in cos_sin[positions].chunk(2, dim=-1))
    for heads, out in ((q.float(), q_out), (k.float(), k_out)):
        first, second = heads.chunk(2, dim=-1)
        out.copy_(heads * cosine + torch.cat([-second, first], dim=-1) * sine)
