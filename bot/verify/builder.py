"""The sandboxed program that compiles a candidate without a GPU: one forked child for each build. Nothing it says is
believed; foreign code runs in it from the first build on.
"""

import contextlib
import importlib.util
import math
import mmap
import os
import shutil
import socket
import sys
import traceback
from typing import Any

import torch

from bot.verify import disguise
from bot.verify.artefacts import BINARIES, TASKS, Argument, Binary, Compile, Compiled
from bot.verify.protocol import MAX_PACKET, TEXT_LIMIT, Raised, Ready, pack, parse

_COMPILERS = ("triton", "cutlass")
_DTYPES = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "int64": torch.int64,
    "int32": torch.int32,
    "int8": torch.int8,
    "uint8": torch.uint8,
}


class _Kept:
    """Binaries in lent memory, one after the other."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self.binaries: list[Binary] = []
        self.left_out = 0

    def __call__(self, binary: bytes, shared: dict[str, int]) -> None:
        used = sum(kept.size for kept in self.binaries)
        if len(self.binaries) == BINARIES or used + len(binary) > len(self._memory):
            self.left_out += 1
            return
        self._memory[used : used + len(binary)] = binary
        self.binaries.append(Binary(size=len(binary), dynamic_shared={n[:200]: size for n, size in shared.items()}))


def main() -> None:
    """Arguments: the socket's descriptor first."""
    os.environ |= disguise.ENVIRONMENT
    wire = socket.socket(fileno=int(sys.argv[1]))
    wire.send(pack(Ready(torch=torch.__version__)))
    while True:
        data, fds, _, _ = socket.recv_fds(wire, MAX_PACKET, 2)
        if not data:
            return
        task = TASKS.validate_python(parse(data))
        assert isinstance(task, Compile)  # noqa: S101 - nothing else is asked of a builder
        with mmap.mmap(fds[0], task.size, prot=mmap.PROT_READ) as source:
            text = source[:]
        # Once, for all builds: both take a second or more.
        for name in _COMPILERS:
            if name.encode() in text:
                with contextlib.suppress(ImportError):
                    importlib.import_module(name)
        # A build that found what an earlier one compiled would be no second build.
        shutil.rmtree(disguise.CACHE, ignore_errors=True)
        wire.send(_in_child(wire, task, text, fds[1]))
        for fd in fds:
            os.close(fd)


def _in_child(wire: socket.socket, task: Compile, source: bytes, room: int) -> bytes:
    """Build in a child that has no wire; what it says, as one packet."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            wire.close()
            with mmap.mmap(room, task.room) as memory:
                said = _build(task, source, memory)
            os.write(write, pack(said))
            os._exit(0)
        except BaseException:  # noqa: BLE001 - a forked child must not return into its parent's code
            traceback.print_exc()
        os._exit(1)
    os.close(write)
    with open(read, "rb") as pipe:  # noqa: PTH123 - a descriptor
        answer = pipe.read(MAX_PACKET)
    _, status = os.waitpid(child, 0)
    if status:
        code = os.waitstatus_to_exitcode(status)
        how = f"was killed by signal {-code}" if code < 0 else f"ended, exit status {code}"
        return pack(Raised(text=f"the process {how} while it was compiling"))
    return answer


def _build(task: Compile, source: bytes, memory: mmap.mmap) -> Compiled:
    """Import the candidate and call it once, in disguise."""
    kept = _Kept(memory)
    disguise.put_on(task.architecture, kept)
    arguments = [_argument(given) for given in task.arguments]
    stopped, broken = "", False
    try:
        run = _load(source)
        with torch.no_grad():
            run(*arguments)
    except Exception as error:  # noqa: BLE001 - the candidate may raise anything
        stopped, broken = _describe(error), _compilers_fault(error)
    return Compiled(binaries=kept.binaries, stopped=stopped, broken=broken, left_out=kept.left_out)


def _argument(given: Argument | float | None) -> Any:
    if not isinstance(given, Argument):
        return given
    dtype = _DTYPES[given.dtype]
    if given.numbers is not None:
        made = torch.tensor(given.numbers, dtype=dtype).reshape(given.shape)
    else:
        # Zeros that take no memory until somebody writes.
        size = max(math.prod(given.shape) * dtype.itemsize, 1)
        made = torch.frombuffer(mmap.mmap(-1, size), dtype=torch.uint8)[: math.prod(given.shape) * dtype.itemsize]
        made = made.view(dtype).reshape(given.shape)
    return made.as_subclass(disguise.DeviceTensor)


def _load(source: bytes) -> Any:
    """Triton and CuTe-DSL read their kernels' source from disk; each build finds it at the same place."""
    path = "/tmp/candidate.py"  # noqa: S108 - as above
    with open(path, "wb") as file:  # noqa: PTH123
        file.write(source)
    spec = importlib.util.spec_from_file_location("candidate", path)
    assert spec is not None  # noqa: S101 - it ends in .py
    assert spec.loader is not None  # noqa: S101
    module = importlib.util.module_from_spec(spec)
    sys.modules["candidate"] = module
    spec.loader.exec_module(module)
    return module.run


def _compilers_fault(error: BaseException) -> bool:
    """Whether a compiler would not have it, or a launch would be refused for want of shared memory."""
    return type(error).__module__.partition(".")[0] in _COMPILERS


def _describe(error: BaseException) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == "/tmp/candidate.py"]  # noqa: S108
    place = f" (line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}"[: TEXT_LIMIT - 40] + place
