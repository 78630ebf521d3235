"""Float64 reference of one step of the gated delta rule for a batch of sequences."""

import torch


def oracle(*, q, k, v, state, A_log, a, dt_bias, b, scale, noise):
    """Both outputs in float64; `noise` stands where a faithful kernel may round a matrix operand.

    Shapes: q, k [B,1,HQ,K], v [B,1,HV,V], a, b [B,1,HV], states [B,HV,V,K]. q and k as they are given are exact
    operands; the new state is never perturbed, only the copies that meet a product are, and so is the update.
    """
    heads, keys = v.shape[2], k.shape[3]
    query, key = (x[:, 0].repeat_interleave(heads // x.shape[2], dim=1)[..., None] for x in (q, k))
    dt = (a + dt_bias)[:, 0]
    decay = torch.exp(-torch.exp(A_log) * torch.logaddexp(dt, torch.zeros_like(dt)))
    gain = torch.sigmoid(b[:, 0])[..., None, None]
    start = v.new_zeros(v.shape[0], heads, v.shape[3], keys) if state is None else state
    decayed = decay[..., None, None] * start
    update = gain * (v[:, 0, :, :, None] - noise(decayed) @ key)
    final = decayed + noise(update) * key.transpose(2, 3)
    output = (scale or keys**-0.5) * (noise(final) @ query)
    return {"output": output[:, None, :, :, 0], "new_state": final}
