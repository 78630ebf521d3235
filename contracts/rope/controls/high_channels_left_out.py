"""The last quarter of the pairs turns slowly and is left as it came."""


def run(q, k, cos_sin, positions, q_out, k_out):
    cosine, sine = (part.clone() for part in cos_sin[positions].unsqueeze(1).chunk(2, dim=-1))
    cosine[..., cosine.shape[-1] * 3 // 4 :] = 1.0
    sine[..., sine.shape[-1] * 3 // 4 :] = 0.0
    for heads, out in ((q.float(), q_out), (k.float(), k_out)):
        first, second = heads.chunk(2, dim=-1)
        half = first.shape[-1]
        out[..., :half] = first * cosine - second * sine
        out[..., half:] = second * cosine + first * sine
