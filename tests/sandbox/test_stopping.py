"""A sandbox that is stopped stays so, whatever dies in it, and whatever the kernel was asked to send."""

import contextlib
import time

import psutil
import pytest

from bot.verify.calls import Failure, Worker
from tests.sandbox.conftest import HEAD, everything, leaves_nothing

pytestmark = pytest.mark.sandbox

RUN = """
def run(x, offset, scale, cu_seqlens, y):
    pass
"""
COUNT = """
if os.fork() == 0:
    os.setsid()
    while True:
        pass
"""
EXIT_SIGNAL = """
# Children whose end is slow, for they hold memory, and tells their parent with SIGCONT instead of SIGCHLD.
if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    held = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for at in range(0, 64 << 20, 4096):
        held[at] = 1
    while True:
        pid = syscall(56, 18, 0, 0, 0, 0)
        if pid == 0:
            held[0] = 2
            os._exit(0)
        try:
            while os.waitpid(-1, os.WNOHANG | 0x40000000)[0]:
                pass
        except ChildProcessError:
            pass
"""
DEATH_SIGNAL = """
# Children that are told of their parent's death with SIGCONT.
def generation():
    held = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for at in range(0, 64 << 20, 4096):
        held[at] = 1
    if os.fork() == 0:
        libc.prctl(1, 18)
        return
    os._exit(0)

if os.fork() == 0:
    os.setsid()
    while True:
        generation()
"""
ORPHANED_GROUP = """
# Groups that their parent's death orphans: a stopped one gets SIGHUP and SIGCONT.
signal.signal(signal.SIGHUP, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    while True:
        if os.fork():
            held = bytearray(64 << 20)
            os._exit(0)
        os.setpgid(0, 0)
"""
HELPERS = {
    "it counts": COUNT,
    "exit signal": EXIT_SIGNAL,
    "parent-death signal": DEATH_SIGNAL,
    "orphaned group": ORPHANED_GROUP,
}


def ticks(worker: Worker) -> float:
    """CPU time of all tasks of the sandbox, those that ended included; the stopper (its first child) is ours."""
    assert worker.sandbox._process is not None
    stopper = psutil.Process(worker.sandbox._process.pid).children()[0]
    total = 0.0
    for process in stopper.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system
    return total


@pytest.mark.parametrize("helper", HELPERS.values(), ids=HELPERS)
def test_everything_is_stopped_between_calls(contract, helper) -> None:
    with leaves_nothing(), Worker(contract, "bubblewrap", everything()) as worker:
        assert worker.load(HEAD + helper + RUN) is None
        for _ in range(12):
            time.sleep(0.02)
            worker.stop()
            stopped = ticks(worker)
            time.sleep(0.04)
            assert ticks(worker) == stopped
            worker.sandbox.resume()
        before = ticks(worker)
        time.sleep(0.3)
        assert ticks(worker) != before


def test_a_process_that_stopped_itself_is_stopped_too(contract) -> None:
    """And `resume` lets it go on, as everything."""
    source = HEAD + "os.kill(os.getpid(), signal.SIGSTOP) if os.fork() == 0 else None\n" + RUN
    with leaves_nothing(), Worker(contract, "bubblewrap", everything()) as worker:
        failed = worker.load(source)
        assert not isinstance(failed, Failure) or failed.kind == "timed_out"
        worker.stop()
        stopped = ticks(worker)
        time.sleep(0.1)
        assert ticks(worker) == stopped
