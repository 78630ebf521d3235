"""A sandboxed program of ours that works on foreign code and answers one message with one message (artefacts.py): its
sandbox, what it is asked, and how it can fail. For what is no exam: looks at machine code, and a sanitizer's reports.
"""

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Iterator, Sequence

from pydantic import ValidationError

from bot.errors import InfrastructureError
from bot.verify.artefacts import CLAIMS, Claim, Task
from bot.verify.mounts import GpuAccess, Limits
from bot.verify.protocol import MAX_PACKET, Raised, Ready, pack, parse
from bot.verify.sandbox import Kind, Sandbox

READY_SECONDS = 60.0
_POLL_SECONDS = 0.25
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_LIMITS = Limits()


class FailedError(Exception):
    """A sandboxed process did not do as asked; the text says why, and is no fault of ours."""


class Room:
    """A sandboxed program that answers one message with one message. Use as a context manager."""

    def __init__(
        self,
        kind: Kind,
        modules: tuple[str, ...],
        cpu: set[int],
        packages: frozenset[str] = frozenset(),
        *,
        limits: Limits = _LIMITS,
        gpu: GpuAccess | None = None,
    ) -> None:
        """Start it; the first task waits for it. `packages`: distributions it sees beside the usual."""
        self._cpu = cpu
        self._sandbox = Sandbox(kind, cpus=cpu, limits=limits, gpu=gpu, modules=modules, packages=packages)
        self._up = False

    def _await(self) -> None:
        try:
            claim = self._answer(READY_SECONDS)
        except FailedError as error:
            raise InfrastructureError(f"a sandbox did not come up: {error}\n{self._sandbox.output.text()}") from None
        if not isinstance(claim, Ready):
            raise InfrastructureError("a sandbox did not come up: unexpected answer")
        self._sandbox.pin(self._cpu)

    def ask(self, task: Task, fds: Sequence[int], seconds: float) -> Claim:
        """Send a task, return what it says.

        Raises:
            FailedError: it ended, was late, or said nothing that belongs here.
            InfrastructureError: it did not come up.
        """
        if not self._up:
            self._await()
            self._up = True
        with contextlib.suppress(OSError):
            socket.send_fds(self._sandbox.wire, [pack(task)], list(fds))
        claim = self._answer(seconds)
        if isinstance(claim, Raised):
            raise FailedError(claim.text)
        return claim

    def _answer(self, seconds: float) -> Claim:
        wire, deadline = self._sandbox.wire, time.monotonic() + seconds
        wire.settimeout(_POLL_SECONDS)
        while True:
            try:
                data, _, flags, _ = wire.recvmsg(MAX_PACKET)
            except TimeoutError:
                self._look(deadline, seconds)
                continue
            except OSError:
                data, flags = b"", 0
            if not data:
                raise FailedError(self._ending())
            if flags & socket.MSG_TRUNC:
                raise FailedError("sent a message larger than any answer")
            try:
                return CLAIMS.validate_python(parse(data))
            except (ValueError, ValidationError):
                raise FailedError("sent a message that is none of the protocol's") from None

    def _look(self, deadline: float, seconds: float) -> None:
        limit = self._sandbox.limits.resident
        if self._sandbox.resident_bytes() > limit:
            raise FailedError(f"used more than {limit >> 30} GiB of memory")
        if time.monotonic() >= deadline:
            raise FailedError(f"did not answer within {seconds:.0f} s")

    def _ending(self) -> str:
        for _ in range(50):
            ended = self._sandbox.ended()
            if ended is not None:
                return ended
            time.sleep(0.01)
        return "the process closed its connection"

    def __enter__(self) -> "Room":
        return self

    def __exit__(self, *_: object) -> None:
        self._sandbox.close()


@contextlib.contextmanager
def lent(data: bytes, size: int = 0) -> Iterator[int]:
    """A sealed memfd that holds `data`, or `size` empty bytes."""
    fd = os.memfd_create("proctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, max(len(data), size))
        os.pwrite(fd, data, 0)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        yield fd
    finally:
        os.close(fd)
