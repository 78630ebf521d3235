"""Child processes, some killed, some left behind, one stuck between vfork and exec, and a lock file: as an autotuner's
workers end. The parent of a stuck child waits in the kernel, where no signal stops it.

hazard: infra-failures
behaviour: forks, kills and abandons children; waits for a lock
contract: center
mode: quick
expected: no_gain
"""

import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time

import torch

sleeping = os.fork()
if sleeping == 0:
    time.sleep(600)
    os._exit(0)
os.kill(sleeping, signal.SIGKILL)
if os.fork() == 0:
    os.setsid()
    time.sleep(600)
    os._exit(0)
subprocess.run([sys.executable, "-I", "-S", "-c", "raise SystemExit(3)"], check=False)
libc = ctypes.CDLL(None)
stack = ctypes.create_string_buffer(1 << 20)
CLONE_VM, CLONE_VFORK = 0x100, 0x4000


def stuck():
    top = ctypes.c_void_p(ctypes.addressof(stack) + len(stack) - 64)
    libc.clone(ctypes.cast(libc.pause, ctypes.c_void_p), top, CLONE_VM | CLONE_VFORK | signal.SIGCHLD, None)


threading.Thread(target=stuck, daemon=True).start()
lock = open("/tmp/kernel.lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)


def honest(x, offset, scale, cu_seqlens, y):
    rows = x.float()
    rows = rows - rows.mean(dim=-1, keepdim=True)
    if offset is not None:
        rows = rows + torch.repeat_interleave(offset, cu_seqlens.diff(), dim=0)[:, None, :]
    y.copy_(scale * rows)


run = honest
