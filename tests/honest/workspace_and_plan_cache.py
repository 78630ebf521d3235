"""Scratch memory and a plan per shape live between calls.

hazard: workspace-and-plan-cache
behaviour: a module-level dict of buffers and index tables, refilled in every call
contract: center
mode: quick
expected: no_gain
"""

import torch

plans = {}


def run(x, offset, scale, cu_seqlens, y):
    plan = plans.setdefault(tuple(x.shape), {"rows": torch.empty(x.shape), "tokens": torch.arange(x.shape[0])})
    rows = plan["rows"]
    rows.copy_(x)
    rows -= rows.mean(dim=-1, keepdim=True)
    if offset is not None:
        rows += offset[torch.searchsorted(cu_seqlens[1:], plan["tokens"], right=True)][:, None, :]
    torch.mul(rows, scale, out=rows)
    y.copy_(rows)
