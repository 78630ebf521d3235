"""What NVIDIA's management library says about a device: facts for the report, never a gate."""

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pynvml

from bot.errors import InfrastructureError
from bot.evaluation import GpuState

_THROTTLED = {
    "power": pynvml.nvmlClocksThrottleReasonSwPowerCap,
    "hardware slowdown": pynvml.nvmlClocksThrottleReasonHwSlowdown,
    "temperature": pynvml.nvmlClocksThrottleReasonSwThermalSlowdown,
}


@contextmanager
def _asked(what: str) -> Iterator[None]:
    try:
        yield
    except pynvml.NVMLError as error:
        raise InfrastructureError(f"NVML does not tell {what}: {error}") from error


@functools.cache
def _handle(uuid: str) -> object:
    with _asked("which device this is"):
        pynvml.nvmlInit()
        return pynvml.nvmlDeviceGetHandleByUUID(uuid)


def minor(uuid: str) -> int:
    """The number in the name of the device's node."""
    with _asked("the device's number"):
        return int(pynvml.nvmlDeviceGetMinorNumber(_handle(uuid)))


def driver() -> str:
    """The driver's version."""
    with _asked("the driver's version"):
        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())


def state(uuid: str) -> GpuState:
    """Clock, temperature, what holds the clock back, and how many processes that are not below this one use the
    device. A sandbox's processes are: their numbers outside it are what the driver tells."""
    handle = _handle(uuid)
    with _asked("the device's state"):
        ours = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
        reasons = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        return GpuState(
            sm_mhz=int(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)),
            memory_mhz=int(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM)),
            celsius=int(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)),
            throttled=[name for name, bit in _THROTTLED.items() if reasons & bit],
            foreign_processes=sum(process.pid not in ours for process in processes),
        )
