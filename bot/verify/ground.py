"""Common ground of oracles: what several contracts share, in float64, for `oracle.py` to import.

Oracles get integers as int64 and floating tensors as float64; so do these functions. Pure.
"""

import torch

Tensor = torch.Tensor


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
