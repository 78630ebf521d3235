"""What candidate code can reach: it runs a probe inside the sandbox and reports by raising what it found."""

import os
import re
import time
from pathlib import Path

import psutil
import pytest

from bot.contract.load import load_contract
from bot.verify.calls import Failure, Worker
from tests.verify.conftest import CONTRACTS, HONEST

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
def contract():
    if not any(Path(p, "bwrap").exists() for p in os.environ["PATH"].split(":")):
        pytest.skip("bubblewrap is not installed")
    return load_contract(CONTRACTS, "center").contract


def told(contract, code: str) -> str:
    """What a probe inside the sandbox raises as its answer."""
    with Worker(contract, "bubblewrap", set(os.sched_getaffinity(0))) as worker:
        failed = worker.load(code)
    assert isinstance(failed, Failure)
    return failed.text


def ask(contract, *expressions: str) -> list[str]:
    body = "\n".join(
        f"try:\n    found.append(str({e}))\nexcept BaseException as error:\n    found.append(type(error).__name__)"
        for e in expressions
    )
    text = told(contract, f"import os, socket, ctypes\nfound = []\n{body}\nraise ValueError('~'.join(found))\n")
    found = re.search(r"ValueError: (.*?)( \(line \d+\))?$", text, re.DOTALL)
    assert found is not None, text
    return found[1].split("~")


def test_no_privilege_no_secret_no_network(contract) -> None:
    os.environ["PROCTOR_TEST_SECRET"] = "do-not-leak"
    try:
        uid, caps, environment, network, interfaces = ask(
            contract,
            "os.getuid()",
            "[l.split()[1] for l in open('/proc/self/status') if l.startswith('CapEff')][0]",
            "sorted(os.environ)",
            "socket.create_connection(('192.0.2.1', 80), timeout=1)",
            "[i[1] for i in socket.if_nameindex()]",
        )
    finally:
        del os.environ["PROCTOR_TEST_SECRET"]
    assert int(uid) != 0
    assert int(caps, 16) == 0
    assert "SECRET" not in environment
    assert network in {"OSError", "TimeoutError"}
    assert interfaces == "['lo']"


def test_the_repository_the_oracle_and_the_host_cannot_be_read(contract) -> None:
    root = Path(__file__).parents[2]
    answers = ask(
        contract,
        f"open({str(root / 'pyproject.toml')!r}).read()",
        f"open({str(CONTRACTS / 'center' / 'oracle.py')!r}).read()",
        "os.listdir('/proc/1/root/etc')",
        "sorted(os.listdir('/'))",
        "os.listdir('/proctor/bot/verify')",
        "os.listdir('/dev/shm')",
    )
    assert answers[0] == "FileNotFoundError"
    assert answers[1] == "FileNotFoundError"
    assert "home" not in answers[3]
    assert sorted(eval(answers[4])) == ["__init__.py", "protocol.py", "worker.py"]  # noqa: S307 - our own list
    assert answers[5] == "[]"


def test_only_its_own_tmp_can_be_written(contract) -> None:
    answers = ask(
        contract,
        "open('/proctor/bot/verify/worker.py', 'w')",
        "open('/new', 'w')",
        "open('/usr/lib/new', 'w')",
        "open('/dev/new', 'w')",
        "open('/proc/sys/kernel/core_pattern', 'w').write('x')",
        "open('/tmp/new', 'w').write('x')",
    )
    assert answers[5] == "1"
    assert all(answer in {"OSError", "PermissionError", "FileNotFoundError"} for answer in answers[:5]), answers


def test_other_processes_cannot_be_seen_or_reached(contract) -> None:
    pids, ptrace, affinity, namespace, mount = ask(
        contract,
        "len([p for p in os.listdir('/proc') if p.isdigit()])",
        "ctypes.CDLL(None, use_errno=True).ptrace(16, 1, 0, 0)",
        "os.sched_setaffinity(0, {0})",
        "ctypes.CDLL(None).unshare(0x10000000)",
        "ctypes.CDLL(None).mount(b'none', b'/tmp', b'tmpfs', 0, None)",
    )
    assert int(pids) <= 3
    assert ptrace == "-1"
    assert affinity == "PermissionError"
    assert namespace == "-1"
    assert mount == "-1"


def test_lent_memory_cannot_be_shrunk(contract) -> None:
    with Worker(contract, "bubblewrap", set(os.sched_getaffinity(0))) as worker:
        code = (
            "import os\n"
            "def run(x, offset, scale, cu_seqlens, y):\n"
            "    shrunk = 0\n"
            "    for line in open('/proc/self/maps'):\n"
            "        if 'memfd' in line:\n"
            "            span = line.split()[0]\n"
            "            try:\n"
            "                os.truncate(f'/proc/self/map_files/{span}', 0)\n"
            "                shrunk += 1\n"
            "            except OSError:\n"
            "                pass\n"
            "    raise ValueError(f'shrunk {shrunk}')\n"
        )
        assert worker.load(code) is None
        slot = worker.bind({"H": 1, "lengths": [8]}, frozenset())
        assert not isinstance(slot, Failure)
        for lent in (*slot.inputs.values(), *slot.outputs.values()):
            with pytest.raises(PermissionError):
                os.ftruncate(lent.fd, 0)


def left_of(uids: set[int], before: set[int]) -> list[int]:
    return [p.pid for p in psutil.process_iter(["uids"]) if p.pid not in before and p.info["uids"].real in uids]


def test_nothing_is_left_when_a_worker_is_closed(contract) -> None:
    code = (
        "import os, time\n"
        "for _ in range(3):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        time.sleep(600)\n"
        f"{HONEST}"
    )
    before = {p.pid for p in psutil.process_iter()}
    worker = Worker(contract, "bubblewrap", set(os.sched_getaffinity(0)))
    assert worker.load(code) is None
    uids = {p.uids().real for p in psutil.Process(worker.sandbox._process.pid).children(recursive=True)}
    assert len(psutil.Process(worker.sandbox._process.pid).children(recursive=True)) >= 6
    worker.close()
    deadline = time.monotonic() + 5
    while left_of(uids - {0}, before) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left_of(uids - {0}, before) == []


def test_everything_is_stopped_between_calls(contract) -> None:
    """A helper that counts in the background must not count while its sandbox is stopped."""
    code = (
        "import os, time, mmap\n"
        "shared = mmap.mmap(-1, 8)\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    n = 0\n"
        "    while True:\n"
        "        n += 1\n"
        "        shared[:8] = n.to_bytes(8, 'little')\n"
        "def run(x, offset, scale, cu_seqlens, y):\n"
        "    raise ValueError(int.from_bytes(shared[:8], 'little'))\n"
    )
    with Worker(contract, "bubblewrap", set(os.sched_getaffinity(0))) as worker:
        assert worker.load(code) is None
        tree = psutil.Process(worker.sandbox._process.pid).children(recursive=True)
        before = {p: p.cpu_times().user for p in tree}
        time.sleep(0.3)
        busy = max(tree, key=lambda p: p.cpu_times().user - before[p])
        worker.stop()
        stopped = busy.cpu_times().user
        time.sleep(0.3)
        assert busy.cpu_times().user == stopped
        worker.sandbox.resume()
        time.sleep(0.3)
        assert busy.cpu_times().user > stopped
