"""Float64 scores of DeepSeek V3.2's indexer: which cached tokens a query should attend to."""

import torch

from bot.verify.ground import e4m3, float32, slots

PAGES = 64
"""Pages of a sequence whose scores are computed together: the products of all heads with a long one take gigabytes."""


def oracle(*, q_index_fp8, k_index_cache_fp8, weights, seq_lens, block_table, noise):
    """The scores of all ids of the cache for each sequence, [B, P*PS]; −inf: not among its tokens.

    Shapes: q_index_fp8 [B,H,D], k_index_cache_fp8 [P,PS,1,D+4] bytes, weights [B,H], seq_lens [B], block_table
    [B,MAXP]. A page holds PS keys of D 8-bit floats, then PS scales in float32. `noise` stands at each head's product
    with a key: fp8 units add in fewer places than float32 has.
    """
    pages, size, _, width = k_index_cache_fp8.shape
    stored = k_index_cache_fp8.reshape(pages, size * width)
    keys = e4m3(stored[:, : size * (width - 4)]).reshape(pages, size, width - 4)
    scales = float32(stored[:, size * (width - 4) :])
    scores = torch.full((len(seq_lens), pages * size), -torch.inf, dtype=torch.float64, device=seq_lens.device)
    for row, length in enumerate(seq_lens.tolist()):
        table = block_table[row, : -(-length // size)]
        for start in range(0, len(table), PAGES):
            some = table[start : start + PAGES]
            products = noise(slots(keys[some]) @ q_index_fp8[row].T).clamp_min(0) * slots(scales[some])[:, None]
            ids = slots(some[:, None] * size + torch.arange(size, device=some.device))
            held = ids[: length - start * size]
            scores[row, held] = (products @ weights[row])[: len(held)]
    return {"topk_indices": scores}
