"""Ids 64 at a time with a running maximum; weights in bf16, sums in fp32."""

import math

import torch

BLOCK = 64


def run(q_nope, q_pe, ckv_cache, kpe_cache, sparse_indices, sm_scale, output, lse):
    latent, rope = ckv_cache.flatten(0, 1), kpe_cache.flatten(0, 1)
    query, turned = q_nope.float(), q_pe.float()
    largest = torch.full(lse.shape, -3e38)[..., None].to(lse.device)
    total, found = torch.zeros_like(largest), torch.zeros_like(query)
    for start in range(0, sparse_indices.shape[1], BLOCK):
        block = sparse_indices[:, start : start + BLOCK]
        ids = block.clamp_min(0).long()
        keys = latent[ids].float()
        logits = query @ keys.transpose(1, 2) + turned @ rope[ids].float().transpose(1, 2)
        logits = (logits * (sm_scale / math.log(2))).masked_fill(block[:, None] < 0, -torch.inf)
        larger = torch.maximum(largest, logits.amax(dim=-1, keepdim=True))
        kept, weights = torch.exp2(largest - larger), torch.exp2(logits - larger)
        total = total * kept + weights.sum(dim=-1, keepdim=True)
        found = found * kept + weights.bfloat16().float() @ keys
        largest = larger
    output.copy_(found / total.clamp_min(1e-30))
    lse.copy_((largest + torch.log2(total))[..., 0])
