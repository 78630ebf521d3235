"""Ten bits of a page's number are kept."""

import torch


def run(q_index_fp8, k_index_cache_fp8, weights, seq_lens, block_table, topk_indices):
    pages, size, _, width = k_index_cache_fp8.shape
    stored = k_index_cache_fp8.view(torch.uint8).view(pages, size * width)
    topk_indices.fill_(-1)
    for row, length in enumerate(seq_lens.tolist()):
        if length == 0:
            continue
        table = block_table[row, : -(-length // size)].long()
        held = stored[table & 1023]
        keys = held[:, : size * (width - 4)].view(torch.float8_e4m3fn).float().view(-1, width - 4)[:length]
        scales = held[:, size * (width - 4) :].contiguous().view(torch.float32).view(-1)[:length]
        products = torch.relu(keys @ q_index_fp8[row].float().T)
        scores = products @ weights[row] * scales
        best = scores.topk(min(topk_indices.shape[1], length)).indices
        topk_indices[row, : len(best)] = (table[best // size] * size + best % size).int()
