"""Common ground of oracles: what several contracts share, in float64, for `oracle.py` to import.

Oracles get integers as int64 and floating tensors as float64; so do these functions. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch

Tensor = torch.Tensor


@dataclass(frozen=True, slots=True)
class Chunks:
    """Packed sequences in chunks of `size` tokens, step by step: the m-th chunks of all sequences that have one stand
    together, so that a recurrence takes as many steps as its longest sequence has chunks.

    `rows`: [chunks, size], the token at each place; past a sequence's end a token of zeros, one past the last. `steps`:
    of each step, the first chunk and one past the last. `order`: [N], the sequences, longest first: those of a step are
    always the first of them, and empty ones take part in none.
    """

    rows: Tensor
    steps: Sequence[tuple[int, int]]
    order: Tensor
    tokens: int

    def cut(self, packed: Tensor) -> Tensor:
        """[T,H,D] to [chunks,H,size,D]."""
        zeros = packed.new_zeros(1, *packed.shape[1:])
        return torch.cat([packed, zeros])[self.rows].transpose(1, 2).contiguous()

    def join(self, results: Sequence[Tensor]) -> Tensor:
        """Results of all steps, each [sequences,H,size,D], to [T,H,D]."""
        together = torch.cat(list(results)).transpose(1, 2)
        packed = together.new_empty(self.tokens + 1, *together.shape[2:])
        packed[self.rows] = together
        return packed[: self.tokens]


def chunks(cu_seqlens: Tensor, size: int) -> Chunks:
    """How packed sequences are cut. `cu_seqlens`: [N+1] int64, where each begins."""
    starts = cu_seqlens.tolist()
    tokens, lengths = starts[-1], [b - a for a, b in pairwise(starts)]
    order = sorted(range(len(lengths)), key=lambda n: -lengths[n])
    rows: list[list[int]] = []
    counts = []
    for first in range(0, max(lengths, default=0), size):
        begun = [n for n in order if lengths[n] > first]
        for n in begun:
            here = range(first, min(first + size, lengths[n]))
            rows.append([starts[n] + t for t in here] + [tokens] * (size - len(here)))
        counts.append(len(begun))
    ends = list(accumulate(counts, initial=0))
    device = cu_seqlens.device
    return Chunks(
        torch.tensor(rows, dtype=torch.long, device=device).view(-1, size),
        list(pairwise(ends)),
        torch.tensor(order, dtype=torch.long, device=device),
        tokens,
    )


def spread(scales: Tensor, sizes: tuple[int, ...], block: int) -> Tensor:
    """Scales of blocks of `block` steps as one of each element, over the last `len(sizes)` axes, which get these sizes.

    A dimension of `scales` that has its full size already is not divided in blocks. The last block may be cut short.
    """
    for position, size in enumerate(sizes, start=scales.dim() - len(sizes)):
        if scales.shape[position] != size:
            scales = scales.repeat_interleave(block, dim=position).narrow(position, 0, size)
    return scales


def e4m3(stored: Tensor) -> Tensor:
    """Bytes, signed or not, as the float8_e4m3fn numbers that they store."""
    return (stored % 256).to(torch.uint8).view(torch.float8_e4m3fn).double()


def float32(stored: Tensor) -> Tensor:
    """Bytes, signed or not, four of the last axis at a time, as the little-endian float32 numbers that they store."""
    return (stored % 256).to(torch.uint8).contiguous().view(torch.float32).double()


def slots(cache: Tensor) -> Tensor:
    """A paged cache [pages, page size, …] by ids: [pages * page size, …], id = page * page size + place."""
    return cache.flatten(0, 1)


def at(held: Tensor, ids: Tensor) -> Tensor:
    """What stands at ids of the first axis, [*ids.shape, …]; zeros where an id is −1: whatever stands elsewhere, even
    what is no number, does not reach it."""
    found = held[ids.clamp_min(0)]
    return torch.where((ids >= 0).reshape(*ids.shape, *[1] * (held.dim() - 1)), found, 0.0)
