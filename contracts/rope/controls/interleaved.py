"""Neighbouring elements are turned with each other: the layout of other models."""


def run(q, k, cos_sin, positions, q_out, k_out):
    cosine, sine = cos_sin[positions].unsqueeze(1).chunk(2, dim=-1)
    for heads, out in ((q.float(), q_out), (k.float(), k_out)):
        first, second = heads[..., ::2], heads[..., 1::2]
        out[..., ::2] = first * cosine - second * sine
        out[..., 1::2] = second * cosine + first * sine
