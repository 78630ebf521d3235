"""What a device is and what it can do at best, measured: for floors, and for people who read the times."""

import contextlib
from collections.abc import Callable
from typing import Annotated

import torch
from cuda.bindings import driver
from pydantic import Field, ValidationError

from bot.contract.distribution import Frozen
from bot.evaluation import Gpu, GpuState
from bot.verify import cache
from bot.verify.device import cuda, nvml
from bot.verify.device.driver import done

_COPIED = 1 << 30
"""Bytes of the copy that tells the bandwidth: far beyond any cache."""
_SIDE = 8192
"""Of the square matrices whose product tells the matrix rate."""
_TIMES = 10


class Ceilings(Frozen):
    """What a device can do at best, and the SM clock at which it did."""

    bytes_per_second: Annotated[float, Field(gt=0)]
    operations_per_second: Annotated[float, Field(gt=0)]
    sm_mhz: Annotated[int, Field(gt=0)]


def facts() -> Gpu:
    """The device of this process, with ceilings measured on it once: 0.1 s.

    Raises:
        InfrastructureError: there is none, or it cannot be asked.
    """
    properties = torch.cuda.get_device_properties(cuda.device())
    version = int(done(driver.cuDriverGetVersion()))
    best = ceilings(cuda.access().uuid, nvml.driver(), measured)
    return Gpu(
        capability=f"sm_{properties.major}{properties.minor}",
        driver=nvml.driver(),
        cuda=f"{version // 1000}.{version % 1000 // 10}",
        memory_bytes=properties.total_memory,
        cache_bytes=properties.L2_cache_size,
        bytes_per_second=best.bytes_per_second,
        operations_per_second=best.operations_per_second,
        ceilings_sm_mhz=best.sm_mhz,
    )


def ceilings(uuid: str, version: str, measure: Callable[[], Ceilings]) -> Ceilings:
    """Those of a device under a driver, from the cache, where they are kept for good: floors that move from exam to
    exam by as much as a clock does would make a time valid in one and not in the next."""
    kept = cache.folder("ceilings") / f"{uuid}-{version}.json"
    with contextlib.suppress(OSError, ValidationError):
        return Ceilings.model_validate_json(kept.read_bytes())
    found = measure()
    with contextlib.suppress(OSError):
        kept.write_text(found.model_dump_json() + "\n", encoding="utf-8")
    return found


def measured() -> Ceilings:
    """The best of several copies and products. The device must be ours alone."""
    source, target = (torch.empty(_COPIED, dtype=torch.uint8, device=cuda.device()) for _ in range(2))
    left, right = (torch.randn(_SIDE, _SIDE, device=cuda.device(), dtype=torch.bfloat16) for _ in range(2))
    product = torch.empty_like(left)
    return Ceilings(
        bytes_per_second=2 * _COPIED / _seconds(lambda: target.copy_(source)),
        operations_per_second=2 * _SIDE**3 / _seconds(lambda: torch.mm(left, right, out=product)),
        sm_mhz=state().sm_mhz,
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
    return min(taken)
