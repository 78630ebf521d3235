"""DeepGEMM's scores of paged keys, then torch's own top-k."""

import deep_gemm
import torch


def run(q_index_fp8, k_index_cache_fp8, weights, seq_lens, block_table, topk_indices):
    size, longest = k_index_cache_fp8.shape[1], block_table.shape[1] * k_index_cache_fp8.shape[1]
    lengths = seq_lens[:, None]
    schedule = deep_gemm.get_paged_mqa_logits_metadata(lengths, size, deep_gemm.get_num_sms())
    scores = deep_gemm.fp8_paged_mqa_logits(
        q_index_fp8[:, None],
        k_index_cache_fp8.view(torch.uint8),
        weights,
        lengths,
        block_table,
        schedule,
        longest,
        clean_logits=False,
    )
    beyond = torch.arange(scores.shape[1], device=scores.device) >= lengths
    values, best = scores.masked_fill(beyond, -torch.inf).topk(min(topk_indices.shape[1], longest))
    ids = block_table.gather(1, best // size) * size + (best % size).int()
    topk_indices.fill_(-1)
    topk_indices[:, : ids.shape[1]] = torch.where(values > -torch.inf, ids, -1)
