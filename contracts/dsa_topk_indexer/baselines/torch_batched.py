"""All sequences together in fp32, padded to the longest table."""

import torch


def run(q_index_fp8, k_index_cache_fp8, weights, seq_lens, block_table, topk_indices):
    pages, size, _, width = k_index_cache_fp8.shape
    stored = k_index_cache_fp8.view(torch.uint8).view(pages, size * width)
    rows, longest = block_table.shape
    held = stored[block_table.clamp_min(0).long()]
    keys = held[..., : size * (width - 4)].contiguous().view(torch.float8_e4m3fn).float().view(rows, -1, width - 4)
    scales = held[..., size * (width - 4) :].contiguous().view(torch.float32).view(rows, -1)
    products = torch.relu(keys @ q_index_fp8.float().transpose(1, 2))
    scores = (products @ weights[..., None])[..., 0] * scales
    place = torch.arange(longest * size, device=scores.device)
    scores.masked_fill_(place >= seq_lens[:, None], -torch.inf)
    kept = min(topk_indices.shape[1], scores.shape[1])
    values, best = scores.topk(kept)
    ids = block_table.gather(1, best // size) * size + (best % size).int()
    topk_indices.fill_(-1)
    topk_indices[:, :kept] = torch.where(values > -torch.inf, ids, -1)
