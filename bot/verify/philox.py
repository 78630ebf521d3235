"""Random bits that anyone can recompute: Philox-4x32-10 keyed from the salt, and the fixed tables over 16-bit indices.

Philox is counter-based (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), so a CPU and a GPU, or
an exam and its replay, draw the same bits in any order. Everything here is integers; tables are made once by the
platform's libm and rounded to integers, and their digest is checked, so that a differing libm is noticed.
"""

import functools
import hashlib
import hmac
import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from bot.errors import InfrastructureError

U16 = npt.NDArray[np.uint16]
U32 = npt.NDArray[np.uint32]
I64 = npt.NDArray[np.int64]
Item = TypeVar("Item", bound=np.generic)

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_FEW = 8
_BLOCK = 1 << 15
"""Counters worked on at a time: half as many cost a tenth more, in numpy's own cost per call; twice as many gain none
(tests/bench/draws.py)."""

FRACTION = 16
"""Binary places of a table entry: tables hold round(value * 2**16)."""


@dataclass(frozen=True, slots=True)
class Stream:
    """One independent sequence of random words, named by the path of labels that led to it."""

    secret: bytes

    @classmethod
    def from_salt(cls, salt: bytes, *labels: str) -> "Stream":
        """The root of an exam: HKDF-SHA256 (RFC 5869) of the salt over the labels."""
        extracted = hmac.digest(b"proctor draws", salt, "sha256")
        return cls(hmac.digest(extracted, "\x1f".join(labels).encode() + b"\x01", "sha256"))

    def child(self, *labels: str | int) -> "Stream":
        """A stream independent of this one and of every other child."""
        return Stream(hmac.digest(self.secret, "\x1f".join(map(str, labels)).encode(), "sha256"))

    def identity(self) -> U32:
        """What tells its words from another's, 4 words: the key of Philox, then the upper half of its counters."""
        return np.frombuffer(hashlib.sha256(self.secret).digest()[:16], dtype="<u4")

    def words(self, count: int) -> U32:
        """`count` uniform 32-bit words."""
        identity = self.identity()
        blocks = -(-count // 4)
        out = np.empty((blocks, 4), dtype=np.uint32)
        for start in range(0, blocks, _BLOCK):
            stop = min(start + _BLOCK, blocks)
            _philox(identity, start, stop - start, out[start:stop])
        return out.reshape(-1)[:count]

    def indices(self, count: int) -> U16:
        """`count` uniform 16-bit table indices, low half of each word first."""
        return self.words(-(-count // 2)).astype("<u4", copy=False).view("<u2")[:count]

    def gather(self, table: npt.NDArray[Item], count: int) -> npt.NDArray[Item]:
        """`table[indices(count)]` for a table of 65,536 entries, without the indices: for large counts their memory
        costs more time than their making."""
        identity = self.identity()
        out = np.empty(count, dtype=table.dtype)
        words = np.empty((_BLOCK, 4), dtype=np.uint32)
        for start in range(0, -(-count // 8), _BLOCK):
            blocks = min(_BLOCK, -(-count // 8) - start)
            _philox(identity, start, blocks, words[:blocks])
            part = out[8 * start : 8 * (start + blocks)]
            index = words[:blocks].reshape(-1).astype("<u4", copy=False).view("<u2")[: len(part)]
            # A 16-bit index cannot miss; "raise" would make a copy of the output first.
            np.take(table, index, out=part, mode="wrap")
        return out

    def below(self, bound: int, count: int = 1) -> I64:
        """`count` integers in [0, bound), by multiplication and shift (bias below 2**-32 * bound)."""
        return ((self.words(count).astype(np.uint64) * np.uint64(bound)) >> np.uint64(32)).astype(np.int64)

    def unit(self) -> float:
        """One number in [0, 1) with 32 binary places."""
        return int(self.words(1)[0]) / 4294967296.0

    def between(self, low: float, high: float) -> float:
        """One number, uniform in [low, high)."""
        return low + self.unit() * (high - low)

    def shuffled(self, count: int) -> list[int]:
        """A permutation of range(count)."""
        order = list(range(count))
        for last in range(count - 1, 0, -1):
            pick = int(self.child("swap", last).below(last + 1)[0])
            order[last], order[pick] = order[pick], order[last]
        return order


def _philox(identity: U32, start: int, count: int, out: U32) -> None:
    """Fill `out` [count, 4] with the blocks of counters start … start + count − 1."""
    if count <= _FEW:
        words = [int(word) for word in identity]
        for row in range(count):
            out[row] = _philox_block(words, start + row)
        return
    counter = np.arange(start, start + count, dtype=np.uint64)
    c0, c1 = counter & _LOW, counter >> _HALF
    c2 = np.full(count, identity[2], dtype=np.uint64)
    c3 = np.full(count, identity[3], dtype=np.uint64)
    p0, p1 = np.empty_like(c0), np.empty_like(c0)
    k0, k1 = int(identity[0]), int(identity[1])
    for _ in range(_ROUNDS):
        np.multiply(c0, _MULTIPLIERS[0], out=p0)
        np.multiply(c2, _MULTIPLIERS[1], out=p1)
        np.right_shift(p1, _HALF, out=c0)
        np.bitwise_xor(c0, c1, out=c0)
        np.bitwise_xor(c0, np.uint64(k0), out=c0)
        np.bitwise_and(p1, _LOW, out=c1)
        np.right_shift(p0, _HALF, out=c2)
        np.bitwise_xor(c2, c3, out=c2)
        np.bitwise_xor(c2, np.uint64(k1), out=c2)
        np.bitwise_and(p0, _LOW, out=c3)
        k0, k1 = (k0 + _WEYL[0]) & 0xFFFFFFFF, (k1 + _WEYL[1]) & 0xFFFFFFFF
    for column, words_of_column in enumerate((c0, c1, c2, c3)):
        out[:, column] = words_of_column


def _philox_block(identity: list[int], counter: int) -> list[int]:
    """One block in Python integers: for a few words ten times faster than starting up numpy's operations."""
    c0, c1, c2, c3 = counter & 0xFFFFFFFF, counter >> 32, identity[2], identity[3]
    k0, k1 = identity[0], identity[1]
    for _ in range(_ROUNDS):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & 0xFFFFFFFF, (p0 >> 32) ^ c3 ^ k1, p0 & 0xFFFFFFFF
        k0, k1 = (k0 + _WEYL[0]) & 0xFFFFFFFF, (k1 + _WEYL[1]) & 0xFFFFFFFF
    return [c0, c1, c2, c3]


SILU_RANGE = 8
"""The SiLU table covers [-8, 8); beyond it the function is 0 or its argument to 6e-6."""


@functools.cache
def normal_table() -> npt.NDArray[np.int32]:
    """Quantiles of the standard normal at (i + 1/2) / 65536, times 2**16: 65,536 entries, cut at 4.2."""
    inverse = NormalDist().inv_cdf
    half = [round(inverse((i + 0.5) / 65536) * 2**FRACTION) for i in range(32768)]
    table = np.array(half + [-v for v in reversed(half)], dtype=np.int32)
    return _checked(table, "ee46eda6")


@functools.cache
def silu_table() -> npt.NDArray[np.int32]:
    """x * sigmoid(1.5 x) at 65,536 points of [-8, 8), times 2**16."""
    points = ((i - 32768) * SILU_RANGE / 32768 for i in range(65536))
    table = np.array([round(x / (1.0 + math.exp(-1.5 * x)) * 2**FRACTION) for x in points], dtype=np.int32)
    return _checked(table, "2884989f")


def _checked(table: npt.NDArray[np.int32], digest: str) -> npt.NDArray[np.int32]:
    found = hashlib.sha256(table.astype("<i4").tobytes()).hexdigest()[:8]
    if found != digest:
        raise InfrastructureError(
            f"this machine's libm makes another table ({found}, not {digest}): draws would differ"
        )
    table.setflags(write=False)
    return table
