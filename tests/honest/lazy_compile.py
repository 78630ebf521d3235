"""Generates and compiles its code on first use, in a build thread, and writes caches where it may.

hazard: lazy-compile
behaviour: exec of generated source, a compile thread, cache files below HOME and /tmp
contract: center
mode: quick
expected: no_gain
"""

import os
import threading

import torch

SOURCE = """
def body(x, offset, scale, cu_seqlens, y):
    rows = x.float()
    rows = rows - rows.mean(dim=-1, keepdim=True)
    if offset is not None:
        rows = rows + torch.repeat_interleave(offset, cu_seqlens.diff(), dim=0)[:, None, :]
    y.copy_(scale * rows)
"""
compiled = {}


def build(heads):
    folder = os.path.join(os.path.expanduser("~"), ".cache", "kernels")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"center_{heads}.py")
    with open(path, "w") as file:
        file.write(SOURCE)
    names = {"torch": torch}
    with open(path) as file:
        exec(compile(file.read(), path, "exec"), names)
    compiled[heads] = names["body"]


def run(x, offset, scale, cu_seqlens, y):
    if x.shape[1] not in compiled:
        thread = threading.Thread(target=build, args=(x.shape[1],))
        thread.start()
        thread.join()
    compiled[x.shape[1]](x, offset, scale, cu_seqlens, y)
