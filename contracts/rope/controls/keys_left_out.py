"""Keys are handed on as they came."""


def run(q, k, cos_sin, positions, q_out, k_out):
    cosine, sine = cos_sin[positions].unsqueeze(1).chunk(2, dim=-1)
    first, second = q.float().chunk(2, dim=-1)
    half = first.shape[-1]
    q_out[..., :half] = first * cosine - second * sine
    q_out[..., half:] = second * cosine + first * sine
    k_out.copy_(k)
