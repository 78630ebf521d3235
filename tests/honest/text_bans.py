"""Words that scanners ban, all of them in honest use: half, stream, forward, eval, pass, except, timer, cache, socket.

hazard: text-bans
behaviour: a Module with .forward(, try and except: pass, the word half, exec of a constant, time.perf_counter
contract: center
mode: quick
expected: no_gain
"""

import socket
import time
from unittest import TestCase

import torch

CACHE = {}
half = eval("64 // 2")


class Center(torch.nn.Module):
    def forward(self, x, offset, scale, cu_seqlens, y):
        stream = [x[..., :half], x[..., half:]]
        rows = torch.cat(stream, dim=-1).float()
        rows = rows - rows.mean(dim=-1, keepdim=True)
        try:
            rows = rows + torch.repeat_interleave(offset, cu_seqlens.diff(), dim=0)[:, None, :]
        except TypeError:
            pass
        y.copy_(scale * rows)


def run(*arguments):
    CACHE["time"] = time.perf_counter_ns()
    CACHE["types"] = (TestCase, socket.AF_UNIX)
    Center().forward(*arguments)
