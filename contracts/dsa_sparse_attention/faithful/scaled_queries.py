"""The scale goes to the queries, for powers of two; all rows are gathered at once, weights rounded to bf16."""

import math

import torch


def run(q_nope, q_pe, ckv_cache, kpe_cache, sparse_indices, sm_scale, output, lse):
    ids, missing = sparse_indices.clamp_min(0).long(), (sparse_indices < 0)[:, None]
    keys, rope = (cache.flatten(0, 1)[ids].float() for cache in (ckv_cache, kpe_cache))
    scale = sm_scale / math.log(2)
    logits = (q_nope.float() * scale) @ keys.transpose(1, 2) + (q_pe.float() * scale) @ rope.transpose(1, 2)
    logits.masked_fill_(missing, -torch.inf)
    largest = logits.amax(dim=-1, keepdim=True).clamp_min(-3e38)
    weights = torch.exp2(logits - largest)
    total = weights.sum(dim=-1, keepdim=True)
    found = weights.bfloat16().float() @ keys
    output.copy_(torch.where(total > 0, found / total, 0.0))
    lse.copy_((largest + torch.log2(total))[..., 0])
