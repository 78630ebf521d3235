"""Float64 reference of the rotary embedding, half-split: element i of a head is turned with element i + D / 2."""

import torch


def oracle(*, q, k, cos_sin, positions, noise):
    """Both outputs in float64; `noise` stands at the products, which kernels may round one by one."""
    cosine, sine = (part.unsqueeze(1) for part in cos_sin[positions].chunk(2, dim=-1))

    def turned(heads):
        first, second = heads.chunk(2, dim=-1)
        return torch.cat(
            [
                noise(first * cosine) - noise(second * sine),
                noise(second * cosine) + noise(first * sine),
            ],
            dim=-1,
        )

    return {"q_out": turned(q), "k_out": turned(k)}
