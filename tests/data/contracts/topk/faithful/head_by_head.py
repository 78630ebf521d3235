"""Row by row, the last head first; of equals the last, ids in ascending order, empty places before them."""

import torch


def run(q, k, weight, count, ids):
    ids.fill_(-1)
    for row in range(ids.shape[0]):
        there = min(int(count[row]), k.shape[0])
        scores = torch.zeros(there)
        for head in reversed(range(q.shape[1])):
            products = k[:there].float() * q[row, head].float()
            scores += weight[row, head] * torch.relu(products.flip(1).sum(-1))
        order = there - 1 - scores.flip(0).sort(descending=True, stable=True).indices
        chosen = order[: ids.shape[1]].sort().values
        if len(chosen):
            ids[row, -len(chosen) :] = chosen.int()
