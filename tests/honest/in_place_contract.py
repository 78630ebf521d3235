"""Uses the output as scratch memory: written several times, read back, and in the end right.

hazard: in-place-contract
behaviour: intermediate values in the output, in place
contract: center
mode: quick
expected: no_gain
"""

import torch


def run(x, offset, scale, cu_seqlens, y):
    y.zero_()
    y.copy_(x)
    rows = y.float()
    y.fill_(float("inf"))
    rows.sub_(rows.mean(dim=-1, keepdim=True))
    if offset is not None:
        rows.add_(torch.repeat_interleave(offset, cu_seqlens.diff(), dim=0)[:, None, :])
    y.copy_(rows.mul_(scale))
