"""Two threads take half of the heads each and are joined.

hazard: joined-side-streams
behaviour: forked work that is waited for
contract: center
mode: quick
expected: no_gain
"""

import threading

import torch


def honest(x, offset, scale, cu_seqlens, y):
    rows = x.float()
    rows = rows - rows.mean(dim=-1, keepdim=True)
    if offset is not None:
        rows = rows + torch.repeat_interleave(offset, cu_seqlens.diff(), dim=0)[:, None, :]
    y.copy_(scale * rows)


def run(x, offset, scale, cu_seqlens, y):
    half = (x.shape[1] + 1) // 2
    parts = [(x[:, :half], y[:, :half]), (x[:, half:], y[:, half:])]
    threads = [threading.Thread(target=honest, args=(a, offset, scale, cu_seqlens, b)) for a, b in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
