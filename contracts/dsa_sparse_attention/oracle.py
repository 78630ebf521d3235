"""Float64 reference of sparse attention over a paged cache of latent vectors (DeepSeek V3.2, absorbed form)."""

import math

import torch

from bot.verify.ground import at, slots


def oracle(*, q_nope, q_pe, ckv_cache, kpe_cache, sparse_indices, sm_scale, noise):
    """Both outputs in float64; `noise` stands at the softmax weights, which a faithful kernel rounds for the product.

    Shapes: q_nope [T,H,CKV], q_pe [T,H,KPE], ckv_cache [P,PS,CKV], kpe_cache [P,PS,KPE], sparse_indices [T,K]. Queries
    and caches are exact operands. An id that stands twice counts twice; a row without ids gives zeros and −inf.
    """
    there = (sparse_indices >= 0)[:, None, :]
    latent, rope = (at(slots(cache), sparse_indices) for cache in (ckv_cache, kpe_cache))
    logits = sm_scale * (q_nope @ latent.transpose(1, 2) + q_pe @ rope.transpose(1, 2))
    logits = logits.masked_fill(~there, -torch.inf)
    # Of an empty row any finite number serves: all its weights are exp(-inf).
    largest = logits.amax(dim=-1, keepdim=True).clamp_min(torch.finfo(torch.float64).min)
    weights = torch.exp(logits - largest)
    total = weights.sum(dim=-1, keepdim=True)
    output = noise(weights) @ latent / torch.where(total > 0, total, 1.0)
    return {"output": output, "lse": ((largest + torch.log(total))[..., 0]) / math.log(2)}
