"""The least time a workload's bytes and operations allow on a device, and how near a time comes to it. Pure; knows no
device's numbers itself."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from bot.contract.distribution import Frozen
from bot.contract.schema import BYTES, Contract, Output, TensorInput
from bot.evaluation import Cell, Gpu


class Ceilings(Frozen):
    """What a device can move and compute at best. `cache_bytes`: of what is written so much may stay in its cache."""

    bytes_per_second: Annotated[float, Field(gt=0)]
    operations_per_second: Annotated[float, Field(gt=0)]
    cache_bytes: Annotated[int, Field(ge=0)] = 0


class LeastWork(Frozen):
    """What no kernel can avoid: each input read once (or what the contract says of it), each output written once, and
    the contract's operations.
    `written`: the part of the bytes that is written."""

    bytes: int
    written: int = 0
    operations: int


@dataclass(frozen=True, slots=True)
class LeastTime:
    """In ns, for the bytes and for the operations."""

    moving_ns: int
    computing_ns: int

    @property
    def ns(self) -> int:
        """The floor: the longer of both, as they may overlap."""
        return max(self.moving_ns, self.computing_ns)


def least_work(
    contract: Contract, axes: Mapping[str, int | list[int]], absent: Collection[str] = frozenset()
) -> LeastWork:
    """Least bytes and operations of a workload; `absent` names optional inputs that its regime leaves out."""
    tensors = {n: t for n, t in contract.inputs.items() if isinstance(t, TensorInput) and n not in absent}
    part = contract.work.reads if contract.work else {}

    def elements(name: str, tensor: TensorInput | Output) -> int:
        whole = math.prod(contract.shape(tensor, axes))
        return min(whole, _product(contract, part[name], axes)) if name in part else whole

    def moved(all_of: Mapping[str, TensorInput | Output]) -> int:
        return sum(BYTES[tensor.dtype] * elements(name, tensor) for name, tensor in all_of.items())

    written = moved(contract.outputs)
    operations = _product(contract, contract.work.operations, axes) if contract.work else 0
    return LeastWork(bytes=moved(tensors) + written, written=written, operations=operations)


def least_time(work: LeastWork, ceilings: Ceilings) -> LeastTime:
    """The least times of work on a device."""
    moved = work.bytes - min(work.written, ceilings.cache_bytes)
    return LeastTime(
        moving_ns=math.ceil(moved / ceilings.bytes_per_second * 1e9),
        computing_ns=math.ceil(work.operations / ceilings.operations_per_second * 1e9),
    )


def roofline_ns(cell: Cell, gpu: Gpu | None) -> float | None:
    """A cell's floor at the SM clock it was timed at, as sampled after its rounds (of older evaluations before and
    after all): operations take as much longer as the clock is below that of the ceilings, bytes do not. Where one of
    the clocks is not on record, the floor as it is; None without a floor."""
    clock = None if gpu is None else _clock(cell, gpu)
    if clock is None or cell.moving_ns is None or cell.computing_ns is None:
        return cell.floor_ns
    return max(cell.moving_ns, cell.computing_ns / clock)


def _clock(cell: Cell, gpu: Gpu) -> float | None:
    """The sampled SM clock over that at which the ceilings were measured."""
    around = [state.sm_mhz for state in (gpu.before, gpu.after) if state is not None]
    sampled = [clock for clock in cell.clocks_mhz or around if clock]
    if not sampled or gpu.ceilings_sm_mhz is None:
        return None
    return sum(sampled) / len(sampled) / gpu.ceilings_sm_mhz


def percent_of_floor(floor: float | None, time_ns: float) -> float | None:
    """How much of the device a time makes use of: 100 is as fast as the floor; None without a floor.

    Raises:
        ValueError: the time is not positive.
    """
    if not time_ns > 0:
        raise ValueError(f"{time_ns} ns is not a time")
    return None if floor is None else 100 * floor / time_ns


def _product(contract: Contract, factors: Sequence[int | str], axes: Mapping[str, int | list[int]]) -> int:
    known = contract.sizes(axes)
    total = 1
    for factor in factors:
        value = factor if isinstance(factor, int) else known[factor]
        if isinstance(value, list):
            raise TypeError(f"{factor} is ragged; use the axis that holds its total")
        total *= value
    return total
