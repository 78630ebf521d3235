"""How a call begins and ends: words in one page of shared memory, polled by both sides.

A packet through the socket costs both sides a system call, a parse and a wake-up inside the envelope; a word costs a
memory read. The worker owns nothing here: what it writes is a claim, and writing it early ends the call early. Known to
both sides of the boundary, as protocol.py is; standard library only.
"""

import ctypes
import fcntl
import mmap
import os
import struct
from collections.abc import Sequence

PAGE = 4096
RING, SLOT, ASK, QUEUED, OPEN, GO = 0, 1, 2, 3, 4, 5
DONE, FAILED, CLAIMED, AWAKE, LAUNCHED, THERE, ENDED = 8, 9, 10, 11, 12, 13, 14
NUMBERS = 16
"""Places of the words, of eight bytes each; what either side writes lies in a cache line of its own.

RING: the number of the call that begins; DONE: of the one that has ended; FAILED: whether the worker says more through
the socket; CLAIMED: its own time in ns. ASK: a number that a waiting worker repeats in AWAKE, so that a call need not
begin while it is still being scheduled. From NUMBERS on two words a number, its kind and its bytes: room for 248.

QUEUED: this call is to wait on the device. The worker queues it behind two gates, which the device opens at the words
OPEN and GO, says so in LAUNCHED, and is stopped; the device itself writes THERE between the gates and ENDED behind the
call. Each holds a call's number."""
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class Doorbell:
    """One page seen from either side."""

    def __init__(self, fd: int | None = None) -> None:
        """Map the page of `fd`, or make one."""
        self.fd = os.memfd_create("doorbell", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING) if fd is None else fd
        if fd is None:
            os.ftruncate(self.fd, PAGE)
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _SEALS)
        self._map = mmap.mmap(self.fd, PAGE)
        self.words = memoryview(self._map).cast("B").cast("Q")

    @property
    def address(self) -> int:
        """Where this process sees the page."""
        return ctypes.addressof(ctypes.c_char.from_buffer(self._map))

    def set(self, slot: int, numbers: Sequence[float | int]) -> None:
        """Say what the next call is about. Only while the other side is stopped."""
        self.words[SLOT] = slot
        for place, number in enumerate(numbers):
            whole = isinstance(number, int)
            packed = struct.pack("<q", number) if whole else struct.pack("<d", number)
            self.words[NUMBERS + 2 * place] = int(whole)
            self.words[NUMBERS + 2 * place + 1] = int.from_bytes(packed, "little")
        self.words[DONE], self.words[FAILED], self.words[CLAIMED], self.words[QUEUED] = 0, 0, 0, 0

    def number(self, place: int) -> float | int:
        """A number of the present call."""
        packed = self.words[NUMBERS + 2 * place + 1].to_bytes(8, "little")
        value: float | int = struct.unpack("<q" if self.words[NUMBERS + 2 * place] else "<d", packed)[0]
        return value

    def answer(self, call: int, claimed_ns: int, *, failed: bool) -> None:
        """The call has ended."""
        self.words[CLAIMED] = claimed_ns
        self.words[FAILED] = int(failed)
        self.words[DONE] = call

    def close(self) -> None:
        """Give the page up."""
        self.words.release()
        self._map.close()
        os.close(self.fd)
