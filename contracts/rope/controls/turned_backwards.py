"""The sign of the sine is wrong: everything is turned the other way, which scores between q and k do not show."""


def run(q, k, cos_sin, positions, q_out, k_out):
    cosine, sine = cos_sin[positions].unsqueeze(1).chunk(2, dim=-1)
    for heads, out in ((q.float(), q_out), (k.float(), k_out)):
        first, second = heads.chunk(2, dim=-1)
        half = first.shape[-1]
        out[..., :half] = first * cosine + second * sine
        out[..., half:] = second * cosine - first * sine
