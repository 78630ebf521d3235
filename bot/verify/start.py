"""Which worker and which drawer a device wants, and what it is. What needs CUDA is imported here, when asked for."""

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bot import digest
from bot.contract.schema import Contract, Device
from bot.errors import OWNER, InfrastructureError
from bot.evaluation import Gpu, GpuState
from bot.verify import cache, cpus
from bot.verify.alone import alone_with
from bot.verify.calls import Worker
from bot.verify.cases import HOST, Drawer
from bot.verify.mounts import GpuAccess
from bot.verify.sandbox import Kind


def start_worker(
    contract: Contract,
    device: Device,
    kind: Kind,
    *,
    fork: bool = False,
    ours: str | None = None,
    packages: frozenset[str] = frozenset(),
) -> Worker:
    """Start a worker; it gets ready by itself. One that forks is for kernels of ours, which always run on the CPU: CUDA
    does not survive a fork. `ours`: the source of a baseline, whose compiled kernels a GPU's worker may keep;
    `packages`: distributions that it needs beside what a candidate may use.

    Raises:
        InfrastructureError: it cannot be started.
    """
    own, theirs = cpus.split()
    if device == "cpu" or fork:
        return Worker(contract, kind, theirs, start_cpus=own, fork=fork, packages=packages)
    with _extra():
        from bot.verify.gpu_calls import GpuWorker  # noqa: PLC0415 - needs CUDA

    kept = None if ours is None else str(_cache_of(ours))
    return GpuWorker(contract, kind, theirs, start_cpus=own, cache=kept, packages=packages)


@contextmanager
def _extra() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise InfrastructureError(
            f"this verifier cannot use a GPU: {error}. Whoever installed it must act: the extra [gpu] is missing"
        ) from error


def _cache_of(source: str) -> Path:
    """Where the compiled kernels of a baseline are kept. Under root every worker has a uid of its own, so what one has
    left there is opened to the next; some compilers keep files for their owner alone."""
    found = cache.folder(f"baselines/{digest.of_bytes(source.encode())}")
    for place in (found, *found.rglob("*")):
        # A link could lead to what is not the cache's. Another exam's compiler moves its files about.
        with contextlib.suppress(OSError):
            if place.is_symlink():
                continue
            place.chmod(0o777 if place.is_dir() else 0o666)
    return found


def drawer_for(device: Device) -> Drawer:
    """Where an exam draws its cells.

    Raises:
        InfrastructureError: there is no such device.
    """
    if device == "cpu":
        return HOST
    with _extra():
        from bot.verify.device import cuda  # noqa: PLC0415 - as above

    cuda.device()
    return cuda.CudaDrawer()


@contextmanager
def turn_on(device: Device, say: Callable[[str], None]) -> Iterator[None]:
    """Alone with a GPU, as far as other exams go: whatever makes a context on it or works on it is inside. On a CPU
    nothing is held: exams there share its cores by sets.

    Raises:
        InfrastructureError: there is no such device, its lock cannot be had, or the verifier found no memory on it.
    """
    if device == "cpu":
        yield
        return
    with _extra():
        from bot.verify.device.driver import first  # noqa: PLC0415 - as above

    with alone_with(first(), say):
        try:
            yield
        except Exception as error:
            if type(error).__name__ == "OutOfMemoryError":  # Of torch, which whoever only waits has not imported.
                raise InfrastructureError(
                    f"the device has no memory left for the verifier: {str(error).splitlines()[0]}\n"
                    f"{OWNER}: see who holds it with nvidia-smi, and run the exam again"
                ) from error
            raise


def gpu_access() -> GpuAccess:
    """What a sandbox must see of the GPU.

    Raises:
        InfrastructureError: there is none that can be used.
    """
    with _extra():
        from bot.verify.device import cuda  # noqa: PLC0415 - as above

    return cuda.access()


def gpu_facts(device: Device) -> Gpu | None:
    """What a GPU is and can do; None on a CPU."""
    if device == "cpu":
        return None
    with _extra():
        from bot.verify.device.facts import facts  # noqa: PLC0415 - as above

    return facts()


def gpu_state(device: Device) -> GpuState | None:
    """A GPU's clock, temperature and company now; None on a CPU."""
    if device == "cpu":
        return None
    with _extra():
        from bot.verify.device.facts import state  # noqa: PLC0415 - as above

    return state()


REST_SECONDS = 5.0
_REST_STEP = 0.25


def rested(
    device: Device,
    read: Callable[[Device], GpuState | None] = gpu_state,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Wait for a GPU that holds its clock back, a few seconds at most: back-to-back work has taken a B200 from 1965 to
    1580 MHz (flashinfer issue 2899). What was waited for, or nothing."""
    waited, reasons = 0.0, list[str]()
    while (state := read(device)) is not None and state.throttled and waited < REST_SECONDS:
        reasons = state.throttled
        sleep(_REST_STEP)
        waited += _REST_STEP
    return f"waited {waited:.2f} s for the device, held back by {', '.join(reasons)}" if waited else ""
