"""A comb of cache lines in device memory: every so many lines of a tensor, from a secret one on, moved by one copy.

The copies go through the device's copy engines, from and to pinned host memory, by the driver's own two-dimensional
copy. A kernel of ours would have to wait until the device changes from the candidate's context to ours, which takes
longer than many a kernel under examination: some 0.15 ms each way on an H200 (tests/bench/gpu_clock.py).
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from cuda.bindings import driver

from bot.verify.device.driver import done

LINE = 128
"""Bytes of a line, as the caches of NVIDIA's devices move them."""
MOST = 1024
"""Lines of a comb."""
LEAST = 8
"""A tensor of fewer lines has no comb, as metadata has."""
_HOST, _DEVICE = driver.CUmemorytype.CU_MEMORYTYPE_HOST, driver.CUmemorytype.CU_MEMORYTYPE_DEVICE


@dataclass(slots=True)
class Comb:
    """Lines of `data`, [n] uint8 on the device: `count` of them, `pitch` lines apart, from line `first` on. `kept`:
    what was read, [count, 32] int32, pinned."""

    data: torch.Tensor
    first: int
    pitch: int
    count: int
    kept: torch.Tensor
    _orders: dict[bool, Any] = field(default_factory=dict)

    @property
    def lines(self) -> torch.Tensor:
        """The lines where they are, [count, 32] int32."""
        words = LINE // 4
        whole = self.data[: len(self.data) // LINE * LINE].view(torch.int32).view(-1, words)
        return whole[self.first :: self.pitch][: self.count]

    def read(self, stream: int) -> None:
        """Queue a copy of the lines to `kept`."""
        done(driver.cuMemcpy2DAsync(self._order(out=False), stream))

    def write(self, stream: int) -> None:
        """Queue a copy of `kept` to where the lines are."""
        done(driver.cuMemcpy2DAsync(self._order(out=True), stream))

    def changed(self) -> bool:
        """Whether the lines hold something else than was read."""
        return not torch.equal(self.lines.cpu(), self.kept)

    def _order(self, *, out: bool) -> Any:
        if out not in self._orders:
            order = driver.CUDA_MEMCPY2D()
            there, here = ("dst", "src") if out else ("src", "dst")
            setattr(order, f"{there}MemoryType", _DEVICE)
            setattr(order, f"{there}Device", self.data.data_ptr() + LINE * self.first)
            setattr(order, f"{there}Pitch", LINE * self.pitch)
            setattr(order, f"{here}MemoryType", _HOST)
            setattr(order, f"{here}Host", self.kept.data_ptr())
            setattr(order, f"{here}Pitch", LINE)
            order.WidthInBytes, order.Height = LINE, self.count
            self._orders[out] = order
        return self._orders[out]


def comb(data: torch.Tensor, place: int, kept: torch.Tensor) -> Comb | None:
    """A comb of a tensor's bytes; None for a small one. `place`: secret, any number; `kept`: pinned, [MOST, 32]."""
    lines = len(data) // LINE
    if lines < LEAST:
        return None
    count = min(MOST, lines // 2)
    pitch = lines // count
    return Comb(data, place % pitch, pitch, count, kept[:count])
