"""FlashMLA's sparse kernel, which takes at least 64 query heads: 48 of them are padding here."""

import torch
from flash_mla import flash_mla_sparse_fwd

LEAST_HEADS = 64


def run(q_nope, q_pe, ckv_cache, kpe_cache, sparse_indices, sm_scale, output, lse):
    tokens, heads, width = q_nope.shape
    query = q_nope.new_zeros(tokens, LEAST_HEADS, width + q_pe.shape[2])
    query[:, :heads, :width], query[:, :heads, width:] = q_nope, q_pe
    cache = torch.cat([ckv_cache, kpe_cache], dim=-1).flatten(0, 1)[:, None]
    found, _, total = flash_mla_sparse_fwd(query, cache, sparse_indices[:, None].contiguous(), sm_scale, width)
    # What it gives for a token without ids is its own.
    empty = (sparse_indices < 0).all(dim=-1)[:, None]
    output.copy_(found[:, :heads].masked_fill(empty[..., None], 0.0))
    lse.copy_(total[:, :heads].masked_fill(empty, -torch.inf))
