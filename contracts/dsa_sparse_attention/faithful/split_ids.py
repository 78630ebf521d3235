"""Ids in 16 shares, each with its own softmax, joined afterwards in fp32: what fills a device when tokens are few."""

import math

import torch

SHARES = 16


def run(q_nope, q_pe, ckv_cache, kpe_cache, sparse_indices, sm_scale, output, lse):
    latent, rope = ckv_cache.flatten(0, 1), kpe_cache.flatten(0, 1)
    parts, totals = [], []
    for block in sparse_indices.chunk(SHARES, dim=1):
        ids = block.clamp_min(0).long()
        keys = latent[ids].float()
        logits = q_nope.float() @ keys.transpose(1, 2) + q_pe.float() @ rope[ids].float().transpose(1, 2)
        logits = (logits * sm_scale).masked_fill(block[:, None] < 0, -torch.inf)
        total = torch.logsumexp(logits, dim=-1, keepdim=True)
        parts.append(torch.exp(logits - total).nan_to_num_(0.0).bfloat16().float() @ keys)
        totals.append(total)
    joined = torch.stack(totals)
    whole = torch.logsumexp(joined, dim=0)
    output.copy_((torch.exp(joined - whole).nan_to_num_(0.0) * torch.stack(parts)).sum(0))
    lse.copy_(whole[..., 0] / math.log(2))
