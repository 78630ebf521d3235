"""The least time a workload's bytes and operations allow on a device. Pure; knows no device's numbers itself."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated

from pydantic import Field

from bot.contract.distribution import Frozen
from bot.contract.schema import BYTES, Contract, Output, TensorInput


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


def floor_ns(work: LeastWork, ceilings: Ceilings | None) -> int | None:
    """The least time in ns; None where the device's ceilings are unknown, as on a CPU."""
    if ceilings is None:
        return None
    moved = work.bytes - min(work.written, ceilings.cache_bytes)
    seconds = max(moved / ceilings.bytes_per_second, work.operations / ceilings.operations_per_second)
    return math.ceil(seconds * 1e9)


def percent_of_floor(floor: int | None, time_ns: float) -> float | None:
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
