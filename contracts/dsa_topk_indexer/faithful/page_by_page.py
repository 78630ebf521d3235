"""Page by page, keeping the best of what came before: the sum over heads in two halves, all ids where they fit."""

import torch


def run(q_index_fp8, k_index_cache_fp8, weights, seq_lens, block_table, topk_indices):
    pages, size, _, width = k_index_cache_fp8.shape
    stored = k_index_cache_fp8.view(torch.uint8).view(pages, size * width)
    places = topk_indices.shape[1]
    topk_indices.fill_(-1)
    for row, length in enumerate(seq_lens.tolist()):
        query, weight = q_index_fp8[row].float(), weights[row]
        half = len(weight) // 2
        scores, ids = torch.empty(0, device=weights.device), torch.empty(0, dtype=torch.int32, device=weights.device)
        for number in range(-(-length // size)):
            page = int(block_table[row, number])
            here = min(size, length - number * size)
            keys = stored[page, : size * (width - 4)].view(torch.float8_e4m3fn).float().view(size, width - 4)[:here]
            scales = stored[page, size * (width - 4) :].clone().view(torch.float32)[:here]
            heads = torch.relu(query @ keys.T)
            found = (weight[:half] @ heads[:half] + weight[half:] @ heads[half:]) * scales
            scores = torch.cat([scores, found])
            ids = torch.cat([ids, torch.arange(page * size, page * size + here, dtype=torch.int32, device=ids.device)])
            if len(scores) > places:
                kept = scores.topk(places).indices
                scores, ids = scores[kept], ids[kept]
        topk_indices[row, : len(ids)] = ids
