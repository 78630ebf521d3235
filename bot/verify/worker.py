"""The candidate's process: imports one file and calls it on lent memory, as told. Nothing it says is believed.

Runs inside the sandbox. It prepares everything that costs time (torch) before it says
`ready`, sets its own limits, and only then may candidate code come in. With `--fork` it serves each candidate in a
forked child, for kernels of ours (controls and faithful variants) that need not pay the import again.
"""

import contextlib
import gc
import importlib.util
import math
import mmap
import os
import resource
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch

from bot.verify.protocol import (
    MAX_PACKET,
    TASKS,
    TEXT_LIMIT,
    Bind,
    Bye,
    Call,
    Done,
    Load,
    Packet,
    Raised,
    Ready,
    Release,
    pack,
    parse,
)

_DTYPES = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
    "int64": torch.int64,
    "int32": torch.int32,
}
_MAX_FDS = 64


def limit_resources(address_space: int, processes: int, files: int, file_size: int) -> None:
    """Set hard limits; 0 leaves one as it is. A process without privilege cannot raise them again."""
    wanted = (
        (resource.RLIMIT_AS, address_space),
        (resource.RLIMIT_NPROC, processes),
        (resource.RLIMIT_NOFILE, files),
        (resource.RLIMIT_FSIZE, file_size),
    )
    for kind, value in wanted:
        if value:
            resource.setrlimit(kind, (value, value))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Server:
    """One candidate's life: load, bind, call, …"""

    def __init__(self, wire: socket.socket) -> None:
        """Serve tasks that come over `wire`."""
        self.wire = wire
        self.run: Callable[..., object] | None = None
        self.slots: dict[int, dict[str, torch.Tensor]] = {}

    def serve(self) -> None:
        """Until told to leave, or the verifier is gone."""
        while True:
            data, fds, _, _ = socket.recv_fds(self.wire, MAX_PACKET, _MAX_FDS)
            if not data:
                os._exit(0)
            task = TASKS.validate_python(parse(data))
            if isinstance(task, Bye):
                return
            try:
                answer = self._do(task, fds)
            except Exception as error:  # noqa: BLE001 - the candidate may raise anything; the verifier decides
                answer = Raised(text=_describe(error))
            self.wire.send(pack(answer))

    def _do(self, task: Packet, fds: list[int]) -> Packet:
        match task:
            case Load():
                torch.set_num_threads(task.threads)
                self.run = _load(task, fds[0])
                return Done()
            case Bind():
                self.slots[task.slot] = {t.name: _map(t, fd) for t, fd in zip(task.tensors, fds, strict=True)}
                return Done()
            case Release():
                del self.slots[task.slot]
                return Done()
            case Call():
                return self._call(task)
            case _:
                raise ValueError(f"unknown task {task!r}")

    def _call(self, task: Call) -> Packet:
        tensors = self.slots[task.slot]
        arguments: list[Any] = [tensors[a] if isinstance(a, str) else a for a in task.arguments]
        run = self.run
        if run is None:
            raise ValueError("nothing is loaded")
        start = time.perf_counter_ns()
        with torch.no_grad():
            run(*arguments)
        return Done(call=task.call, claimed_ns=time.perf_counter_ns() - start)


def _load(task: Load, fd: int) -> Callable[..., object]:
    """Import the candidate from lent memory.

    CuTe-DSL and Triton read their kernels' source from disk, so the bytes become a file in the sandbox's own /tmp.
    """
    with mmap.mmap(fd, task.size, prot=mmap.PROT_READ) as source:
        data = source[:]
    os.close(fd)
    path = "/tmp/candidate.py"  # noqa: S108 - a tmpfs of this sandbox alone
    with open(path, "wb") as file:  # noqa: PTH123 - no pathlib import for one file
        file.write(data)
    spec = importlib.util.spec_from_file_location("candidate", path)
    if spec is None or spec.loader is None:
        raise ValueError("the file cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules["candidate"] = module
    spec.loader.exec_module(module)
    run: Callable[..., object] = module.run
    if not callable(run):
        raise TypeError("`run` is not callable")
    return run


def _map(tensor: Any, fd: int) -> torch.Tensor:
    memory = mmap.mmap(fd, tensor.size)
    os.close(fd)
    dtype, count = _DTYPES[tensor.dtype], math.prod(tensor.shape)
    if count == 0:
        return torch.empty(tensor.shape, dtype=dtype)
    return torch.frombuffer(memory, dtype=dtype, count=count, offset=tensor.offset).view(tensor.shape)


def _describe(error: BaseException) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/tmp/" in f.filename]  # noqa: S108
    place = f" (line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"[:TEXT_LIMIT]


def main() -> None:
    """Arguments: the socket's descriptor, four limits (see `limit_resources`), then `--fork` or nothing."""
    arguments = sys.argv[1:]
    limit_resources(*(int(text) for text in arguments[1:5]))
    wire = socket.socket(fileno=int(arguments[0]))
    if "--fork" not in arguments:
        wire.send(pack(Ready(torch=torch.__version__)))
        Server(wire).serve()
        return
    wire.send(pack(Ready(torch=torch.__version__)))
    gc.freeze()
    while True:
        # No torch operation has run in this process, and it has one thread: a fork after either may hang.
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                Server(wire).serve()
                os._exit(0)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        if status:
            # The socket is ours still: say so, or the verifier would wait for an answer that cannot come.
            wire.send(pack(Raised(text=f"the process ended with status {os.waitstatus_to_exitcode(status)}")))
