"""What a candidate can reach. Every attack runs in one worker; those that can, run in a process of the host as well."""

import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.contract.schema import Contract
from bot.verify.calls import Worker
from bot.verify.protocol import MODULES
from tests.sandbox.conftest import REPOSITORY, Answers, everything, try_inside, try_outside
from tests.verify.conftest import CONTRACTS

pytestmark = pytest.mark.sandbox

REFUSED = {"EPERM", "EACCES", "EROFS", "ENOENT", "ESRCH", "ENOSPC", "ENOSYS", "ECONNREFUSED", "ENETUNREACH"}
REFUSED |= {"OSError", "PermissionError", "FileNotFoundError", "ConnectionRefusedError", "TimeoutError"}
SECRET = "do-not-leak"

PRELUDE = """
def read(path):
    return open(path, errors="replace").read()

def clone3(flags):
    held = ctypes.create_string_buffer(struct.pack("QQQQQQQQ", flags, 0, 0, 0, 17, 0, 0, 0), 64)
    pid = syscall(435, ctypes.addressof(held), 64)
    return os._exit(0) if pid == 0 else "cloned" if isinstance(pid, int) else pid

def clone(flags):
    pid = syscall(56, flags | 17, 0, 0, 0, 0)
    return os._exit(0) if pid == 0 else "cloned" if isinstance(pid, int) else pid

def abstract(name):
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(name)
        return "connected"

def peek(pid, address):
    held = ctypes.create_string_buffer(8)
    local, remote = struct.pack("PN", ctypes.addressof(held), 8), struct.pack("PN", address, 8)
    here, there = ctypes.create_string_buffer(local), ctypes.create_string_buffer(remote)
    return syscall(310, pid, ctypes.addressof(here), 1, ctypes.addressof(there), 1, 0)

def attach(pid):
    code = syscall(101, 16, pid, 0, 0)
    if code == 0:
        os.waitpid(pid, 0x40000000)
        syscall(101, 17, pid, 0, 0)
    return code

def signal_of(command, number):
    one, other = socket.socketpair()
    return syscall(72, one.fileno(), command, number)

def node(folder):
    path = f"{folder}/node"
    os.mknod(path, 0o60600, os.makedev(254, 0))
    os.unlink(path)
    return "made"

def timer():
    event = ctypes.create_string_buffer(struct.pack("QiiQQQQQQ", 0, 18, 0, 0, 0, 0, 0, 0, 0), 64)
    held = ctypes.create_string_buffer(8)
    return syscall(222, 1, ctypes.addressof(event), ctypes.addressof(held))

def key():
    kind, name = ctypes.create_string_buffer(b"user"), ctypes.create_string_buffer(b"proctor")
    return syscall(248, ctypes.addressof(kind), ctypes.addressof(name), ctypes.addressof(name), 3, -2)

def limit_of(pid, word):
    return [line.split()[-3] for line in open(f"/proc/{pid}/limits") if line.startswith(word)][0]

def inject():
    stack = [line for line in open("/proc/1/maps") if "[stack]" in line][0]
    with open("/proc/1/mem", "r+b", buffering=0) as memory:
        memory.seek(int(stack.split("-")[0], 16))
        return memory.write(b"x")
"""


@pytest.fixture(scope="module")
def victim() -> Iterator[int]:
    """Another process of the host, of this user."""
    code = "import ctypes; ctypes.CDLL(None).prctl(0x59616D61, -1); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, env={"V": SECRET}) as process:
        yield process.pid
        process.kill()


@pytest.fixture(scope="module")
def attacks(victim) -> Iterator[dict[str, str]]:
    """The attacks by name, with what they attack set up on the host."""
    name = f"\0proctor-{os.getpid()}"
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as hidden,
        tempfile.NamedTemporaryFile(dir="/dev/shm") as shared,
        tempfile.TemporaryDirectory() as folder,
    ):
        hidden.bind(name)
        hidden.listen()
        hosts = ("/proc/1/environ", "/etc/shadow", f"/proc/{victim}/environ", f"/proc/{os.getpid()}/environ")
        ours = (
            "pyproject.toml",
            "bot/verify/oracle.py",
            "contracts/rmsnorm/oracle.py",
            "kernels/README.md",
            ".git/HEAD",
        )
        yield {
            **{f"read {path}": f"read({path!r})" for path in hosts},
            **{f"read {path}": f"read({str(REPOSITORY / path)!r})" for path in ours},
            "read the oracle": f"read({str(CONTRACTS / 'center' / 'oracle.py')!r})",
            "read home": f"os.listdir({str(Path.home() / '.ssh')!r})",
            "read shared memory": f"read({shared.name!r})",
            "list shared memory": "os.listdir('/dev/shm')",
            "list /sys": "os.listdir('/sys')",
            "open the verifier's memory": f"open('/proc/{os.getpid()}/mem', 'rb')",
            "open its sockets": f"os.listdir('/proc/{os.getpid()}/fd')",
            "signal the verifier": f"os.kill({os.getpid()}, 0)",
            "core_pattern": "open('/proc/sys/kernel/core_pattern', 'r+').close()",
            "sysrq": "open('/proc/sysrq-trigger', 'r+').close()",
            "remount /": "call('mount', b'none', b'/', None, 32 | 4096, None)",
            "remount /usr/lib": "call('mount', b'none', b'/usr/lib', None, 32 | 4096, None)",
            "mount": f"call('mount', b'none', {folder.encode()!r}, b'tmpfs', 0, None) "
            f"or call('umount2', {folder.encode()!r}, 0)",
            "unshare": "call('unshare', 0x10000000)",
            "clone a user namespace": "clone(0x10000000)",
            "clone3 a user namespace": "clone3(0x10000000)",
            "clone a mount namespace": "clone(0x00020000)",
            "ptrace": f"attach({victim})",
            "process_vm_readv": f"peek({victim}, ctypes.addressof(ctypes.create_string_buffer(8)))",
            "connect": f"socket.create_connection(('127.0.0.1', {tcp.getsockname()[1]}), timeout=1) and 'connected'",
            "connect out": "socket.create_connection(('192.0.2.1', 80), timeout=1)",
            "abstract socket": f"abstract({name!r})",
            "vsock": "socket.socket(40, socket.SOCK_STREAM).close()",
            "vsock, high bits": "syscall(41, 40 | 1 << 32, 1, 0)",
            "kernel crypto": "socket.socket(38, socket.SOCK_SEQPACKET).close()",
            "raw packets": "socket.socket(17, socket.SOCK_RAW).close()",
            "F_SETSIG": "signal_of(10, 18)",
            "F_SETSIG, high bits": "signal_of(10 | 1 << 32, 18)",
            "timer_create": "timer()",
            "keyring": "key()",
            "bpf": "syscall(321, 0, 0, 0)",
            "io_uring": "syscall(425, 1, 0)",
            "device node": f"node('/tmp' if os.path.isdir('/proctor') else {folder!r})",
            "affinity": "os.sched_setaffinity(0, os.sched_getaffinity(0))",
            "scheduler": "os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))",
            "nice": "os.nice(0)",
            "io priority": "syscall(251, 1, 0, 0)",
            "memfd": "os.memfd_create('x')",
            "System V memory": "syscall(29, 0, 1 << 20, 0o1600)",
            "System V semaphores": "syscall(64, 0, 100, 0o1600)",
            "System V messages": "syscall(68, 0, 0o1600)",
            "write ours": "open('/proctor/bot/verify/worker.py', 'w')",
            "write /": "open('/new', 'w')",
            "write /usr/lib": "open('/usr/lib/new', 'w')",
            "write /dev": "open('/dev/new', 'w')",
            "host's /etc": "os.listdir('/proc/1/root/etc')",
            "write /tmp": "open('/tmp/new', 'w').write('x')",
            "uid": "os.getuid()",
            "capabilities": "[l.split()[1] for l in open('/proc/self/status') if l.startswith('Cap')]",
            "no new privileges": "[l.split()[1] for l in open('/proc/self/status') if l.startswith('NoNewPrivs')][0]",
            "environment": "dict(os.environ)",
            "interfaces": "[i[1] for i in socket.if_nameindex()]",
            "pids": "sorted(int(p) for p in os.listdir('/proc') if p.isdigit())",
            "arguments of pid 1": "read('/proc/1/cmdline')",
            "top": "sorted(os.listdir('/'))",
            "modules": "sorted(os.listdir('/proctor/bot/verify'))",
            "devices": "sorted(os.listdir('/dev'))",
            "mounts": "[line.split() for line in open('/proc/self/mountinfo')]",
            "descriptors": "[(os.readlink(f'/proc/self/fd/{f}') if os.path.exists(f'/proc/self/fd/{f}') else '') "
            "for f in os.listdir('/proc/self/fd')]",
            "inject into pid 1": "inject()",
            "limits of pid 1": "[limit_of(1, f'Max {w}') for w in ('processes', 'open files', 'address', 'file')]",
        }


@pytest.fixture(scope="module")
def inside(contract: Contract, attacks) -> Answers:
    """What all attacks came to in the sandbox."""
    os.environ["PROCTOR_TEST_SECRET"] = SECRET
    try:
        with Worker(contract, "bubblewrap", everything()) as worker:
            return try_inside(worker, attacks, PRELUDE)
    finally:
        del os.environ["PROCTOR_TEST_SECRET"]


FILES = ["/proc/1/environ", "/etc/shadow", "pyproject.toml", "bot/verify/oracle.py", "contracts/rmsnorm/oracle.py"]
DENIED = [
    *(f"read {path}" for path in FILES if path != "/proc/1/environ"),
    "read the oracle",
    "read home",
    "read shared memory",
    "list /sys",
    "open the verifier's memory",
    "open its sockets",
    "core_pattern",
    "sysrq",
    "remount /",
    "remount /usr/lib",
    "mount",
    "unshare",
    "clone a user namespace",
    "clone3 a user namespace",
    "clone a mount namespace",
    "ptrace",
    "process_vm_readv",
    "connect",
    "connect out",
    "abstract socket",
    "vsock",
    "vsock, high bits",
    "kernel crypto",
    "raw packets",
    "F_SETSIG",
    "F_SETSIG, high bits",
    "timer_create",
    "keyring",
    "bpf",
    "io_uring",
    "device node",
    "affinity",
    "scheduler",
    "nice",
    "io priority",
    "memfd",
    "System V memory",
    "System V semaphores",
    "System V messages",
    "write ours",
    "write /",
    "write /usr/lib",
    "write /dev",
]
NO_CONTROL = {
    # Nothing to reach here, or this machine's root cannot do it either, or it would do harm.
    *(
        "read home",
        "sysrq",
        "connect out",
        "remount /",
        "remount /usr/lib",
        "bpf",
        "io_uring",
        "keyring",
        "process_vm_readv",
    ),
    *(
        "vsock",
        "vsock, high bits",
        "kernel crypto",
        "raw packets",
        "write ours",
        "write /",
        "write /usr/lib",
        "write /dev",
    ),
}


@pytest.mark.parametrize("name", DENIED)
def test_it_is_refused(inside, name) -> None:
    assert inside[name] in REFUSED | {"ProcessLookupError"}, inside[name]


@pytest.mark.skipif(os.geteuid() != 0, reason="the controls do what root may")
def test_the_same_attacks_work_outside(attacks) -> None:
    controls = {name: text for name, text in attacks.items() if name in DENIED and name not in NO_CONTROL}
    # `unshare` last: afterwards the process has other rights.
    controls["unshare"] = controls.pop("unshare")
    outside = try_outside(controls, PRELUDE)
    assert {name: answer for name, answer in outside.items() if str(answer) in REFUSED} == {}


def test_no_privilege_no_secret_no_network(inside) -> None:
    assert inside["uid"] not in {0, None}
    assert {int(value, 16) for value in inside["capabilities"]} == {0}
    assert inside["no new privileges"] == "1"
    assert set(inside["environment"]) <= {"HOME", "LC_CTYPE", "OMP_NUM_THREADS", "PATH", "PWD"}
    assert SECRET not in str(inside["environment"])
    assert inside["interfaces"] == ["lo"]


def test_only_the_allow_list_is_there(inside) -> None:
    """Folders that lead to Python and its packages are there with nothing else in them."""
    assert "home" not in inside["top"]
    assert inside["host's /etc"] in (["ld.so.cache"], "PermissionError")
    assert inside["modules"] == sorted(Path(m).name for m in MODULES if m.startswith("bot/verify/"))
    assert inside["list shared memory"] == []
    known = {"null", "zero", "full", "random", "urandom", "tty", "stdin", "stdout", "stderr", "fd", "core", "pts"}
    assert set(inside["devices"]) <= known | {"ptmx", "shm", "console"}
    assert inside["write /tmp"] == 1


def test_every_mount_is_read_only_or_its_own_and_none_honours_setuid(inside) -> None:
    writable = {fields[4] for fields in inside["mounts"] if "rw" in fields[5].split(",")}
    assert {place for place in writable if not place.startswith("/dev/")} == {"/proc", "/tmp"}  # noqa: S108
    assert all("nosuid" in fields[5] for fields in inside["mounts"])
    assert not any(fields[4].startswith("/sys") for fields in inside["mounts"])


def test_other_processes_cannot_be_seen_or_reached(inside) -> None:
    assert len(inside["pids"]) <= 3
    assert max(inside["pids"]) < 100
    assert inside["signal the verifier"] in {"ProcessLookupError", "PermissionError"}
    for path in ("/proc/1/environ",):
        assert inside[f"read {path}"] in {"", "PermissionError"}
    assert SECRET not in str(inside["arguments of pid 1"])
    assert str(Path.home() / ".ssh") not in str(inside["arguments of pid 1"])


def test_its_descriptors_are_its_streams_one_socket_and_lent_memory(inside) -> None:
    kinds = {link.split(":")[0].split(" ")[0] for link in inside["descriptors"]}
    assert kinds <= {"/dev/null", "pipe", "socket", "/memfd", "/proc/2/fd", "", "/dev/urandom", "anon_inode"}
    assert sum(link.startswith("socket") for link in inside["descriptors"]) == 1


def test_bubblewraps_pid_1_has_the_same_limits(inside) -> None:
    """It shares its uid with the candidate, whose code it can be made to run."""
    assert "unlimited" not in inside["limits of pid 1"]
    assert int(inside["limits of pid 1"][0]) <= 256


def test_no_file_can_be_made_setuid_root(inside) -> None:
    """`nosuid` and no new privileges are shown above; this machine's own setuid programs are not mounted."""
    programs = [
        Path(folder, name) for folder in ("/usr/bin", "/usr/sbin") for name in ("su", "mount", "passwd", "sudo")
    ]
    found = [p for p in programs if p.exists() and p.stat().st_mode & stat.S_ISUID]
    mounted = {fields[4] for fields in inside["mounts"]}
    assert not any(str(program).startswith(f"{place}/") for program in found for place in mounted if place != "/")
