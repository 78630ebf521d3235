"""Without root: the worker shares its uid with the verifier, and nothing else. The same attacks, and an honest exam.

Where the tests run as root, a part of them is run again as an ordinary user, in a mount namespace in which a Python
below /root can be entered and the rest of /root is gone.
"""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bot.evaluation import Evaluation, Job
from bot.launch import launch
from bot.verdict import decide
from bot.verify.calls import Worker
from tests.sandbox.conftest import REPOSITORY, everything, leaves_nothing, try_inside
from tests.verify.conftest import CONTRACTS, HONEST

pytestmark = pytest.mark.sandbox

UID = 54321
BECOME = """
import ctypes, os, sys
from pathlib import Path

libc = ctypes.CDLL(None, use_errno=True)
PRIVATE, BIND, REC, NEWNS = 1 << 18, 4096, 16384, 0x20000

def mount(source, target, kind, flags, data=None):
    if libc.mount(source.encode(), target.encode(), kind, flags, data):
        sys.exit(f"mount {source} on {target}: {os.strerror(ctypes.get_errno())}")

uid, home, prefix, *command = sys.argv[1:]
if libc.unshare(NEWNS):
    sys.exit("no mount namespace of our own")
mount("none", "/", None, REC | PRIVATE)
closed = next((p for p in reversed(Path(prefix).parents) if not p.stat().st_mode & 0o001), None)
if closed is not None:
    kept = Path(home, "prefix")
    kept.mkdir()
    mount(prefix, str(kept), None, BIND | REC)
    mount("none", str(closed), b"tmpfs", 0, b"mode=755,size=1m")
    Path(prefix).mkdir(parents=True)
    mount(str(kept), prefix, None, BIND | REC)
os.setgroups([])
os.setresgid(*[int(uid)] * 3)
os.setresuid(*[int(uid)] * 3)
os.execv(command[0], command)
"""
SELECTION = (
    "test_escapes.py",
    "test_exhaustion.py::test_processes_are_counted",
    "test_exhaustion.py::test_memory_of_all_processes_together_is_bounded[mmap.MAP_PRIVATE]",
    "test_stopping.py::test_everything_is_stopped_between_calls[exit signal]",
    "test_guards.py::test_the_stopper_dies[stop]",
    "test_guards.py::test_a_mount_cannot_be_staged",
    "test_guards.py::test_a_limit_cannot_be_set",
    "test_users.py",
)


def test_an_honest_kernel_is_accepted() -> None:
    """By whoever runs these tests."""
    job = Job(contracts_dir=str(CONTRACTS), contract="center", candidate_name="torch_x.py", source=HONEST, mode="quick")
    with leaves_nothing():
        found = launch(job)
    assert isinstance(found, Evaluation)
    assert found.refusal is None
    assert decide([found]).accepted


def test_a_shared_uid_reaches_nothing_of_the_verifier(contract) -> None:
    """Only an ordinary user's worker has it, but whoever has it: another PID namespace, other mounts, other sockets."""
    inside = f"/proc/{os.getpid()}"
    attacks = {
        "uid": "os.getuid()",
        "memory": f"open('{inside}/mem', 'rb')",
        "descriptors": f"os.listdir('{inside}/fd')",
        "root": f"os.listdir('{inside}/root')",
        "environment": f"open('{inside}/environ').read()",
        "kill": f"os.kill({os.getpid()}, 0)",
        "kill all": "len([os.kill(-1, 0)])",
        "pidfd": f"os.pidfd_open({os.getpid()})",
        "limits": f"resource.prlimit({os.getpid()}, resource.RLIMIT_NOFILE, (0, 0))",
        "priority": f"os.setpriority(os.PRIO_USER, {os.getuid()}, 19)",
        "home": f"os.listdir({os.environ.get('HOME', '/root')!r})",
        "map": "open('/proc/self/uid_map').read().split()",
        "groups": "os.setgroups([])",
        "other uid": "os.setuid(0)",
    }
    with Worker(contract, "bubblewrap", everything()) as worker:
        found = try_inside(worker, attacks)
    assert found["uid"] == int(found["map"][0])
    if os.geteuid() != 0:
        assert found["uid"] == os.geteuid()
    for name in ("memory", "descriptors", "root", "environment", "kill", "pidfd", "limits", "priority", "groups"):
        assert found[name] in {"FileNotFoundError", "ProcessLookupError", "PermissionError"}, name
    assert found["home"] in ("FileNotFoundError", [], [".pyenv"], "PermissionError")
    assert found["other uid"] in {"PermissionError", "OSError"}


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user runs these tests already")
@pytest.mark.timeout(240)
def test_the_same_as_an_ordinary_user(tmp_path) -> None:
    """Every attack of the list fails there too, and the honest kernel passes."""
    reason = unable()
    if reason:
        pytest.skip(reason)
    home = Path("/tmp", f"proctor-user-{os.getpid()}")  # noqa: S108
    home.mkdir(mode=0o755)
    (home / "home").mkdir()
    os.chown(home / "home", UID, UID)
    tests = [str(REPOSITORY / "tests" / "sandbox" / name) for name in SELECTION]
    become = [sys.executable, "-c", BECOME, str(UID), str(home), sys.base_prefix]
    options = ["-q", "-rs", "-p", "no:cacheprovider", "--rootdir", str(REPOSITORY), "--basetemp", f"{home}/home/tmp"]
    try:
        done = subprocess.run(
            [*become, sys.executable, "-m", "pytest", *options, *tests],
            cwd=REPOSITORY,
            env={"PATH": os.environ["PATH"], "HOME": f"{home}/home", "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=220,
            check=False,
        )
    finally:
        subprocess.run(["rm", "-rf", "--one-file-system", str(home)], check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "passed" in done.stdout


def unable() -> str:
    """Why an ordinary user cannot have a sandbox here; empty when they can."""
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setresgid(UID, UID, UID)
        os.setresuid(UID, UID, UID)
        os._exit(ctypes.CDLL(None).unshare(0x10000000) != 0)
    _, status = os.waitpid(child, 0)
    if status:
        return "user namespaces are not available to an ordinary user of this machine"
    if not REPOSITORY.stat().st_mode & 0o001 or any(not p.stat().st_mode & 0o001 for p in REPOSITORY.parents):
        return f"an ordinary user of this machine cannot enter {REPOSITORY}"
    return ""
