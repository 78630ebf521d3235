"""Ids 64 at a time with a running maximum; a block whose logits are all 8 below it is left out."""

import math

import torch

BLOCK, FAR = 64, 8.0


def run(q_nope, q_pe, ckv_cache, kpe_cache, sparse_indices, sm_scale, output, lse):
    latent, rope = ckv_cache.flatten(0, 1), kpe_cache.flatten(0, 1)
    query, turned = q_nope.float(), q_pe.float()
    largest = torch.full_like(lse, -3e38)[..., None]
    total, found = torch.zeros_like(largest), torch.zeros_like(query)
    for start in range(0, sparse_indices.shape[1], BLOCK):
        block = sparse_indices[:, start : start + BLOCK]
        ids = block.clamp_min(0).long()
        keys = latent[ids].float()
        logits = query @ keys.transpose(1, 2) + turned @ rope[ids].float().transpose(1, 2)
        logits = (logits * sm_scale).masked_fill(block[:, None] < 0, -torch.inf)
        here = logits.amax(dim=-1, keepdim=True)
        logits = logits.masked_fill(here < largest - FAR, -torch.inf)
        larger = torch.maximum(largest, here)
        kept, weights = torch.exp(largest - larger), torch.exp(logits - larger)
        total, found = total * kept + weights.sum(dim=-1, keepdim=True), found * kept + weights @ keys
        largest = larger
    output.copy_(found / total.clamp_min(1e-30))
    lse.copy_(((largest + torch.log(total)) / math.log(2))[..., 0])
