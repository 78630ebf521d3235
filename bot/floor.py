"""The least time a workload's bytes and operations allow on a device. Pure; knows no device's numbers itself."""

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated

from pydantic import Field

from bot.contract.distribution import Frozen
from bot.contract.schema import Contract, DType, Output, TensorInput

_BYTES: Mapping[DType, int] = {"bfloat16": 2, "float16": 2, "float32": 4, "int32": 4, "int64": 8}


class Ceilings(Frozen):
    """What a device can move and compute at best. `cache_bytes`: of what is written so much may stay in its cache."""

    bytes_per_second: Annotated[float, Field(gt=0)]
    operations_per_second: Annotated[float, Field(gt=0)]
    cache_bytes: Annotated[int, Field(ge=0)] = 0


class LeastWork(Frozen):
    """What no kernel can avoid: each input read once, each output written once, and the contract's operations.
    `written`: the part of the bytes that is written."""

    bytes: int
    written: int = 0
    operations: int


def least_work(
    contract: Contract, axes: Mapping[str, int | list[int]], absent: Collection[str] = frozenset()
) -> LeastWork:
    """Least bytes and operations of a workload; `absent` names optional inputs that its regime leaves out."""
    read = [t for name, t in contract.inputs.items() if isinstance(t, TensorInput) and name not in absent]

    def moved(tensors: Iterable[TensorInput | Output]) -> int:
        return sum(_BYTES[tensor.dtype] * math.prod(contract.shape(tensor, axes)) for tensor in tensors)

    written = moved(contract.outputs.values())
    return LeastWork(bytes=moved(read) + written, written=written, operations=_operations(contract, axes))


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


def _operations(contract: Contract, axes: Mapping[str, int | list[int]]) -> int:
    if contract.work is None:
        return 0
    known = contract.sizes(axes)
    total = 1
    for factor in contract.work.operations:
        value = factor if isinstance(factor, int) else known[factor]
        if isinstance(value, list):
            raise TypeError(f"{factor} is ragged; use the axis that holds its total")
        total *= value
    return total
