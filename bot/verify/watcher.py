"""The sandboxed program that has NVIDIA's compute-sanitizer watch a candidate: the tool starts a Python of its own,
which calls the candidate on tensors that it allocates itself. Nothing that comes of it is believed: the candidate could
write the report as well as the tool.
"""

import contextlib
import importlib
import math
import mmap
import os
import signal
import socket
import subprocess
import sys
import traceback
from pathlib import Path
from typing import IO, Any

from bot.verify.artefacts import RAISED, REPORT, TASKS, Asked, Place, Watch, Watched
from bot.verify.protocol import MAX_PACKET, TEXT_LIMIT, Raised, Ready, pack, parse

_PLACE = Path("/tmp")  # noqa: S108 - a tmpfs of this sandbox alone
_TASK, _INPUTS, _REPORT, _PRINTED, _THROUGH = (
    _PLACE / name for name in ("task.json", "inputs", "report", "printed", "through")
)
_LEFT = 68
"""Stands for the exit status of a process that ended as if all were well, before all calls came back."""
_OPTIONS = (
    # Compilers that the candidate starts are none of its kernels.
    *("--target-processes", "application-only"),
    # An exit status is no error of a kernel's; it is looked at here.
    *("--check-exit-code", "no"),
    # The process connects when torch has been imported; who waits too long is ended from here.
    *("--launch-timeout", "0"),
    *("--show-backtrace", "no", "--print-limit", "20", "--log-file", str(_REPORT)),
)
_OF_TOOL = {
    # Libraries ask the driver for functions that it lacks, and handle that; what lies behind a tensor is another's
    # unless there is room between them.
    "memcheck": ("--report-api-errors", "no", "--padding", "4096"),
}
# Each tensor is an allocation of its exact size, or a kernel could read far behind one unseen.
_ENVIRONMENT = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}


def main() -> None:
    """Arguments: the socket's descriptor first."""
    wire = socket.socket(fileno=int(sys.argv[1]))
    wire.send(pack(Ready(torch="")))
    while True:
        data, fds, _, _ = socket.recv_fds(wire, MAX_PACKET, 2)
        if not data:
            return
        task = TASKS.validate_python(parse(data))
        assert isinstance(task, Watch)  # noqa: S101 - nothing else is asked of it
        try:
            answer: Watched | Raised = _watch(task, fds)
        except OSError as error:
            answer = Raised(text=f"compute-sanitizer cannot be started: {error}"[:TEXT_LIMIT])
        wire.send(pack(answer))


def _watch(task: Watch, fds: list[int]) -> Watched:
    for fd, size, place in zip(fds, (task.size, task.room), (_PLACE / "candidate.py", _INPUTS), strict=True):
        with mmap.mmap(fd, size, prot=mmap.PROT_READ) as memory:
            place.write_bytes(memory)
        os.close(fd)
    _TASK.write_text(task.model_dump_json(), encoding="utf-8")
    _REPORT.write_bytes(b"")
    code = f"import sys; sys.path[:0] = {[str(_PLACE), *sys.path]!r}; from {__name__} import call_all; call_all()"
    command = [
        *(f"{task.sanitizer}/compute-sanitizer", "--tool", task.tool, *_OF_TOOL.get(task.tool, ()), *_OPTIONS),
        *(sys.executable, "-I", "-S", "-B", "-c", code),
    ]
    with _PRINTED.open("wb") as printed:
        status = _run(command, printed, task.seconds)
    if status == 0 and not _THROUGH.exists():
        status = _LEFT
    return Watched(report=_both_ends(_REPORT, REPORT), printed=_both_ends(_PRINTED, TEXT_LIMIT), status=status)


def _run(command: list[str], printed: IO[bytes], seconds: int) -> int | None:
    """Its exit status, or None after `seconds`, when all that it started is ended with it."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=printed,
        stderr=printed,
        env=os.environ | _ENVIRONMENT,
        start_new_session=True,
    )
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _both_ends(file: Path, limit: int) -> str:
    """The first and the last part of a file in printable ASCII and line ends, no longer than `limit` together."""
    half = limit // 2
    with file.open("rb") as opened:
        kept = opened.read(half)
        size = opened.seek(0, os.SEEK_END)
        opened.seek(max(half, size - half))
        kept += opened.read(half)
    return "".join(c if c == "\n" or " " <= c <= "~" else "?" for c in kept.decode("ascii", "replace"))


def call_all() -> None:
    """Call the candidate once for each case of the task; the process that the tool watches."""
    import torch  # noqa: PLC0415 - the other process needs none

    task = TASKS.validate_json(_TASK.read_bytes())
    assert isinstance(task, Watch)  # noqa: S101 - as above
    torch.set_grad_enabled(False)
    name = "its import"
    try:
        run = importlib.import_module("candidate").run
        with _INPUTS.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
            for case in task.cases:
                name = case.name
                run(*_arguments(case, memory, task.device))
                if task.device == "cuda":
                    torch.cuda.synchronize()
        _THROUGH.touch()
    except Exception as error:  # noqa: BLE001 - the candidate may raise anything
        traceback.print_exc()
        sys.stderr.write(f"in {name}: {type(error).__name__}: {error}"[:TEXT_LIMIT] + "\n")
        # Not before the tool has written its summary, as it does at the end of the process.
        sys.exit(RAISED)


def _arguments(case: Asked, memory: mmap.mmap, device: str) -> list[Any]:
    import torch  # noqa: PLC0415 - as above

    made: list[Any] = []
    for place in case.arguments:
        if not isinstance(place, Place):
            made.append(place)
            continue
        dtype, count = getattr(torch, place.dtype), math.prod(place.shape)
        tensor = torch.empty(place.shape, dtype=dtype, device=device)
        if place.offset is not None and count:
            tensor.copy_(torch.frombuffer(memory, dtype=dtype, count=count, offset=place.offset).view(place.shape))
        made.append(tensor)
    return made
