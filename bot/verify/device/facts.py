"""What a device is and what it can do at best, measured: for floors, and for people who read the times."""

import statistics
from collections.abc import Callable

import torch
from cuda.bindings import driver

from bot.evaluation import Gpu, GpuState
from bot.verify.device import cuda, nvml
from bot.verify.device.driver import done

_COPIED = 1 << 30
"""Bytes of the copy that tells the bandwidth: far beyond any cache."""
_SIDE = 8192
"""Of the square matrices whose product tells the matrix rate."""
_TIMES = 5


def facts() -> Gpu:
    """The device of this process, with ceilings measured now: 0.1 s.

    Raises:
        InfrastructureError: there is none, or it cannot be asked.
    """
    properties = torch.cuda.get_device_properties(cuda.device())
    version = int(done(driver.cuDriverGetVersion()))
    source, target = (torch.empty(_COPIED, dtype=torch.uint8, device=cuda.device()) for _ in range(2))
    left, right = (torch.randn(_SIDE, _SIDE, device=cuda.device(), dtype=torch.bfloat16) for _ in range(2))
    product = torch.empty_like(left)
    return Gpu(
        capability=f"sm_{properties.major}{properties.minor}",
        driver=nvml.driver(),
        cuda=f"{version // 1000}.{version % 1000 // 10}",
        memory_bytes=properties.total_memory,
        cache_bytes=properties.L2_cache_size,
        bytes_per_second=2 * _COPIED / _seconds(lambda: target.copy_(source)),
        operations_per_second=2 * _SIDE**3 / _seconds(lambda: torch.mm(left, right, out=product)),
    )


def state() -> GpuState:
    """The device now."""
    return nvml.state(cuda.access().uuid)


def _seconds(work: Callable[[], object]) -> float:
    taken = []
    for _ in range(_TIMES):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        work()
        end.record()
        end.synchronize()
        taken.append(float(begin.elapsed_time(end)) / 1e3)
    return statistics.median(taken)
