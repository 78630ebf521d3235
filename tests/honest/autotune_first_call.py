"""The first call of a shape tries three variants several times and keeps the fastest.

hazard: autotune-first-call
behaviour: a slow first call that runs other code than the later ones
contract: center
mode: quick
expected: no_gain
"""

import time

import torch

chosen = {}


def honest(x, offset, scale, cu_seqlens, y):
    rows = x.float()
    rows = rows - rows.mean(dim=-1, keepdim=True)
    if offset is not None:
        rows = rows + torch.repeat_interleave(offset, cu_seqlens.diff(), dim=0)[:, None, :]
    y.copy_(scale * rows)


def by_heads(x, offset, scale, cu_seqlens, y):
    for head in range(x.shape[1]):
        honest(x[:, head : head + 1], offset, scale, cu_seqlens, y[:, head : head + 1])


def in_place(x, offset, scale, cu_seqlens, y):
    rows = x.float()
    rows -= rows.mean(dim=-1, keepdim=True)
    if offset is not None:
        rows += torch.repeat_interleave(offset, cu_seqlens.diff(), dim=0)[:, None, :]
    y.copy_(rows.mul_(scale))


def measured(variant, arguments):
    started = time.perf_counter()
    for _ in range(5):
        variant(*arguments)
    return time.perf_counter() - started


def run(*arguments):
    shape = tuple(arguments[0].shape)
    if shape not in chosen:
        chosen[shape] = min((honest, by_heads, in_place), key=lambda variant: measured(variant, arguments))
    chosen[shape](*arguments)
