"""A thread pool and a progress-bar-like monitor thread stay alive between calls.

hazard: scheduler-threads
behaviour: helper threads that live on, one of them waking up ten times a second
contract: center
mode: full
expected: accepted
"""

import concurrent.futures
import threading
import time

import torch

pool = concurrent.futures.ThreadPoolExecutor(2)
torch.set_num_threads(2)


def monitor():
    while True:
        time.sleep(0.1)


threading.Thread(target=monitor, daemon=True).start()


def honest(x, offset, scale, cu_seqlens, y):
    rows = x.float()
    rows = rows - rows.mean(dim=-1, keepdim=True)
    if offset is not None:
        rows = rows + torch.repeat_interleave(offset, cu_seqlens.diff(), dim=0)[:, None, :]
    y.copy_(scale * rows)


def run(x, offset, scale, cu_seqlens, y):
    pool.submit(honest, x, offset, scale, cu_seqlens, y).result()
