"""Start a worker inside bubblewrap, stop and resume it, and make sure that nothing of it is left.

Never host root inside: `stopper.py` stages an allow-list of read-only mounts in a private namespace, takes a uid of the
worker's own, and only then becomes bubblewrap (design.md, The sandbox). Without a sandbox nothing can be accepted.
"""

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

import psutil
import pyseccomp

from bot.errors import InfrastructureError
from bot.verify.protocol import MODULES

Kind = Literal["bubblewrap", "none"]
OUTPUT_KEPT = 4000
"""Bytes kept of what a worker prints; the rest is read and dropped, so that a flood neither blocks nor fills."""
_UIDS = (1_000_000_000, 2_000_000_000)
_CONTROL_SECONDS = 10.0

# Its own CPU set is the verifier's to choose; the rest reaches other processes, the kernel, or new privileges.
_DENIED = """
sched_setaffinity sched_setscheduler sched_setattr setpriority ptrace process_vm_readv process_vm_writev
process_madvise kcmp pidfd_getfd perf_event_open bpf userfaultfd mount umount2 pivot_root move_mount open_tree
fsopen fsconfig fsmount fspick mount_setattr setns unshare keyctl add_key request_key init_module finit_module
delete_module kexec_load kexec_file_load reboot swapon swapoff syslog acct quotactl iopl ioperm settimeofday
clock_settime clock_adjtime adjtimex nfsservctl lookup_dcookie io_uring_setup io_uring_enter io_uring_register
timer_create mq_notify
"""
_F_SETSIG = 10
"""fcntl's command that chooses the signal of asynchronous input. It, `timer_create` and `mq_notify` could choose
SIGCONT: the kernel itself would then wake a sandbox that we have stopped."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes and counts for one sandbox; 0 means none. Address space is limited on the CPU only: CUDA maps terabytes."""

    address_space: int = 12 << 30
    resident: int = 6 << 30
    processes: int = 256
    files: int = 512
    file_size: int = 256 << 20
    tmp: int = 256 << 20
    shm: int = 256 << 20


class Output:
    """What a worker prints: drained for ever, the last part kept."""

    def __init__(self, stream: int) -> None:
        """Drain descriptor `stream` in a thread."""
        self._kept = b""
        self._thread = threading.Thread(target=self._drain, args=(stream,), daemon=True)
        self._thread.start()

    def _drain(self, stream: int) -> None:
        with open(stream, "rb", buffering=0) as file:
            while data := file.read(1 << 16):
                self._kept = (self._kept + data)[-OUTPUT_KEPT:]

    def text(self) -> str:
        """The last part, decoded leniently."""
        self._thread.join(0.2)
        return self._kept.decode("utf-8", "replace")


class Sandbox:
    """One worker process in its sandbox. `wire` speaks protocol.py; use as a context manager."""

    def __init__(self, kind: Kind, *, cpus: set[int], limits: Limits, fork: bool = False) -> None:
        """Start the worker on any of `cpus`; it imports torch while the caller goes on.

        Raises:
            InfrastructureError: the sandbox cannot be put up.
        """
        self.kind = kind
        self.limits = limits
        self._owed = False
        self.wire, inner = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._stage = tempfile.mkdtemp(prefix="proctor-")
        self._control, control_inner = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        read, write = os.pipe()
        self.output = Output(read)
        try:
            if kind == "bubblewrap":
                self._start_bubblewrap(inner, control_inner, write, cpus, fork=fork)
            else:
                self._start_bare(inner, write, cpus, fork=fork)
        finally:
            inner.close()
            control_inner.close()
            os.close(write)
        self.stopped = False

    def _start_bubblewrap(
        self, inner: socket.socket, control: socket.socket, write: int, cpus: set[int], *, fork: bool
    ) -> None:
        bwrap = shutil.which("bwrap")
        if bwrap is None:
            raise InfrastructureError("bubblewrap is missing: install the package `bubblewrap`, or use --sandbox none")
        mounts = _mounts()
        uid = _UIDS[0] + secrets.randbelow(_UIDS[1] - _UIDS[0]) if os.geteuid() == 0 else None
        with _seccomp_filter() as seccomp:
            order = {
                "stage": self._stage,
                "sources": [source for source, _ in mounts],
                "uid": uid,
                "fds": [inner.fileno(), seccomp.fileno()],
                "bwrap": _bwrap_arguments(bwrap, mounts, self.limits, seccomp.fileno())
                + worker_command(inner.fileno(), self.limits, fork=fork, shared_uid=uid is None),
            }
            self._process = subprocess.Popen(
                [sys._base_executable, "-I", "-S", str(Path(__file__).with_name("stopper.py")), str(control.fileno())],  # type: ignore[attr-defined]  # noqa: SLF001
                pass_fds=(control.fileno(), inner.fileno(), seccomp.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=write,
                stderr=write,
                env={},
                cwd="/",
                preexec_fn=lambda: os.sched_setaffinity(0, cpus),  # noqa: PLW1509 - no thread of ours holds a lock here
            )
            self._control.send(json.dumps(order).encode())
            self._control.settimeout(_CONTROL_SECONDS)
            answer = self._hear()
        if not answer.startswith(b"r"):
            self.close()
            reason = answer[1:].decode("utf-8", "replace") or self.output.text().strip() or "the stopper ended"
            raise InfrastructureError(f"the sandbox cannot be put up: {reason}")

    def _start_bare(self, inner: socket.socket, write: int, cpus: set[int], *, fork: bool) -> None:
        limits = Limits(0, self.limits.resident, 0, 0, 0)
        self._process = subprocess.Popen(
            worker_command(inner.fileno(), limits, fork=fork, shared_uid=True, root=str(_root())),
            pass_fds=(inner.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=write,
            stderr=write,
            env={"HOME": "/tmp", "OMP_NUM_THREADS": "1"},  # noqa: S108 - a place, not a file
            cwd="/",
            start_new_session=True,
            preexec_fn=lambda: os.sched_setaffinity(0, cpus),  # noqa: PLW1509
        )

    def _hear(self) -> bytes:
        try:
            return self._control.recv(4096)
        except OSError:
            return b""

    def _command(self, command: bytes) -> bytes:
        self.collect()
        try:
            self._control.send(command)
        except OSError:
            return b""
        return self._hear()

    def pin(self, cpus: set[int]) -> None:
        """Keep every task on these CPUs from now on; children inherit it, and the call that undoes it is denied."""
        with contextlib.suppress(psutil.Error):
            first = psutil.Process(self._process.pid)
            inside = first.children(recursive=True) if self.kind == "bubblewrap" else [first]
            # The stopper among them stays where it is: it must not wait for the CPU of a candidate that spins.
            for process in inside[1:] if self.kind == "bubblewrap" else inside:
                for thread in process.threads():
                    with contextlib.suppress(ProcessLookupError):
                        os.sched_setaffinity(thread.id, cpus)

    def stop(self) -> None:
        """Stop every task of the sandbox; returns when the stopper has seen each of them stopped.

        Raises:
            InfrastructureError: it could not be confirmed.
        """
        if self.kind == "none":
            return
        answer = self._command(b"S")
        if answer == b"!":
            raise InfrastructureError("a task of the sandbox would not stop")
        self.stopped = True

    def resume(self) -> None:
        """Let every task go on."""
        if self.kind == "none":
            return
        self._command(b"C")
        self.stopped = False

    def resume_without_wait(self) -> None:
        """Let every task go on; the stopper's confirmation is read by `collect`, off the clock."""
        if self.kind == "bubblewrap":
            with contextlib.suppress(OSError):
                self._control.send(b"C")
                self._owed = True
        self.stopped = False

    def collect(self) -> None:
        """Read the confirmation that `resume_without_wait` left, if it did."""
        if self._owed:
            self._owed = False
            self._hear()

    def ended(self) -> str | None:
        """How the worker ended, in words, or None while it runs."""
        if self.kind == "none":
            code = self._process.poll()
        else:
            answer = self._command(b"E")
            code = int.from_bytes(answer[1:], "big", signed=True) if answer[:1] == b"e" else -9
            code = None if code == 1000 else code
        if code is None:
            return None
        # bubblewrap, like a shell, reports a child killed by signal n as exit status 128 + n.
        number = -code if code < 0 else code - 128
        return f"the process was killed by signal {number}" if number > 0 else f"the process ended, exit status {code}"

    def resident_bytes(self) -> int:
        """Memory of all processes of the sandbox."""
        total = 0
        with contextlib.suppress(psutil.Error):
            for process in psutil.Process(self._process.pid).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    total += process.memory_info().rss
        return total

    def close(self) -> None:
        """End every process of the sandbox: its PID namespace dies with its first process."""
        self._control.close()
        self.wire.close()
        children: list[psutil.Process] = []
        with contextlib.suppress(psutil.Error):
            children = psutil.Process(self._process.pid).children(recursive=True)
        for child in children:
            with contextlib.suppress(psutil.Error):
                child.kill()
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._stage, ignore_errors=True)

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _root() -> Path:
    """The folder that holds `bot/`."""
    return Path(__file__).resolve().parents[2]


def _site_packages() -> Path:
    return Path(psutil.__file__).resolve().parents[1]


def _mounts() -> list[tuple[str, str]]:
    """The allow-list, (source, destination): Python, its packages, the system's libraries, four modules of ours."""
    prefix, site = Path(sys.base_prefix), _site_packages()
    places = [Path("/usr/lib"), Path("/usr/lib64"), Path("/etc/ld.so.cache"), site]
    if prefix == Path("/usr"):
        places.append(Path(os.path.realpath(sys.executable)))
    else:
        places.append(prefix)
    places += [p for p in (Path("/lib"), Path("/lib64")) if p.is_dir() and not p.is_symlink()]
    mounts = [(str(p), str(p)) for p in places if p.exists()]
    return mounts + [(str(_root() / module), f"/proctor/{module}") for module in MODULES]


def _bwrap_arguments(bwrap: str, mounts: list[tuple[str, str]], limits: Limits, seccomp: int) -> list[str]:
    arguments = [
        *(bwrap, "--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL", "--new-session"),
        *("--die-with-parent", "--clearenv", "--seccomp", str(seccomp), "--proc", "/proc", "--dev", "/dev"),
        *("--size", str(limits.shm), "--tmpfs", "/dev/shm", "--size", str(limits.tmp), "--tmpfs", "/tmp"),  # noqa: S108
        *("--setenv", "HOME", "/tmp", "--setenv", "OMP_NUM_THREADS", "1", "--setenv", "PATH", "/usr/bin"),  # noqa: S108
    ]
    for number, (_, destination) in enumerate(mounts):
        arguments += ["--ro-bind", f"STAGED:{number}", destination]
    for link in ("/lib", "/lib64"):
        if Path(link).is_symlink():
            arguments += ["--symlink", str(Path(link).readlink()), link]
    return [*arguments, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp", "--"]  # noqa: S108


def worker_command(wire: int, limits: Limits, *, fork: bool, shared_uid: bool, root: str = "/proctor") -> list[str]:
    """The worker's command line. A uid shared with others (no root) cannot have its processes counted."""
    code = (
        f"import sys; sys.path[:0] = [{root!r}, {str(_site_packages())!r}]; from bot.verify.worker import main; main()"
    )
    processes = 0 if shared_uid else limits.processes
    numbers = (wire, limits.address_space, processes, limits.files, limits.file_size)
    executable: str = os.path.realpath(sys._base_executable)  # type: ignore[attr-defined]  # noqa: SLF001
    return [executable, "-I", "-S", "-B", "-c", code, *map(str, numbers), *(["--fork"] if fork else [])]


@contextlib.contextmanager
def _seccomp_filter() -> Iterator[IO[bytes]]:
    rules = pyseccomp.SyscallFilter(defaction=pyseccomp.ALLOW)
    for name in _DENIED.split():
        # Systems without one of these calls have nothing to deny.
        with contextlib.suppress(RuntimeError, OSError, ValueError):
            rules.add_rule(pyseccomp.ERRNO(1), name)
    rules.add_rule(pyseccomp.ERRNO(1), "fcntl", pyseccomp.Arg(1, pyseccomp.EQ, _F_SETSIG))
    with tempfile.TemporaryFile() as file:
        rules.export_bpf(file)
        file.flush()
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        os.set_inheritable(file.fileno(), True)  # noqa: FBT003 - its only signature
        yield file
