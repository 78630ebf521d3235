"""The verifier's side of a CUDA device: memory that it lends, and the curtain behind which a call's inputs wait.

Each lent tensor is an allocation of its own (CUDA VMM), exported as a descriptor: a handle of CUDA's older kind would
export the whole block of an allocator (design.md). What the candidate leaves running on the device cannot be stopped,
so a secret share of each input's lines is other data until the clock runs, and secret lines of the outputs are read
before it stops.
"""

import functools
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from cuda.bindings import driver

from bot.contract.distribution import Distribution
from bot.contract.schema import DType
from bot.errors import OWNER, InfrastructureError
from bot.verify.buffers import PAGE, Lent
from bot.verify.cases import HOST, HOST_ELEMENTS, Held
from bot.verify.device import draws as device_draws
from bot.verify.device import lines, nvml
from bot.verify.device.driver import done, unusable
from bot.verify.draws import STORAGE, Array
from bot.verify.mounts import GpuAccess
from bot.verify.oracle import TORCH, tensor_of
from bot.verify.philox import Stream

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@functools.cache
def device() -> torch.device:
    """The device of this process: the first that is visible.

    Raises:
        InfrastructureError: there is none, or it cannot be used.
    """
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
        torch.zeros(1, device="cuda")
    except (RuntimeError, AssertionError) as error:
        raise unusable(error) from error
    found = torch.device("cuda", torch.cuda.current_device())
    if not done(
        driver.cuDeviceGetAttribute(
            driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, found.index
        )
    ):
        raise InfrastructureError(f"this device cannot export memory as a descriptor: nothing can be lent. {OWNER}")
    return found


@functools.cache
def access() -> GpuAccess:
    """What a worker's sandbox must see of this device.

    Raises:
        InfrastructureError: it cannot be told.
    """
    number = device().index
    uuid = f"GPU-{torch.cuda.get_device_properties(number).uuid}"
    nodes = [f"/dev/nvidia{nvml.minor(uuid)}", "/dev/nvidiactl", "/dev/nvidia-uvm"]
    missing = [node for node in nodes if not Path(node).exists()]
    loaded = re.findall(r"\S*/libcuda\.so\S*", Path("/proc/self/maps").read_text(encoding="utf-8"))
    if missing or not loaded:
        raise InfrastructureError(f"a sandbox could not use this device: {', '.join(missing) or 'libcuda'} not found")
    return GpuAccess(uuid, tuple(nodes), str(Path(os.path.realpath(loaded[0])).parent))


class _Bytes:
    """Device memory as torch takes it in without a copy."""

    def __init__(self, address: int, length: int) -> None:
        shape = (length,)
        self.__cuda_array_interface__ = {"shape": shape, "typestr": "|u1", "data": (address, False), "version": 3}


@functools.cache
def _granule() -> int:
    return int(done(driver.cuMemGetAllocationGranularity(_properties(), driver.CUmemAllocationGranularity_flags(0))))


def _properties() -> Any:
    properties = driver.CUmemAllocationProp()
    properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = device().index
    properties.requestedHandleTypes = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    return properties


class CudaLent:
    """Lent memory on a CUDA device."""

    def __init__(self, name: str, shape: tuple[int, ...], dtype: DType) -> None:
        """Allocate, map and export."""
        self.name, self.shape, self.dtype = name, shape, dtype
        self.offset = PAGE
        self.type = TORCH[dtype]
        self.length = int(np.prod(shape, dtype=np.int64)) * self.type.itemsize
        unit = _granule()
        self.size = -(-(self.length + 2 * PAGE) // unit) * unit
        handle = done(driver.cuMemCreate(self.size, _properties(), 0))
        kind = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        self.fd = int(done(driver.cuMemExportToShareableHandle(handle, kind, 0)))
        self.address = int(done(driver.cuMemAddressReserve(self.size, 0, 0, 0)))
        done(driver.cuMemMap(self.address, self.size, 0, handle, 0))
        allowed = driver.CUmemAccessDesc()
        allowed.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        allowed.location.id = device().index
        allowed.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        done(driver.cuMemSetAccess(self.address, self.size, [allowed], 1))
        done(driver.cuMemRelease(handle))
        self._whole = torch.as_tensor(_Bytes(self.address, self.size), device=device())
        # What the driver gives may be what this process gave back, and is mapped by the worker before it is filled.
        self._whole.zero_()
        torch.cuda.current_stream().synchronize()
        self._band: torch.Tensor | None = None
        self._poison: int | None = None

    @property
    def data(self) -> torch.Tensor:
        """The data's bytes, [length] uint8."""
        return self._whole[self.offset : self.offset + self.length]

    def guard(self, pattern: bytes) -> None:
        """Fill both guard bands with a repeated pattern of 64 bytes."""
        longest = max(self.offset, self.size - self.offset - self.length)
        seed = torch.frombuffer(bytearray(pattern), dtype=torch.uint8).to(device())
        self._band = seed.repeat(-(-longest // len(pattern)))
        for place in self._guards():
            place.copy_(self._band[: len(place)])

    def _guards(self) -> Iterator[torch.Tensor]:
        yield self._whole[: self.offset]
        yield self._whole[self.offset + self.length :]

    def guard_intact(self) -> bool:
        """Whether the guard bands still hold what was put there."""
        band = self._band
        return band is not None and all(torch.equal(place, band[: len(place)]) for place in self._guards())

    def write(self, held: Held) -> None:
        """Put an input's bytes in place."""
        self.data.copy_(self._bytes_of(held))

    def holds(self, held: Held) -> bool:
        """Whether the data still equal these bytes."""
        return torch.equal(self._wide(self.data), self._wide(self._bytes_of(held).to(device())))

    def _bytes_of(self, held: Held) -> torch.Tensor:
        tensor = held if isinstance(held, torch.Tensor) else tensor_of(held, self.dtype)
        return tensor.contiguous().reshape(-1).view(torch.uint8)

    def _wide(self, data: torch.Tensor) -> torch.Tensor:
        """The same bytes in the widest integers that divide them."""
        width = next(width for width in (8, 4, 2, 1) if self.length % width == 0)
        return data.view(_INTEGERS[width])

    def poison(self, value: np.generic) -> None:
        """Fill the data with a value that no honest kernel leaves."""
        width = value.itemsize
        self._poison = int(value.view(f"<i{width}"))
        self.data.view(_INTEGERS[width]).fill_(self._poison)

    def unwritten(self, snapshot: Held) -> tuple[int, ...] | None:
        """Index of the first element that still is the poison."""
        if self._poison is None:
            return None
        left = self._bytes_of(snapshot).view(_INTEGERS[self.type.itemsize]) == self._poison
        if not bool(left.any()):
            return None
        return tuple(int(i) for i in np.unravel_index(int(left.nonzero()[0]), self.shape))

    def snapshot(self) -> Held:
        """A private copy of the data; a small one comes to the host."""
        copied = self.data.clone()
        if self.length // self.type.itemsize >= HOST_ELEMENTS:
            return copied.view(self.type).view(self.shape)
        return copied.cpu().numpy().view(STORAGE[self.dtype]).reshape(self.shape)

    def close(self) -> None:
        """Overwrite and give up the memory; what it held may have been an input of this exam."""
        self._whole.zero_()
        torch.cuda.synchronize()
        del self._whole
        done(driver.cuMemUnmap(self.address, self.size))
        done(driver.cuMemAddressFree(self.address, self.size))
        os.close(self.fd)


class CudaDrawer:
    """Draws large tensors on the device and the others on the host."""

    def draw(
        self, dist: Distribution, shape: tuple[int, ...], dtype: DType, stream: Stream, *, beside: "Held | None" = None
    ) -> Held:
        """One tensor of this distribution: beside one that is there or, of its own, on the device when it is large."""
        small = int(np.prod(shape, dtype=np.int64)) < HOST_ELEMENTS
        if isinstance(beside, np.ndarray) or (beside is None and small):
            return HOST.draw(dist, shape, dtype, stream)
        return device_draws.draw(dist, shape, dtype, stream, device())

    def replace(self, held: Held, start: int, part: Held, heads: npt.NDArray[np.bool_] | None) -> None:
        """Write `part` into `held` from step `start` of the leading axis on, where `heads` of the next one says."""
        if not isinstance(held, torch.Tensor):
            HOST.replace(held, start, part, heads)
            return
        new = part if isinstance(part, torch.Tensor) else _tensor_like(part, held)
        device_draws.replace_window(held, start, new, heads)


def _tensor_like(part: Array, held: torch.Tensor) -> torch.Tensor:
    raw = torch.from_numpy(np.ascontiguousarray(part).view(f"<i{part.itemsize}"))
    return raw.to(held.device).view(held.dtype)


class Curtain:
    """What stands between a worker and a call's inputs until the clock runs, and between it and the verdict on when
    its outputs were there. One for each device."""

    def __init__(self) -> None:
        """Take scratch memory."""
        size = max(256 << 20, 4 * torch.cuda.get_device_properties(device()).L2_cache_size)
        self._dirty, self._clean = (torch.zeros(size // 4, dtype=torch.int32, device=device()) for _ in range(2))
        self._sum = torch.zeros((), dtype=torch.int64, device=device())
        self._pinned: list[torch.Tensor] = []
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.inputs: list[lines.Comb] = []
        self.outputs: list[lines.Comb] = []

    def hide(self, inputs: Mapping[str, Lent], outputs: Mapping[str, Lent], stream: Stream) -> None:
        """Put other lines of the same input in place of a secret few, and choose the outputs' lines to look at."""
        words = iter(stream.child("lines").words(2 * len(inputs) + len(outputs)).tolist())
        self._used = 0
        self.inputs = [comb for lent in inputs.values() if (comb := self._comb(lent, next(words))) is not None]
        self.outputs = [comb for lent in outputs.values() if (comb := self._comb(lent, next(words))) is not None]
        for comb in self.inputs:
            comb.kept.copy_(comb.lines)
            comb.lines.copy_(comb.kept.roll(1 + next(words) % (comb.count - 1), 0))

    def _comb(self, lent: Lent, place: int) -> lines.Comb | None:
        assert isinstance(lent, CudaLent)  # noqa: S101 - a worker on a GPU is lent nothing else
        if self._used == len(self._pinned):
            self._pinned.append(torch.empty(lines.MOST, lines.LINE // 4, dtype=torch.int32, pin_memory=True))
        found = lines.comb(lent.data, place, self._pinned[self._used])
        self._used += found is not None
        return found

    def settle(self) -> None:
        """Wait for what was asked of the device: inputs that are still being drawn or written."""
        torch.cuda.current_stream().synchronize()

    def flush(self) -> None:
        """Leave nothing of this call's data in the L2 cache: written lines go first, then those read are clean."""
        self._dirty.add_(1)
        torch.sum(self._clean, 0, dtype=torch.int64, out=self._sum)
        torch.cuda.current_stream().synchronize()

    def reveal(self) -> None:
        """Put the true lines in place; returns when they are there."""
        for comb in self.inputs:
            comb.write(self._stream.cuda_stream)
        self._stream.synchronize()

    def glimpse(self) -> None:
        """Read the chosen lines of the outputs; returns when they are read."""
        for comb in self.outputs:
            comb.read(self._stream.cuda_stream)
        self._stream.synchronize()

    def late(self) -> bool:
        """Whether the chosen lines have changed since they were read."""
        return any(comb.changed() for comb in self.outputs)


@functools.cache
def curtain() -> Curtain:
    """The one of this process."""
    return Curtain()
