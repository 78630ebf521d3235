"""Using up the machine ends in a verdict about the candidate, soon; the host stays as it was."""

import os
import threading
import time
from collections.abc import Iterator

import psutil
import pytest

from bot.verify.calls import Answered, Failure, Worker
from bot.verify.mounts import Limits
from tests.sandbox.conftest import HEAD, STREAM, called, case, everything, leaves_nothing, try_inside

pytestmark = pytest.mark.sandbox

MIB = 1 << 20
RUN = """
def run(x, offset, scale, cu_seqlens, y):
    y.zero_()
"""
NEVER = """
def run(x, offset, scale, cu_seqlens, y):
    time.sleep(600)
"""
HOARD = """
# Each is far below its own limit.
for _ in range(6):
    if os.fork() == 0:
        os.setsid()
        held = mmap.mmap(-1, 100 << 20, flags=FLAGS | mmap.MAP_ANONYMOUS)
        for at in range(0, len(held), 4096):
            held[at] = 1
        time.sleep(600)
"""


@pytest.fixture
def small(contract, monkeypatch) -> Iterator[Worker]:
    """A worker whose limits are reached soon."""
    limits = Limits(resident=400 * MIB, processes=64, files=128, file_size=24 * MIB, tmp=32 * MIB, shm=32 * MIB)
    monkeypatch.setattr("bot.verify.calls.Limits", lambda: limits)
    with leaves_nothing(), Worker(contract, "bubblewrap", everything()) as worker:
        yield worker


class Pulse:
    """The longest time that a thread of ours, which wants to run every 10 ms, had to wait."""

    def __enter__(self) -> "Pulse":
        self.longest, self._on = 0.0, True
        self._thread = threading.Thread(target=self._beat)
        self._thread.start()
        return self

    def _beat(self) -> None:
        while self._on:
            begun = time.monotonic()
            time.sleep(0.01)
            self.longest = max(self.longest, time.monotonic() - begun)

    def __exit__(self, *_: object) -> None:
        self._on = False
        self._thread.join()


def test_files_descriptors_threads_and_address_space_are_bounded(small) -> None:
    """Each attack gives back what it took; the worker answers afterwards as if nothing had been."""
    prelude = """
    def fill(folder):
        taken = 0
        try:
            while True:
                with open(f"{folder}/{taken}", "wb", buffering=0) as file:
                    taken += file.write(bytes(1 << 20))
        except OSError as error:
            return [taken, errno.errorcode[error.errno]]
        finally:
            for name in os.listdir(folder):
                if name.isdigit():
                    os.unlink(f"{folder}/{name}")

    def large():
        file, written = os.open("/tmp/large", os.O_CREAT | os.O_WRONLY), 0
        try:
            while True:
                written += os.write(file, bytes(1 << 20))
        except OSError as error:
            return [written, errno.errorcode[error.errno]]
        finally:
            os.close(file)
            os.unlink("/tmp/large")

    def open_all():
        held = []
        try:
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        except OSError as error:
            return [len(held), errno.errorcode[error.errno]]
        finally:
            for one in held:
                os.close(one)

    def start_all():
        go, held = threading.Event(), []
        try:
            while True:
                held.append(threading.Thread(target=go.wait))
                held[-1].start()
        except RuntimeError:
            return len(held) - 1
        finally:
            go.set()

    def raise_limits():
        for kind in (resource.RLIMIT_NPROC, resource.RLIMIT_NOFILE, resource.RLIMIT_AS, resource.RLIMIT_FSIZE):
            try:
                resource.setrlimit(kind, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
                return "raised"
            except (ValueError, OSError):
                pass
        return "refused"
    """
    attacks = {
        "tmp": "fill('/tmp')",
        "shm": "fill('/dev/shm')",
        "file": "large()",
        "descriptors": "open_all()",
        "threads": "start_all()",
        "address space": "len(mmap.mmap(-1, 13 << 30))",
        "limits": "raise_limits()",
    }
    found = try_inside(small, attacks, prelude)
    for place in ("tmp", "shm"):
        taken, why = found[place]
        assert why == "ENOSPC"
        assert 30 * MIB <= taken <= 32 * MIB
    assert found["file"] == [24 * MIB, "EFBIG"]
    opened, why = found["descriptors"]
    assert why == "EMFILE"
    assert opened < 128
    assert 0 < found["threads"] < 64
    assert found["address space"] in {"OSError", "MemoryError"}
    assert found["limits"] == "refused"
    assert isinstance(small.run(case(small.contract), STREAM.child("after")), Answered)


@pytest.mark.parametrize("flags", ["mmap.MAP_PRIVATE", "mmap.MAP_SHARED"])
def test_memory_of_all_processes_together_is_bounded(small, flags) -> None:
    """While it is asked nothing, too: the watchdog needs nobody to wait for an answer."""
    failed = small.load(HEAD + HOARD.replace("FLAGS", flags) + RUN)
    if failed is None:
        time.sleep(1.0)
    answer = failed or small.run(case(small.contract), STREAM.child("memory"))
    assert isinstance(answer, Failure)
    assert (answer.kind, answer.text) == ("build_failed" if failed else "incorrect", "used more than 400 MiB of memory")


def test_memory_is_bounded_while_it_is_called(small) -> None:
    begun = time.monotonic()
    source = HEAD + "def run(x, offset, scale, cu_seqlens, y):\n    held = []\n    while True:\n"
    answer = called(small, source + "        held.append(bytearray(b'x' * (4 << 20)))\n")
    assert isinstance(answer, Failure)
    assert answer.kind == "incorrect"
    assert answer.text.startswith("used more than ")
    assert time.monotonic() - begun < 20


def test_a_fork_bomb_ends_in_a_refusal_and_leaves_nothing(contract) -> None:
    """By memory or by the clock: what each of its tasks shares with the others counts for each."""
    bomb = "\ndef run(x, offset, scale, cu_seqlens, y):\n    while True:\n        try:\n            os.fork()\n"
    source = HEAD + bomb + "        except OSError:\n            pass\n"
    with Pulse() as pulse, leaves_nothing():
        with Worker(contract, "bubblewrap", everything()) as worker:
            answer = called(worker, source, seconds=2.0)
            begun = time.monotonic()
        assert time.monotonic() - begun < 5
    assert isinstance(answer, Failure)
    assert answer.kind in {"timed_out", "incorrect", "tampered"}
    assert pulse.longest < 1.0


def test_processes_are_counted(contract, monkeypatch) -> None:
    """Up to the limit they can be had, and no more; no other sandbox's are counted, for the uid is its own."""
    monkeypatch.setattr("bot.verify.calls.Limits", lambda: Limits(processes=40))
    prelude = """
    def fork_all():
        children = []
        try:
            while True:
                children.append(os.fork())
                if children[-1] == 0:
                    signal.pause()
        except OSError as error:
            return [len(children), errno.errorcode[error.errno]]
        finally:
            for child in children:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
    """
    with leaves_nothing(), Worker(contract, "bubblewrap", everything()) as worker:
        made, why = try_inside(worker, {"forks": "fork_all()"}, prelude)["forks"]
        assert why == "EAGAIN"
        assert 30 <= made < 40


def test_it_never_answers(small) -> None:
    begun = time.monotonic()
    answer = called(small, HEAD + NEVER, seconds=0.5)
    assert isinstance(answer, Failure)
    assert answer.kind == "timed_out"
    assert time.monotonic() - begun < 20


def test_a_child_does_not_outlive_its_worker(contract) -> None:
    """Twice forked, in a session of its own, its parent gone."""
    code = (
        "import os, time\n"
        "for _ in range(3):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        if os.fork() == 0:\n"
        "            time.sleep(600)\n"
        "        os._exit(0)\n"
    )
    with leaves_nothing():
        worker = Worker(contract, "bubblewrap", everything())
        assert worker.load(code + RUN) is None
        assert worker.sandbox._process is not None
        tree = psutil.Process(worker.sandbox._process.pid).children(recursive=True)
        assert len(tree) >= 6
        worker.close()
        assert [p for p in tree if p.is_running()] == []


def test_lent_memory_can_be_neither_shrunk_nor_grown(contract) -> None:
    """Without seals a worker's ftruncate would kill the verifier, which has it mapped."""
    prelude = """
    def lent():
        links = {f: attempt(f"os.readlink('/proc/self/fd/{f}')") for f in os.listdir("/proc/self/fd")}
        return [int(f) for f, link in links.items() if link.startswith("/memfd")]

    def resize(fd, size):
        os.ftruncate(fd, size)
        return "resized"
    """
    attacks = {
        "held": "len(lent())",
        "shrink": "[attempt(f'resize({fd}, 0)') for fd in lent()]",
        "grow": "[attempt(f'resize({fd}, 1 << 30)') for fd in lent()]",
        "seal": "[attempt(f'fcntl.fcntl({fd}, 1033, 8)') for fd in lent()]",
        "reopen": "[attempt(f'os.truncate(\"/proc/self/fd/{fd}\", 0)') for fd in lent()]",
        "by map": "[attempt(f'os.truncate(\"/proc/self/map_files/{line.split()[0]}\", 0)') "
        "for line in open('/proc/self/maps') if 'memfd' in line]",
    }
    with Worker(contract, "bubblewrap", everything()) as worker:
        found = try_inside(worker, attacks, prelude)
        assert found["held"] > 0, "the mapping keeps a descriptor; without one nothing was tried"
        for name in ("shrink", "grow", "seal", "reopen", "by map"):
            assert set(found[name]) <= {"PermissionError", "FileNotFoundError", "OSError"}, name
        slot = worker.bind({"H": 1, "lengths": [8]}, frozenset())
        assert not isinstance(slot, Failure)
        for lent in (*slot.inputs.values(), *slot.outputs.values()):
            with pytest.raises(PermissionError):
                os.ftruncate(lent.fd, 0)
