"""Ids in ascending order, so that neighbours are read together; fp32."""

import math

import torch


def run(q_nope, q_pe, ckv_cache, kpe_cache, sparse_indices, sm_scale, output, lse):
    order = sparse_indices.sort(dim=-1, descending=True).values
    missing, ids = order < 0, order.clamp_min(0).long()
    keys = torch.cat([ckv_cache, kpe_cache], dim=-1).flatten(0, 1)[ids].float()
    logits = torch.cat([q_nope, q_pe], dim=-1).float() @ keys.transpose(1, 2) * sm_scale
    logits.masked_fill_(missing[:, None], -torch.inf)
    largest = logits.amax(dim=-1, keepdim=True).clamp_min(-3e38)
    weights = torch.exp(logits - largest)
    total = weights.sum(dim=-1, keepdim=True)
    output.copy_(weights / total.clamp_min(1e-30) @ keys[..., : q_nope.shape[2]])
    lse.copy_((largest + torch.log(total))[..., 0] / math.log(2))
