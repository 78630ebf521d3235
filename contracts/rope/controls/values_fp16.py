"""All arithmetic in half precision, which ends at 65,504 and below at 6e-8."""


def run(q, k, cos_sin, positions, q_out, k_out):
    cosine, sine = cos_sin.half()[positions].unsqueeze(1).chunk(2, dim=-1)
    for heads, out in ((q.half(), q_out), (k.half(), k_out)):
        first, second = heads.chunk(2, dim=-1)
        half = first.shape[-1]
        out[..., :half] = first * cosine - second * sine
        out[..., half:] = second * cosine + first * sine
