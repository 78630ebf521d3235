"""Tokens after the 64th get the answer of the first.

seen by: relation tokens_permuted
"""

import math

import torch


def run(q_nope, q_pe, ckv_cache, kpe_cache, sparse_indices, sm_scale, output, lse):
    latent, rope = ckv_cache.flatten(0, 1), kpe_cache.flatten(0, 1)
    output[:], lse[:] = 0.0, 0.0
    for token in range(min(64, len(q_nope))):
        ids = sparse_indices[token]
        ids = ids[ids >= 0].long()
        keys = latent[ids].float()
        logits = sm_scale * (q_nope[token].float() @ keys.T + q_pe[token].float() @ rope[ids].float().T)
        output[token] = torch.softmax(logits, dim=-1) @ keys
        lse[token] = torch.logsumexp(logits, dim=-1) / math.log(2)
    output[64:], lse[64:] = output[0], lse[0]
