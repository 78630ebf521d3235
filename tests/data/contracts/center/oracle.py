"""y = scale * (x - mean(x) + offset of its sequence), in float64."""

import torch


def oracle(*, x, offset, scale, cu_seqlens, noise):
    """Exact value; `noise` where a kernel would hold a bfloat16 operand."""
    centred = noise(x) - noise(x).mean(dim=-1, keepdim=True)
    if offset is not None:
        lengths = cu_seqlens.diff()
        centred = centred + torch.repeat_interleave(offset, lengths, dim=0)[:, None, :]
    return {"y": scale * centred}
