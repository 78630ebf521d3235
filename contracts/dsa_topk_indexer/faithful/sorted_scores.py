"""Scales go into the keys before the product; all scores are sorted."""

import torch


def run(q_index_fp8, k_index_cache_fp8, weights, seq_lens, block_table, topk_indices):
    pages, size, _, width = k_index_cache_fp8.shape
    stored = k_index_cache_fp8.view(torch.uint8).view(pages, size * width)
    keys = stored[:, : size * (width - 4)].contiguous().view(torch.float8_e4m3fn).float().view(pages, size, width - 4)
    scales = stored[:, size * (width - 4) :].contiguous().view(torch.float32)
    keys = keys * scales[..., None]
    topk_indices.fill_(-1)
    for row, length in enumerate(seq_lens.tolist()):
        table = block_table[row, : -(-length // size)].long()
        heads = torch.relu(keys[table].view(-1, width - 4)[:length] @ q_index_fp8[row].float().T)
        order = (heads * weights[row]).sum(-1).argsort(descending=True)[: topk_indices.shape[1]]
        topk_indices[row, : len(order)] = (table[order // size] * size + order % size).int()
