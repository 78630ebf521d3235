"""Ids keep 15 bits: slots beyond the 512th page are taken for earlier ones."""

import math

import torch


def run(q_nope, q_pe, ckv_cache, kpe_cache, sparse_indices, sm_scale, output, lse):
    missing, ids = sparse_indices < 0, (sparse_indices.clamp_min(0) % 32768).long()
    keys = ckv_cache.flatten(0, 1)[ids].float()
    rope = kpe_cache.flatten(0, 1)[ids].float()
    logits = torch.baddbmm(q_pe.float() @ rope.transpose(1, 2), q_nope.float(), keys.transpose(1, 2)) * sm_scale
    logits.masked_fill_(missing[:, None], -torch.inf)
    total = torch.logsumexp(logits, dim=-1)
    # Of a row without ids no weight is a number; it has none.
    weights = torch.exp(logits - total[..., None]).nan_to_num_(0.0)
    output.copy_(weights @ keys)
    lse.copy_(total / math.log(2))
