"""Start a worker inside bubblewrap, stop and resume it, and make sure that nothing of it is left.

Never host root inside: `stopper.py` stages an allow-list of read-only mounts in a private namespace, takes a uid of the
worker's own, and only then becomes bubblewrap (design.md, The sandbox). Without a sandbox nothing can be accepted, and
a guard that cannot be put up is an InfrastructureError, never a weaker sandbox.
"""

import contextlib
import json
import os
import platform
import re
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Literal

import psutil

from bot.errors import OWNER, InfrastructureError
from bot.verify import cgroup
from bot.verify.mounts import (
    GpuAccess,
    Limits,
    bwrap_arguments,
    environment,
    mounts_of,
    root_of_ours,
    worker_command,
)
from bot.verify.protocol import MODULES
from bot.verify.seccomp import seccomp_filter

Kind = Literal["bubblewrap", "none"]
OUTPUT_KEPT = 4000
"""Bytes kept of what a worker prints; the rest is read and dropped, so that a flood neither blocks nor fills."""
_UIDS = (1_000_000_000, 2_000_000_000)
_CONTROL_SECONDS = 30.0
"""Python alone has taken ten to start here, with six others starting."""
_CLOSE_SECONDS = 20.0
_MEMORY_STATUS = 77
"""What stopper.py ends with when the sandbox held too much memory; it is started, never imported."""
_USER_NAMESPACES = (
    "user namespaces must be allowed for unprivileged users (user.max_user_namespaces, "
    "kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)"
)
_HINTS = (
    (r"namespace|uid map|No space", _USER_NAMESPACES),
    (r"RLIMIT", "raise the hard limit for the verifier's processes"),
    (r"seccomp", "the kernel must support seccomp filters"),
    (r"mount|/proc", "a private mount namespace with a /proc of its own must be possible here"),
    (r"uid", "the verifier must run as an ordinary user, or as a root that may take any uid"),
)
"""What bubblewrap or the stopper says, and what to do about it."""


class NotStoppedError(InfrastructureError):
    """A task of the sandbox would not stop in time."""


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

    def __init__(
        self,
        kind: Kind,
        *,
        cpus: set[int],
        limits: Limits,
        fork: bool = False,
        gpu: GpuAccess | None = None,
        modules: tuple[str, ...] = MODULES,
        packages: frozenset[str] = frozenset(),
    ) -> None:
        """Start the worker on any of `cpus`; it imports torch while the caller goes on. `modules`: the files of ours
        that it sees, the last of them the program that it runs; `packages`: distributions it sees beside the usual.

        Raises:
            InfrastructureError: the sandbox cannot be put up.
        """
        self.kind = kind
        self.limits = limits
        self.gpu = gpu
        self.modules = modules
        self.packages = packages
        self.guards: frozenset[str] = frozenset()
        """Names of the guards that are up beyond those without which there is no sandbox at all."""
        self.stopped = False
        self._owed = False
        self._up = False
        self._group: cgroup.Group | None = None
        self._process: subprocess.Popen[bytes] | None = None
        with contextlib.ExitStack() as stack:
            stack.callback(self.close)
            try:
                self._start(cpus, fork=fork)
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                raise _not_put_up(str(error)) from error
            stack.pop_all()

    def _start(self, cpus: set[int], *, fork: bool) -> None:
        with contextlib.ExitStack() as inside:
            self.wire, inner = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            inside.enter_context(inner)
            self._control, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            inside.enter_context(control)
            read, write = os.pipe()
            inside.callback(os.close, write)
            self.output = Output(read)
            self._stage = tempfile.mkdtemp(prefix="proctor-")
            if self.kind == "bubblewrap":
                self._start_bubblewrap(inner, control, write, cpus, fork=fork)
            else:
                self._start_bare(inner, write, cpus, fork=fork)

    def _start_bubblewrap(
        self, inner: socket.socket, control: socket.socket, write: int, cpus: set[int], *, fork: bool
    ) -> None:
        bwrap = shutil.which("bwrap")
        if bwrap is None:
            raise InfrastructureError("bubblewrap is missing: install the package `bubblewrap`, or use --sandbox none")
        mounts = mounts_of(self.gpu, self.modules, self.packages)
        uid = _UIDS[0] + secrets.randbelow(_UIDS[1] - _UIDS[0]) if os.geteuid() == 0 else None
        limits = self.limits
        processes = limits.processes if uid is not None or _counts_per_namespace() else 0
        memory = limits.resident + limits.tmp + limits.shm if limits.resident else 0
        self._group = cgroup.make(memory, limits.processes)
        with seccomp_filter() as seccomp:
            order = {
                "stage": self._stage,
                "sources": [source for source, _ in mounts if source],
                "uid": uid,
                "group": str(self._group.path) if self._group else None,
                "limits": [limits.address_space, processes, limits.files, limits.file_size],
                "memory": limits.resident,
                "fds": [inner.fileno(), seccomp.fileno()],
                "bwrap": bwrap_arguments(bwrap, mounts, self.limits, seccomp.fileno(), self.gpu)
                + worker_command(
                    inner.fileno(),
                    self.limits,
                    fork=fork,
                    shared_uid=not processes,
                    gpu=self.gpu is not None,
                    program=self.modules[-1],
                ),
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
            control.close()  # Ours is the only other end now: the stopper's death is the end of the stream.
            self._control.settimeout(_CONTROL_SECONDS)
            with contextlib.suppress(OSError):
                self._control.send(json.dumps(order).encode())
            answer = self._hear()
        if answer != b"r":
            reason = answer[1:].decode("utf-8", "replace") or self.output.text().strip() or "the stopper ended"
            raise _not_put_up(reason)
        up = {"memory watchdog", *(["uid"] if uid is not None else []), *(["process limit"] if processes else [])}
        if self._group is not None and self._group.entered():
            up |= self._group.guards
        self.guards = frozenset(up)

    def _start_bare(self, inner: socket.socket, write: int, cpus: set[int], *, fork: bool) -> None:
        limits = Limits(0, self.limits.resident, 0, 0, 0)
        self._process = subprocess.Popen(
            worker_command(
                inner.fileno(),
                limits,
                fork=fork,
                shared_uid=True,
                gpu=self.gpu is not None,
                root=str(root_of_ours()),
                program=self.modules[-1],
            ),
            pass_fds=(inner.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=write,
            stderr=write,
            env=environment(self.gpu),
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

    def _ordered(self, command: bytes, confirmed: bytes) -> None:
        """Have the stopper do something. A sandbox that was ended for its memory has nothing left to stop.

        Raises:
            InfrastructureError: it was not confirmed.
        """
        answer = self._command(command)
        if answer == b"!":
            raise NotStoppedError("a task of the sandbox would not stop")
        if answer != confirmed and not self._ended_for_memory():
            raise self._lost()

    def _lost(self) -> InfrastructureError:
        """The stopper is ours, and no candidate can reach it."""
        status = "does not answer" if self._alive() else "ended"
        return InfrastructureError(f"the sandbox's stopper {status}: nothing can be measured or confirmed. {OWNER}")

    def _alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _ended_for_memory(self) -> bool:
        """Whether the watchdog ended it. It says so once everything is dead, which takes a moment."""
        if self._process is None or not self._hung_up():
            return False
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(_CLOSE_SECONDS) == _MEMORY_STATUS
        return False

    def _hung_up(self) -> bool:
        """Whether the stopper's end of the control socket is closed."""
        try:
            readable, _, _ = select.select([self._control], [], [], 0)
            return bool(readable) and self._control.recv(1, socket.MSG_PEEK) == b""
        except (OSError, ValueError):
            return True

    def pin(self, cpus: set[int]) -> None:
        """Keep every task on these CPUs from now on; children inherit it, and the call that undoes it is denied. The
        sandbox is up then, and what ends it afterwards is the candidate's doing."""
        self._up = True
        assert self._process is not None  # noqa: S101 - started
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
        self._ordered(b"S", b"s")
        self.stopped = True

    def resume(self) -> None:
        """Let every task go on.

        Raises:
            InfrastructureError: the stopper is gone.
        """
        if self.kind == "none":
            return
        self._ordered(b"C", b"c")
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
        """How the worker ended, in words, or None while it runs.

        Raises:
            InfrastructureError: the stopper is gone, or bubblewrap ended before the worker was up.
        """
        code = self._exit_code()
        if code is None:
            return None
        if isinstance(code, str):
            return code
        # bubblewrap, like a shell, reports a child killed by signal n as exit status 128 + n.
        number = -code if code < 0 else code - 128
        how = f"the process was killed by signal {number}" if number > 0 else f"the process ended, exit status {code}"
        if not self._up:
            raise _not_put_up(f"{how}\n{self.output.text()}".strip())
        if number == signal.SIGKILL and self._group is not None and self._group.ran_out():
            return self._too_much()
        return how

    def _exit_code(self) -> int | str | None:
        assert self._process is not None  # noqa: S101 - started
        if self.kind == "none":
            return self._process.poll()
        answer = self._command(b"E")
        if answer[:1] == b"e":
            code = int.from_bytes(answer[1:], "big", signed=True)
            return None if code == 1000 else code
        if self._ended_for_memory():
            return self._too_much()
        raise self._lost()

    def _too_much(self) -> str:
        size = self.limits.resident
        return (
            f"used more than {size >> 30} GiB of memory" if size >> 30 else f"used more than {size >> 20} MiB of memory"
        )

    def resident_bytes(self) -> int:
        """Memory of all processes of the sandbox."""
        total = 0
        if self._process is not None:
            with contextlib.suppress(psutil.Error):
                first = psutil.Process(self._process.pid)
                for process in [first, *first.children(recursive=True)]:
                    with contextlib.suppress(psutil.Error):
                        held = process.memory_info()
                        total += held.rss - held.shared
        return total

    def close(self) -> None:
        """End every process of the sandbox, and see that they are gone: a PID namespace dies with its first process,
        and the stopper's parent ends when the last of them has.

        Raises:
            InfrastructureError: something would not end.
        """
        for end in ("_control", "wire"):
            if hasattr(self, end):
                getattr(self, end).close()
        try:
            if self._process is not None:
                self._end(self._process)
        finally:
            if self._group is not None:
                self._group.remove()
            if hasattr(self, "_stage"):
                shutil.rmtree(self._stage, ignore_errors=True)

    def _end(self, process: "subprocess.Popen[bytes]") -> None:
        first: list[psutil.Process] = []
        with contextlib.suppress(psutil.Error):
            first = psutil.Process(process.pid).children(recursive=self.kind == "none")
        for child in first:
            with contextlib.suppress(psutil.Error):
                child.kill()
        if self._group is not None:
            self._group.kill()
        if self.kind == "none":
            process.kill()
        try:
            process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise InfrastructureError(f"processes of a sandbox would not end. {OWNER}") from None

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _not_put_up(reason: str) -> InfrastructureError:
    advice = next((hint for pattern, hint in _HINTS if re.search(pattern, reason)), "see the message")
    return InfrastructureError(f"the sandbox cannot be put up: {reason}\n{OWNER}: {advice}")


def _counts_per_namespace() -> bool:
    """Whether the kernel counts processes per user namespace, so that a uid shared with others can be limited."""
    found = re.match(r"(\d+)\.(\d+)", platform.release())
    return found is not None and (int(found[1]), int(found[2])) >= (5, 14)
