"""The plain operations through `torch.compile`, which makes one kernel of them for each of q and k."""

import torch


@torch.compile
def turned(heads, cos_sin, positions):
    cosine, sine = cos_sin[positions].unsqueeze(1).chunk(2, dim=-1)
    first, second = heads.float().chunk(2, dim=-1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1).to(heads.dtype)


def run(q, k, cos_sin, positions, q_out, k_out):
    q_out.copy_(turned(q, cos_sin, positions))
    k_out.copy_(turned(k, cos_sin, positions))
