"""From the ninth head on the first half is turned as the token before is: an index that runs over."""


def run(q, k, cos_sin, positions, q_out, k_out):
    cosine, sine = cos_sin[positions].unsqueeze(1).chunk(2, dim=-1)
    for heads, out in ((q.float(), q_out), (k.float(), k_out)):
        first, second = heads.chunk(2, dim=-1)
        half = first.shape[-1]
        out[..., :half] = first * cosine - second * sine
        out[..., half:] = second * cosine + first * sine
        out[:, 8:, :half] = first[:, 8:] * cosine.roll(1, 0) - second[:, 8:] * sine.roll(1, 0)
