"""Calls on a GPU. A process can be stopped, what it left on the device cannot: so the clock starts before a call's
inputs are whole, and runs until secret lines of its outputs have been read (device/cuda.py).
"""

import itertools
import time
from dataclasses import replace

from typing_extensions import override

from bot.contract.schema import Contract, Sizes
from bot.verify.buffers import Slot, lend
from bot.verify.calls import Answered, Failure, Worker
from bot.verify.device import cuda
from bot.verify.doorbell import ASK, AWAKE, DONE, FAILED, RING
from bot.verify.philox import Stream
from bot.verify.sandbox import Kind, Limits, Sandbox

LIMITS = Limits(
    address_space=0, resident=24 << 30, processes=1024, files=1024, file_size=1 << 30, tmp=2 << 30, shm=256 << 20
)
"""CUDA maps terabytes of addresses; compilers use threads, and keep what they make in /tmp."""
CALL_SECONDS = 180.0
"""Kernels are compiled in the first call of their kind; those of a library that tunes itself take a minute."""
WARMING = 2
"""Runs before a timed call."""
AWAKE_SECONDS = 5.0
_TURN = itertools.count()
_LOOKS = 512
"""Looks at the doorbell between two looks at the clock and the socket, which cost about as much as 20."""
_PULSE_SECONDS = 0.25


class GpuWorker(Worker):
    """A worker whose lent memory is on a device."""

    call_seconds = CALL_SECONDS

    def __init__(
        self, contract: Contract, kind: Kind, cpus: set[int], *, start_cpus: set[int], cache: str | None = None
    ) -> None:
        """As any worker; `cache`: a folder for what compilers make, of kernels of ours."""
        self._cache = cache
        super().__init__(contract, kind, cpus, start_cpus=start_cpus)

    @override
    def _sandbox(self, kind: Kind, cpus: set[int]) -> Sandbox:
        # One processor each, and not the verifier's: a process that changes it finds the new one's caches cold, which
        # costs a call as much as a short kernel takes.
        self.cpus = {sorted(self.cpus)[next(_TURN) % len(self.cpus)]}
        return Sandbox(kind, cpus=cpus, limits=LIMITS, fork=self.fork, gpu=replace(cuda.access(), cache=self._cache))

    @override
    def _lend(self, axes: Sizes, absent: frozenset[str]) -> Slot:
        return lend(self.contract, axes, absent, self._next_slot, cuda.CudaLent)

    @override
    def _warm(self, slot: Slot) -> Failure | None:
        """On a slot that has been used, as timed ones are, run the kernel on what is left there.

        A process that was stopped for some milliseconds takes 0.1 to 0.2 ms longer to launch its next kernel, and not
        the one after. The new inputs are not written yet; what comes of this is not looked at.
        """
        numbers = self._asked.get(slot.number)
        if numbers is None:
            return None
        self._calls += 1
        self._bell.set(slot.number, numbers)
        self.sandbox.resume()
        for _ in range(WARMING):
            stuck = self._wake() or self._ring(self.call_seconds)
            if stuck is not None:
                return stuck
            self._calls += 1
        return None

    @override
    def _conceal(self, slot: Slot, stream: Stream) -> None:
        cuda.curtain().hide(slot.inputs, slot.outputs, stream)

    @override
    def _timed(self, slot: Slot, call: int, seconds: float) -> Answered | Failure:
        curtain = cuda.curtain()
        begun = time.perf_counter_ns()
        curtain.flush()
        flushed = time.perf_counter_ns() - begun
        if self.sandbox.stopped:
            self.sandbox.resume()
        # Neither its wait for a processor nor the device's change to its context is to be part of the time.
        stuck = self._wake()
        if stuck is not None:
            return stuck
        curtain.reveal()
        started = time.perf_counter_ns()
        ended = self._ring(seconds)
        if ended is not None:
            return ended
        curtain.glimpse()
        envelope = time.perf_counter_ns() - started
        outputs = slot.snapshot()
        late = curtain.late()
        answered = Answered(envelope, self._claimed(), outputs, flush_ns=flushed)
        self.sandbox.stop()
        if late:
            return Failure("incorrect", "changed its outputs after it had said that it was done", alive=True)
        return answered

    def _wake(self) -> Failure | None:
        """Until it answers, and has had the device work for it."""
        self._bell.words[ASK] += 1
        return self._spin(AWAKE, self._bell.words[ASK], AWAKE_SECONDS)

    def _ring(self, seconds: float) -> Failure | None:
        words = self._bell.words
        words[RING] = self._calls
        ended = self._spin(DONE, self._calls, seconds)
        return self._failed() if ended is None and words[FAILED] else ended

    def _spin(self, word: int, value: int, seconds: float) -> Failure | None:
        """Until the worker has written this, without a pause: a nap would be most of a short call."""
        words = self._bell.words
        begun = pulse = time.monotonic()
        while words[word] != value:
            if any(words[word] == value for _ in range(_LOOKS)):
                break
            now = time.monotonic()
            if self._hung_up() and words[word] != value:
                return Failure("incorrect", self._ending())
            if now >= min(pulse + _PULSE_SECONDS, begun + seconds):
                pulse = now
                stuck = self._stuck(begun + seconds, seconds)
                if stuck is not None:
                    return stuck
        return None
