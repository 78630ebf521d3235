"""A guard that cannot be put up: an InfrastructureError that says who must act, no verdict, and nothing left running.

Each test makes one guard fail, at the rim: a program on PATH, a limit of the system, a process killed from outside.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyseccomp
import pytest

from bot.contract.load import load_contract
from bot.errors import InfrastructureError
from bot.evaluation import Job
from bot.launch import launch
from bot.verify import cgroup
from bot.verify.calls import Failure, Worker
from bot.verify.mounts import Limits
from bot.verify.sandbox import Sandbox
from tests.sandbox.conftest import REPOSITORY, STREAM, case, descriptors, everything, leaves_nothing
from tests.verify.conftest import CONTRACTS, HONEST

pytestmark = pytest.mark.sandbox

RUN = "def run(x, offset, scale, cu_seqlens, y):\n    pass\n"
DYING = "import os\n" + RUN.replace("pass", "os._exit(0)")


@pytest.fixture(autouse=True)
def _own_tmp(monkeypatch, tmp_path) -> Iterator[None]:
    """Stages of other tests' sandboxes are not in it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield
        assert list(Path(folder).glob("proctor-*")) == []


def await_end(limits: Limits) -> None:
    """What bubblewrap itself cannot do shows when the worker would be awaited."""
    with Sandbox("bubblewrap", cpus=everything(), limits=limits) as sandbox:
        deadline = time.monotonic() + 10
        while sandbox.ended() is None and time.monotonic() < deadline:
            time.sleep(0.02)


def refused(contract, match: str, limits: Limits | None = None) -> None:
    """A sandbox cannot be put up: it says so, who must act, and nothing is left of it."""
    with leaves_nothing(), pytest.raises(InfrastructureError, match=match) as caught:
        await_end(limits or Limits())
    assert "act" in str(caught.value) or "install" in str(caught.value), caught.value


def fake(folder: Path, script: str) -> None:
    program = folder / "bwrap"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)


@pytest.fixture
def path(monkeypatch) -> Iterator[Path]:
    """A folder of programs that comes first, which a uid of nobody can enter."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        yield folder


def test_bubblewrap_is_missing(contract, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    refused(contract, "bubblewrap is missing: install the package")


def test_bubblewrap_cannot_make_a_user_namespace(contract, path) -> None:
    """What it says where they are forbidden, and how it ends."""
    fake(path, "echo 'bwrap: No permissions to create new namespace' >&2; exit 1")
    refused(contract, "(?s)cannot be put up: .*exit status 1.*No permissions.*user.max_user_namespaces")


def test_bubblewrap_is_no_program(contract, path) -> None:
    (path / "bwrap").write_bytes(b"\x7fELF nothing")
    (path / "bwrap").chmod(0o755)
    refused(contract, "(?i)exec format error")


def test_bubblewrap_is_too_old(contract, path) -> None:
    fake(path, 'echo "bwrap: Unknown option --disable-userns" >&2; exit 1')
    refused(contract, "Unknown option --disable-userns")


def test_user_namespaces_are_really_forbidden(contract) -> None:
    """The kernel's own switch, in a user namespace of ours where it is 0."""
    code = (
        "import ctypes, os, sys\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "assert libc.unshare(0x10000000) == 0\n"
        "open('/proc/self/setgroups', 'w').write('deny')\n"
        "open('/proc/self/uid_map', 'w').write('0 0 1')\n"
        "open('/proc/self/gid_map', 'w').write('0 0 1')\n"
        "open('/proc/sys/user/max_user_namespaces', 'w').write('0')\n"
        f"sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        "from bot.verify.mounts import Limits\nfrom bot.verify.sandbox import Sandbox\n"
        "import bot.verify.sandbox as module\n"
        "try:\n"
        "    Sandbox('bubblewrap', cpus=set(os.sched_getaffinity(0)), limits=Limits())\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    if os.geteuid() != 0:
        pytest.skip("only root maps root")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.startswith("InfrastructureError the sandbox cannot be put up"), done.stdout + done.stderr
    assert "Whoever owns this machine must act" in done.stdout


def test_the_filter_cannot_be_exported(contract, monkeypatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("Library error (errno = -22)")

    monkeypatch.setattr(pyseccomp.SyscallFilter, "export_bpf", fails)
    refused(contract, "(?s)system-call filter cannot be made.*libseccomp")


def test_one_rule_of_the_filter_cannot_be_made(contract, monkeypatch) -> None:
    """A call that this system has must be denied; one rule less is no weaker filter, it is none."""
    real = pyseccomp.SyscallFilter.add_rule

    def fails(rules, action, name, *arguments) -> None:
        if name == "ptrace":
            raise RuntimeError("Library error (errno = -22)")
        real(rules, action, name, *arguments)

    monkeypatch.setattr(pyseccomp.SyscallFilter, "add_rule", fails)
    refused(contract, "(?s)system-call filter cannot be made.*libseccomp")


def test_a_mount_cannot_be_staged(contract, monkeypatch) -> None:
    monkeypatch.setattr("bot.verify.sandbox.mounts_of", lambda *_: [("/proctor/nowhere", "/usr/lib")])
    refused(contract, "mount: No such file or directory")


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user takes no uid")
@pytest.mark.parametrize("number", [2**32 - 1, 2**40])
def test_the_uid_cannot_be_taken(contract, monkeypatch, number) -> None:
    """The first means "leave it as it is" to the kernel, the second is beyond all uids."""
    monkeypatch.setattr("bot.verify.sandbox._UIDS", (number, number + 1))
    refused(contract, f"uid {number} cannot be taken")


def test_a_limit_cannot_be_set(contract) -> None:
    """More descriptors than the system gives anybody."""
    refused(contract, "(?s)RLIMIT_NOFILE cannot be set.*raise", Limits(files=1 << 40))


def test_proc_cannot_be_mounted(contract, monkeypatch, tmp_path) -> None:
    """The stopper's own, by which stopping is confirmed: the kernel is asked for a type that it does not have."""
    replace_stopper(
        monkeypatch, changed(tmp_path, '_mount("proc", "/proc", "proc"', '_mount("proc", "/proc", "noproc"')
    )
    refused(contract, "mount: No such device")


def changed(folder: Path, old: str, new: str) -> Path:
    """The stopper with one thing changed."""
    source = (REPOSITORY / "bot/verify/stopper.py").read_text(encoding="utf-8")
    assert old in source
    file = folder / "stopper.py"
    file.write_text(source.replace(old, new), encoding="utf-8")
    return file


def replace_stopper(monkeypatch, file: Path) -> None:
    real = subprocess.Popen

    def start(arguments, **options):
        return real([str(file) if str(a).endswith("/stopper.py") else a for a in arguments], **options)

    monkeypatch.setattr("bot.verify.sandbox.subprocess.Popen", start)


def test_the_stopper_cannot_be_started(contract, monkeypatch, tmp_path) -> None:
    broken = tmp_path / "stopper.py"
    broken.write_text("raise SystemExit('no such interpreter')\n")
    replace_stopper(monkeypatch, broken)
    refused(contract, "no such interpreter")


def test_the_cpus_are_not_ours(contract) -> None:
    with leaves_nothing(), pytest.raises(InfrastructureError):
        Sandbox("bubblewrap", cpus={100_000}, limits=Limits())


def test_no_descriptor_is_left(contract) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with leaves_nothing():
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors() + 3, hard))
        try:
            with pytest.raises(InfrastructureError):
                Sandbox("bubblewrap", cpus=everything(), limits=Limits())
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def stopper_of(worker: Worker) -> psutil.Process:
    assert worker.sandbox._process is not None
    return psutil.Process(worker.sandbox._process.pid).children()[0]


@pytest.mark.parametrize("then", ["stop", "run", "resume"])
def test_the_stopper_dies(contract, then) -> None:
    """Everything in the sandbox dies with it, and that is nobody's answer."""
    with leaves_nothing(descriptors=False), Worker(contract, "bubblewrap", everything()) as worker:
        assert worker.load(RUN) is None
        stopper_of(worker).kill()
        with pytest.raises(InfrastructureError, match=r"(?s)stopper.*must act"):
            {
                "stop": worker.stop,
                "run": lambda: worker.run(case(contract), STREAM.child("dead")),
                "resume": worker.sandbox.resume,
            }[then]()


def test_stopping_cannot_be_confirmed(contract, monkeypatch) -> None:
    """A stopper that does not answer has confirmed nothing."""
    monkeypatch.setattr("bot.verify.sandbox._CONTROL_SECONDS", 0.5)
    with leaves_nothing(), Worker(contract, "bubblewrap", everything()) as worker:
        assert worker.load(RUN) is None
        stopper = stopper_of(worker)
        stopper.suspend()
        with pytest.raises(InfrastructureError, match="stopper does not answer"):
            worker.stop()
        assert not worker.sandbox.stopped


def test_a_task_would_not_stop(contract, monkeypatch, tmp_path) -> None:
    """A look that always finds one running."""
    replace_stopper(monkeypatch, changed(tmp_path, 'b"TtZXD"', 'b"tX"'))
    with leaves_nothing(), Worker(contract, "bubblewrap", everything()) as worker:
        assert worker.load(RUN) is None
        with pytest.raises(InfrastructureError, match="would not stop"):
            worker.stop()
        assert not worker.sandbox.stopped


def test_the_candidates_own_death_is_a_verdict(contract) -> None:
    """The other side: what ends once the sandbox was up is the candidate's doing."""
    with leaves_nothing(), Worker(contract, "bubblewrap", everything()) as worker:
        assert worker.load(DYING) is None
        answer = worker.run(case(contract), STREAM.child("dying"))
        assert isinstance(answer, Failure)
        assert (answer.kind, answer.text) == ("incorrect", "the process ended, exit status 0")


def test_an_exam_without_a_guard_gives_no_verdict(contract, path) -> None:
    """The whole program: exit by InfrastructureError, no Evaluation."""
    fake(path, "echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1")
    job = Job(contracts_dir=str(CONTRACTS), contract="center", candidate_name="torch_x.py", source=HONEST, mode="quick")
    with leaves_nothing(), pytest.raises(InfrastructureError, match=r"(?s)cannot be put up.*uid map.*must act"):
        launch(job)


def test_guards_say_what_is_up(contract) -> None:
    with Sandbox("bubblewrap", cpus=everything(), limits=Limits()) as sandbox:
        assert {"memory watchdog", "process limit"} <= sandbox.guards
        assert ("uid" in sandbox.guards) == (os.geteuid() == 0)
    with Sandbox("none", cpus=everything(), limits=Limits()) as sandbox:
        assert sandbox.guards == frozenset()


def test_the_own_group_is_found_below_its_mount(tmp_path) -> None:
    (tmp_path / "cgroup").write_text("4:memory:/x\n0::/ci/job\n")
    mount = f"30 20 0:26 /ci {tmp_path}/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n"
    (tmp_path / "mountinfo").write_text(f"29 20 0:25 / /sys rw - sysfs sysfs rw\n{mount}")
    assert cgroup.own_group(tmp_path) == tmp_path / "unified" / "job"
    (tmp_path / "cgroup").write_text("0::/elsewhere\n")
    assert cgroup.own_group(tmp_path) is None
    assert cgroup.own_group(tmp_path / "none") is None


def test_a_group_has_the_limits_that_its_controllers_allow(tmp_path, monkeypatch) -> None:
    """Files stand for the kernel's; a real one is used below where this machine has it."""
    monkeypatch.setattr("bot.verify.cgroup.own_group", lambda: tmp_path)
    real = Path.mkdir

    def mkdir(path, *arguments, **options) -> None:
        real(path, *arguments, **options)
        for name in ("memory.max", "pids.max", "memory.swap.max", "memory.oom.group", "cgroup.kill", "cgroup.procs"):
            (path / name).touch()
        (path / "memory.events").write_text("oom 1\noom_kill 1\n")

    monkeypatch.setattr(Path, "mkdir", mkdir)
    group = cgroup.make(1 << 30, 64)
    assert group is not None
    assert group.guards == {"memory.max", "pids.max", "cgroup.kill"}
    assert (group.path / "memory.max").read_text() == str(1 << 30)
    assert (group.path / "pids.max").read_text() == "66"
    assert (group.path / "memory.swap.max").read_text() == "0"
    assert group.ran_out()
    group.kill()
    assert (group.path / "cgroup.kill").read_text() == "1"


def test_a_real_group_ends_with_its_sandbox(contract) -> None:
    own = cgroup.own_group()
    if own is None or not os.access(own, os.W_OK):
        pytest.skip("no version 2 control group that we may write to")
    with Worker(contract, "bubblewrap", everything()) as worker:
        group = worker.sandbox._group
        assert group is not None
        assert group.entered()
        assert "cgroup.kill" in worker.sandbox.guards
        assert worker.load(RUN) is None
        group.kill()
        answer = worker.run(case(contract), STREAM.child("killed"))
        assert isinstance(answer, Failure)
        assert "signal 9" in answer.text
    assert not group.path.exists()


def test_the_contract_loads() -> None:
    """What the tests above rest on."""
    assert load_contract(CONTRACTS, "center").contract.name == "center"
