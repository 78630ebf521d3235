"""Memory lent to a worker: one sealed memfd a tensor, owned by the verifier, with guard bands around the data; on a GPU
one allocation of device memory (device/cuda.py).

Sealed against shrinking and growing (without seals a worker's ftruncate kills the verifier with SIGBUS); not against
writing, which would kill an honest in-place kernel. Guards and outputs are filled with salted patterns before each
call; inputs are compared with private copies afterwards.
"""

import fcntl
import math
import mmap
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from bot.contract.schema import Contract, DType, Sizes, TensorInput
from bot.verify.cases import Held, Inputs, tensor_in
from bot.verify.draws import STORAGE, Array
from bot.verify.philox import Stream

PAGE = 4096
"""A guard band is at least this many bytes before the data and after it."""
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL

Bytes = npt.NDArray[np.uint8]
Maker = Callable[[str, tuple[int, ...], DType], "Lent"]


class Lent(Protocol):
    """One tensor in lent memory: [guard | data | guard]. `fd` travels to the worker: `size` bytes, data from `offset`.
    An answer is what a snapshot returns: an array in storage form, or a tensor that stays on its device."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    offset: int
    size: int
    fd: int

    def guard(self, pattern: bytes) -> None:
        """Fill both guard bands with a repeated pattern of 64 bytes."""

    def guard_intact(self) -> bool:
        """Whether the guard bands still hold what was put there."""

    def write(self, held: Held) -> None:
        """Put an input's bytes in place."""

    def holds(self, held: Held) -> bool:
        """Whether the data still equal these bytes."""

    def poison(self, value: np.generic) -> None:
        """Fill the data with a value that no honest kernel leaves."""

    def unwritten(self, snapshot: Held) -> tuple[int, ...] | None:
        """Index of the first element that still is the poison."""

    def snapshot(self) -> Held:
        """A private copy of the data."""

    def close(self) -> None:
        """Overwrite and give up the memory; what it held may have been an input of this exam."""


class HostLent:
    """Lent memory on the CPU."""

    def __init__(self, name: str, shape: tuple[int, ...], dtype: DType) -> None:
        """Allocate and seal."""
        self.name, self.shape, self.dtype = name, shape, dtype
        self.offset = PAGE
        self.length = math.prod(shape) * STORAGE[dtype].itemsize
        self.size = PAGE + -(-self.length // PAGE) * PAGE + PAGE
        self.fd = os.memfd_create("proctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, self.size)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _SEALS)
        self._map = mmap.mmap(self.fd, self.size)
        self._bytes: Bytes = np.frombuffer(self._map, dtype=np.uint8)
        self._guard = b""
        self._poison: np.generic | None = None

    @property
    def _data(self) -> Bytes:
        return self._bytes[self.offset : self.offset + self.length]

    def guard(self, pattern: bytes) -> None:
        """Fill both guard bands with a repeated pattern."""
        self._guard = (pattern * (self.size // len(pattern) + 1))[: self.size - self.length]
        band = np.frombuffer(self._guard, dtype=np.uint8)
        self._bytes[: self.offset] = band[: self.offset]
        self._bytes[self.offset + self.length :] = band[self.offset :]

    def guard_intact(self) -> bool:
        """Whether the guard bands still hold what was put there."""
        end = self.offset + self.length
        return self._bytes[: self.offset].tobytes() + self._bytes[end:].tobytes() == self._guard

    def write(self, held: Held) -> None:
        """Put an input's bytes in place."""
        self._data[:] = _bytes_of(held)

    def holds(self, held: Held) -> bool:
        """Whether the data still equal these bytes."""
        return bool(np.array_equal(self._data, _bytes_of(held)))

    def poison(self, value: np.generic) -> None:
        """Fill the data with a value that no honest kernel leaves."""
        self._poison = value
        self.write(np.full(self.shape, value))

    def unwritten(self, snapshot: Held) -> tuple[int, ...] | None:
        """Index of the first element that still is the poison."""
        assert isinstance(snapshot, np.ndarray)  # noqa: S101 - it came from here
        if self._poison is None:
            return None
        left = snapshot.view(f"<u{snapshot.itemsize}") == self._poison.view(f"<u{snapshot.itemsize}")
        return tuple(int(i) for i in np.argwhere(left)[0]) if left.any() else None

    def snapshot(self) -> Array:
        """A private copy of the data, in storage form."""
        return self._data.copy().view(STORAGE[self.dtype]).reshape(self.shape)

    def close(self) -> None:
        """Overwrite and give up the memory; what it held may have been an input of this exam."""
        self._bytes[:] = 0
        del self._bytes
        self._map.close()
        os.close(self.fd)


def _bytes_of(held: Held) -> Bytes:
    assert isinstance(held, np.ndarray)  # noqa: S101 - draws for a CPU are arrays
    return np.ascontiguousarray(held).reshape(-1).view(np.uint8)


@dataclass(frozen=True, slots=True)
class Slot:
    """A set of lent tensors for one call's inputs and outputs, at addresses of its own."""

    number: int
    axes: Sizes
    inputs: Mapping[str, Lent]
    outputs: Mapping[str, Lent]

    def fill(self, inputs: Inputs, stream: Stream) -> None:
        """Write the inputs, poison the outputs, renew the guards. Only while the worker is stopped."""
        pattern = stream.child("guard").words(16).tobytes()
        for name, lent in self.inputs.items():
            lent.write(tensor_in(inputs, name))
            lent.guard(pattern)
        for lent in self.outputs.values():
            lent.poison(poison_of(lent.dtype, stream.child("poison", lent.name)))
            lent.guard(pattern)

    def snapshot(self) -> dict[str, Held]:
        """Private copies of all outputs."""
        return {name: lent.snapshot() for name, lent in self.outputs.items()}

    def damage(self, inputs: Inputs) -> str | None:
        """What was written that may not be: an input or a guard band; None when all is well."""
        for name, lent in self.inputs.items():
            if not lent.holds(tensor_in(inputs, name)):
                return f"wrote into its input `{name}`"
            if not lent.guard_intact():
                return f"wrote outside its input `{name}`"
        for name, lent in self.outputs.items():
            if not lent.guard_intact():
                return f"wrote outside its output `{name}`"
        return None

    def close(self) -> None:
        """Give up all buffers."""
        for lent in (*self.inputs.values(), *self.outputs.values()):
            lent.close()


def lend(contract: Contract, axes: Sizes, absent: frozenset[str], number: int, lent: Maker = HostLent) -> Slot:
    """Buffers for one set of axis values."""
    inputs = {
        name: lent(name, contract.shape(spec, axes), spec.dtype)
        for name, spec in contract.inputs.items()
        if isinstance(spec, TensorInput) and name not in absent
    }
    outputs = {name: lent(name, contract.shape(spec, axes), spec.dtype) for name, spec in contract.outputs.items()}
    return Slot(number, axes, inputs, outputs)


def poison_of(dtype: DType, stream: Stream) -> np.generic:
    """A salted value that no honest kernel leaves: a NaN with a secret payload for floats, a huge negative for ints.

    NaN may be a legal output, which hardware makes with a payload of zeros or ones: this one has both.
    """
    storage = STORAGE[dtype]
    payload = 1 + int(stream.below(2**20)[0])
    bits = {
        "bfloat16": 0x7FC0 | (1 + payload % 62),
        "float16": 0x7E00 | (1 + payload % 510),
        "float32": 0x7FC00000 | (1 + payload % 4194302),
    }.get(dtype)
    if bits is None:
        return storage.type(-(2**30) - payload % 65536)
    return storage.type(np.array(bits, dtype=f"<u{storage.itemsize}").view(storage)[()])
