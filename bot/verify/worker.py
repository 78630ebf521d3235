"""The candidate's process: imports one file and calls it on lent memory, as told. Nothing it says is believed.

Runs inside the sandbox. It prepares everything that costs time (torch) before it says
`ready`, sets its own limits, and only then may candidate code come in. With `--fork` it serves each candidate in a
forked child, for kernels of ours (controls and faithful variants) that need not pay the import again.
"""

import contextlib
import ctypes
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
import weakref
from collections.abc import Callable
from typing import Any

import torch

from bot.verify.doorbell import ASK, AWAKE, ENDED, GO, LAUNCHED, OPEN, PAGE, QUEUED, RING, SLOT, THERE, Doorbell
from bot.verify.protocol import (
    MAX_PACKET,
    TASKS,
    TEXT_LIMIT,
    Bind,
    Bye,
    Done,
    Load,
    Packet,
    Raised,
    Ready,
    Release,
    Replay,
    Replayed,
    pack,
    parse,
)

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
_MAX_FDS = 64
_GRANULE = 2 << 20
"""Device memory is mapped in units of this many bytes, whose first holds the guard band."""
_WAKING_NS = 300_000
_SPINS = 64
"""Looks at the doorbell between two looks at the socket, which cost a system call."""


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


_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *([ctypes.c_int] * 3), ctypes.c_long]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_LASTING = 1 << 45
"""Lasting tensors lie from this address on, far from where the system maps by itself: one after the other, none where
another was, so that what a kernel keeps of weights by their address is never that of others."""


def _mapped_at(address: int, fd: int, size: int) -> Any:
    """`size` bytes of a descriptor as a buffer at this address, if it is free; the mapping goes with the buffer."""
    found = _LIBC.mmap(address, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
    if found == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "memory of the verifier's cannot be mapped")
    held = (ctypes.c_char * size).from_address(found)
    # At the end of the process tensors may outlive this: the system takes it all.
    weakref.finalize(held, _LIBC.munmap, found, size).atexit = False
    return held


class Host:
    """Lent memory and calls on the CPU."""

    def __init__(self) -> None:
        """Nothing is lent yet."""
        self.next = _LASTING

    def map(self, tensor: Any, fd: int) -> torch.Tensor:
        """The tensor that a descriptor lends."""
        memory: Any
        if tensor.lasting:
            memory = _mapped_at(self.next, fd, tensor.size)
            self.next += tensor.size + -tensor.size % mmap.PAGESIZE
        else:
            memory = mmap.mmap(fd, tensor.size)
        os.close(fd)
        dtype, count = _DTYPES[tensor.dtype], math.prod(tensor.shape)
        if count == 0:
            return torch.empty(tensor.shape, dtype=dtype)
        return torch.frombuffer(memory, dtype=dtype, count=count, offset=tensor.offset).view(tensor.shape)

    def unmap(self, held: list[Any]) -> None:
        """Nothing: the mapping goes with its last tensor."""

    def wake(self) -> None:
        """Nothing: a process that is asked is awake."""

    def meet(self, bell: Doorbell) -> None:
        """Nothing: no device looks at its words."""

    def call(self, run: Callable[..., object], arguments: list[Any], behind: Doorbell | None = None) -> int:  # noqa: ARG002
        """Run to the end; returns the ns it took. Nothing can wait here without its process."""
        start = time.perf_counter_ns()
        run(*arguments)
        return time.perf_counter_ns() - start

    def replay(self, run: Callable[..., object], arguments: list[Any], times: int) -> int:  # noqa: ARG002
        """Nothing is captured here."""
        raise ValueError("a CPU has no graphs")


class Gpu:
    """Lent memory and calls on a CUDA device: on a stream that is not the default one, which alone is waited for."""

    def __init__(self) -> None:
        """Initialise the device."""
        from cuda.bindings import driver  # noqa: PLC0415 - not on a CPU

        self.driver = driver
        self.device = torch.device("cuda", torch.cuda.current_device())
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        torch.cuda.set_stream(self.stream)
        self.begin, self.end = (_event() for _ in range(2))
        self._record()
        self.spare = torch.zeros(1, device=self.device)
        self.wake()
        # Without Triton its kernels cannot run anyway; a compiler that is missing is their failure, and is told there.
        with contextlib.suppress(Exception):
            from bot.verify.warm import compile_one  # noqa: PLC0415 - not on a CPU

            compile_one(torch.zeros(32, device=self.device))
        self.mapped: dict[int, tuple[int, bool]] = {}
        self.page = self.met = 0

    def _record(self) -> None:
        self.begin.record(self.stream)
        self.end.record(self.stream)

    def _done(self, answer: tuple[Any, ...]) -> Any:
        status, *values = answer
        if status != self.driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"memory of the verifier's cannot be used: {status!r}")
        return values[0] if values else None

    def map(self, tensor: Any, fd: int) -> torch.Tensor:
        """The tensor that a descriptor lends."""
        driver = self.driver
        kind = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        handle = self._done(driver.cuMemImportFromShareableHandle(fd, kind))
        os.close(fd)
        address = int(self._done(driver.cuMemAddressReserve(tensor.size, 0, 0, 0)))
        self._done(driver.cuMemMap(address, tensor.size, 0, handle, 0))
        access = driver.CUmemAccessDesc()
        access.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        access.location.id = self.device.index
        access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        self._done(driver.cuMemSetAccess(address, tensor.size, [access], 1))
        self._done(driver.cuMemRelease(handle))
        dtype = _DTYPES[tensor.dtype]
        length = math.prod(tensor.shape) * dtype.itemsize
        self.mapped[address + tensor.offset] = tensor.size, tensor.lasting
        if length == 0:
            return torch.empty(tensor.shape, dtype=dtype, device=self.device)
        seen = torch.as_tensor(_Bytes(address + tensor.offset, length), device=self.device)
        return seen.view(dtype).view(tensor.shape)

    def unmap(self, held: list[Any]) -> None:
        """Give lent memory back, but not the addresses of what is lasting. A kernel that still works on it faults, and
        that is its own doing."""
        self.stream.synchronize()
        for tensor in held:
            start = tensor.data_ptr() if isinstance(tensor, torch.Tensor) else 0
            size, lasting = self.mapped.pop(start, (0, False))
            if size:
                page = start - start % _GRANULE
                self._done(self.driver.cuMemUnmap(page, size))
                if not lasting:
                    self._done(self.driver.cuMemAddressFree(page, size))

    def wake(self) -> None:
        """Have the device work for this process, as it will in a call: it changes between processes in some 0.1 ms, and
        a processor that stood still is slow at first."""
        until = time.perf_counter_ns() + _WAKING_NS
        while time.perf_counter_ns() < until:
            self.call(self.spare.zero_, [])

    def meet(self, bell: Doorbell) -> None:
        """Let the device read and write the doorbell's words."""
        driver = self.driver
        if self.met:
            self._done(driver.cuMemHostUnregister(self.met))
        self.met = bell.address
        self._done(driver.cuMemHostRegister(self.met, PAGE, driver.CU_MEMHOSTREGISTER_DEVICEMAP))
        self.page = int(self._done(driver.cuMemHostGetDevicePointer(self.met, 0)))

    def call(self, run: Callable[..., object], arguments: list[Any], behind: Doorbell | None = None) -> int:
        """Run until the stream is through; returns the ns it took by the device's own events.

        `behind`: queue it behind this doorbell's gates and say so. Between them the device changes to this process,
        which takes it 0.15 ms.
        """
        number = 0 if behind is None else behind.words[RING]
        if behind is not None:
            self._gate(OPEN, number)
            self.spare.zero_()
            self._say(THERE, number)
            self._gate(GO, number)
        self.begin.record(self.stream)
        run(*arguments)
        self.end.record(self.stream)
        if behind is not None:
            self._say(ENDED, number)
            behind.words[LAUNCHED] = number
        self.stream.synchronize()
        return int(self.begin.elapsed_time(self.end) * 1e6)

    def replay(self, run: Callable[..., object], arguments: list[Any], times: int) -> int:
        """One call captured as a graph and replayed: the ns of each by the device's own events, without launches."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            run(*arguments)
        graph.replay()
        self.begin.record(self.stream)
        for _ in range(times):
            graph.replay()
        self.end.record(self.stream)
        self.stream.synchronize()
        return int(self.begin.elapsed_time(self.end) * 1e6 / times)

    def _gate(self, word: int, number: int) -> None:
        """Queue: wait until the word holds this number, or a later one."""
        least = self.driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ
        self._done(self.driver.cuStreamWaitValue32(self.stream.cuda_stream, self.page + 8 * word, number, least))

    def _say(self, word: int, number: int) -> None:
        """Queue: write this number into the word."""
        self._done(self.driver.cuStreamWriteValue32(self.stream.cuda_stream, self.page + 8 * word, number, 0))


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


class _Bytes:
    """Device memory as torch takes it in without a copy."""

    def __init__(self, address: int, length: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (length,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


class Server:
    """One candidate's life: load, bind, call, …"""

    def __init__(self, wire: socket.socket, device: Host | Gpu) -> None:
        """Serve tasks that come over `wire`."""
        self.wire = wire
        self.device = device
        self.run: Callable[..., object] = _nothing
        self.slots: dict[int, list[Any]] = {}
        self.bell: Doorbell | None = None
        self.rung = 0

    def serve(self) -> None:
        """Until told to leave, or the verifier is gone."""
        while True:
            self._await_message()
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

    def _await_message(self) -> None:
        """Answer calls until a message is there. A call finds us awake: we are stopped while there is nothing to do."""
        if self.bell is None:
            return
        words = self.bell.words
        while True:
            for _ in range(_SPINS):
                if words[RING] != self.rung:
                    self._call(self.bell)
                elif words[ASK] != words[AWAKE]:
                    self.device.wake()
                    words[AWAKE] = words[ASK]
            try:
                self.wire.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            except BlockingIOError:
                continue
            return

    def _do(self, task: Packet, fds: list[int]) -> Packet:
        match task:
            case Load():
                torch.set_num_threads(task.threads)
                torch.set_grad_enabled(False)
                self.bell, self.rung = Doorbell(fds[1]), 0
                self.device.meet(self.bell)
                self.run = _load(task, fds[0])
                return Done()
            case Bind():
                tensors = {t.name: self.device.map(t, fd) for t, fd in zip(task.tensors, fds, strict=True)}
                self.slots[task.slot] = [tensors[a] if isinstance(a, str) else a for a in task.arguments]
                return Done()
            case Release():
                self.device.unmap(self.slots.pop(task.slot))
                return Done()
            case Replay():
                assert self.bell is not None  # noqa: S101 - who has slots was given a doorbell
                return Replayed(ns=self.device.replay(self.run, self._arguments(self.bell, task.slot), task.times))
            case _:
                raise ValueError(f"unknown task {task!r}")

    def _arguments(self, bell: Doorbell, slot: int) -> list[Any]:
        return [bell.number(x) if isinstance(x, int) else x for x in self.slots[slot]]

    def _call(self, bell: Doorbell) -> None:
        self.rung = bell.words[RING]
        try:
            arguments = self._arguments(bell, bell.words[SLOT])
            taken = self.device.call(self.run, arguments, bell if bell.words[QUEUED] else None)
        except Exception as error:  # noqa: BLE001 - as above
            self.wire.send(pack(Raised(text=_describe(error))))
            bell.answer(self.rung, 0, failed=True)
            return
        bell.answer(self.rung, taken, failed=False)


def _nothing(*_: object) -> None:
    raise ValueError("nothing is loaded")


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


def _describe(error: BaseException) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/tmp/" in f.filename]  # noqa: S108
    place = f" (line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"[:TEXT_LIMIT]


def main() -> None:
    """Arguments: the socket's descriptor, four limits (see `limit_resources`), then `--fork`, `--gpu` or nothing."""
    arguments = sys.argv[1:]
    limit_resources(*(int(text) for text in arguments[1:5]))
    wire = socket.socket(fileno=int(arguments[0]))
    if "--fork" not in arguments:
        device = Gpu() if "--gpu" in arguments else Host()
        wire.send(pack(Ready(torch=torch.__version__)))
        Server(wire, device).serve()
        return
    wire.send(pack(Ready(torch=torch.__version__)))
    gc.freeze()
    while True:
        # No torch operation has run in this process, and it has one thread: a fork after either may hang.
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                Server(wire, Host()).serve()
                os._exit(0)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        if status:
            # The socket is ours still: say so, or the verifier would wait for an answer that cannot come.
            wire.send(pack(Raised(text=f"the process ended with status {os.waitstatus_to_exitcode(status)}")))
