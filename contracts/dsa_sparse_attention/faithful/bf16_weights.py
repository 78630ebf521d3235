"""Weights relative to the largest, rounded to bf16 for the second product, as tensor cores take them."""

import math

import torch


def run(q_nope, q_pe, ckv_cache, kpe_cache, sparse_indices, sm_scale, output, lse):
    missing, ids = sparse_indices < 0, sparse_indices.clamp_min(0).long()
    keys = ckv_cache.flatten(0, 1)[ids].float()
    rope = kpe_cache.flatten(0, 1)[ids].float()
    logits = (q_nope.float() @ keys.transpose(1, 2) + q_pe.float() @ rope.transpose(1, 2)) * (sm_scale / math.log(2))
    logits.masked_fill_(missing[:, None], -torch.inf)
    largest = logits.amax(dim=-1, keepdim=True).clamp_min(-3e38)
    weights = torch.exp2(logits - largest)
    total = weights.sum(dim=-1, keepdim=True)
    output.copy_(weights.bfloat16().float() @ keys / total.clamp_min(1e-30))
    lse.copy_((largest + torch.log2(total))[..., 0])
