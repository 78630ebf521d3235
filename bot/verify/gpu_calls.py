"""Calls on a GPU. The worker queues a call on the device behind a gate, before its inputs are there, and is stopped:
the clock sees the device alone, as where a framework launches ahead, and neither a cold process nor its launches.

A process can be stopped, what it left on the device cannot: so secret lines of the inputs are put right last, and the
clock runs until secret lines of the outputs have been read (device/cuda.py).
"""

import itertools
import time
from dataclasses import replace

from typing_extensions import override

from bot.contract.schema import Contract, Sizes
from bot.verify.buffers import Slot, lend
from bot.verify.calls import STOP_TRIES, Answered, Failure, Worker
from bot.verify.device import cuda
from bot.verify.doorbell import ASK, AWAKE, DONE, ENDED, FAILED, GO, LAUNCHED, OPEN, QUEUED, RING, THERE
from bot.verify.mounts import GPU_LIMITS
from bot.verify.philox import Stream
from bot.verify.sandbox import Kind, Sandbox

CALL_SECONDS = 180.0
"""Kernels are compiled in the first call of their kind; those of a library that tunes itself take a minute."""
LAUNCH_SECONDS = 0.25
"""What a kernel may take to queue its work. Who has not by then waits for the device: 20 kernels of Triton take 1 ms,
but a process that was stopped has been seen to start 8 ms late."""
ALONE_SECONDS = 1.0
"""How long a call is left alone with the device, its process stopped."""
AWAKE_SECONDS = 5.0
_TURN = itertools.count()
_LOOKS = 256
"""Looks at the doorbell between two at the clock."""
_PULSE_SECONDS = 0.25
"""Between two looks at the sandbox."""


class GpuWorker(Worker):
    """A worker whose lent memory is on a device."""

    call_seconds = CALL_SECONDS

    def __init__(
        self,
        contract: Contract,
        kind: Kind,
        cpus: set[int],
        *,
        start_cpus: set[int],
        cache: str | None = None,
        packages: frozenset[str] = frozenset(),
    ) -> None:
        """As any worker; `cache`: a folder for what compilers make, of kernels of ours."""
        self._cache, self._ours = cache, cache is not None
        self.host_bound: set[str] = set()
        self._met: frozenset[int] = frozenset()
        self._shapes: set[str] = set()
        self._queued = False
        super().__init__(contract, kind, cpus, start_cpus=start_cpus, packages=packages)

    @override
    def _sandbox(self, kind: Kind, cpus: set[int]) -> Sandbox:
        # One processor each, and not the verifier's: a process that changes it finds the new one's caches cold, which
        # costs a call as much as a short kernel takes.
        self.cpus = {sorted(self.cpus)[next(_TURN) % len(self.cpus)]}
        gpu = replace(cuda.access(), cache=self._cache)
        return Sandbox(kind, cpus=cpus, limits=GPU_LIMITS, fork=self.fork, gpu=gpu, packages=self.packages)

    @override
    def _lend(self, axes: Sizes, absent: frozenset[str]) -> Slot:
        return lend(self.contract, axes, absent, self._next_slot, cuda.CudaLent)

    @override
    def _new_to(self, slot: Slot) -> bool:
        """Of every size: kernels are compiled for sizes too."""
        shape = _shape_of(slot)
        known = shape in self._shapes
        self._shapes.add(shape)
        return not known

    @override
    def _queue(self, slot: Slot, numbers: list[float | int]) -> Failure | None:
        """Have the worker queue its call on the device, before there are inputs, and stop it.

        Not the first call of a slot, in which kernels are compiled, nor one that has turned out to need the host.
        """
        self._queued = False
        first, self._met = slot.number not in self._met, self._met | {slot.number}
        shape = _shape_of(slot)
        if first or shape in self.host_bound:
            return None
        words = self._bell.words
        words[QUEUED] = 1
        words[RING] = self._calls
        self.sandbox.resume()
        if self._soon(LAUNCHED, self._calls, LAUNCH_SECONDS):
            self._queued = True
        else:
            # It waits for the device in its midst, or has failed: let it come to an end with what lies there.
            self.host_bound.add(shape)
            words[OPEN] = words[GO] = self._calls
            ended = self._ended(self.call_seconds)
            if ended is not None:
                return ended
        if not self._stopped():
            return Failure("timed_out", f"was still at work {STOP_TRIES} times after it was stopped")
        if not self._queued:
            self._calls += 1
            self._bell.set(slot.number, numbers)
        return None

    @override
    def _conceal(self, slot: Slot, stream: Stream) -> None:
        cuda.curtain().hide(slot.inputs, slot.outputs, stream)

    @override
    def _timed(self, slot: Slot, call: int, seconds: float) -> Answered | Failure:
        curtain = cuda.curtain()
        curtain.settle()
        begun = time.perf_counter_ns()
        curtain.flush()
        flushed = time.perf_counter_ns() - begun
        begin = self._released if self._queued else self._rung
        started = begin(curtain, call, seconds)
        if isinstance(started, Failure):
            return started
        curtain.glimpse()
        envelope = time.perf_counter_ns() - started
        if self.sandbox.stopped:
            self.sandbox.resume()
        ended = self._ended(seconds)
        if ended is not None:
            return ended
        outputs = slot.snapshot()
        late = curtain.late()
        answered = Answered(envelope, self._claimed(), outputs, flush_ns=flushed, host_bound=not self._queued)
        if not self._stopped():
            return Failure("timed_out", f"was still at work {STOP_TRIES} times after it was stopped")
        if late:
            return Failure("incorrect", "changed its outputs after it had said that it was done", alive=True)
        return answered

    def _released(self, curtain: cuda.Curtain, call: int, seconds: float) -> int | Failure:
        """Open the gates of a queued call; returns when its clock started, once its end is seen. Its process stays
        stopped: all that happens between is the device's doing."""
        words = self._bell.words
        curtain.reveal()
        words[OPEN] = call
        # The device changes to this process, and the clock stands. What was queued beside the call can start now too, a
        # few µs early.
        stuck = self._spin(THERE, call, AWAKE_SECONDS)
        if stuck is not None:
            return stuck
        started = time.perf_counter_ns()
        words[GO] = call
        if not self._soon(ENDED, call, ALONE_SECONDS):
            # What the device has to tell its process, a fault for instance, it cannot while that is stopped.
            self.sandbox.resume()
            stuck = self._ended(seconds)
        return started if stuck is None else stuck

    def _rung(self, curtain: cuda.Curtain, call: int, seconds: float) -> int | Failure:
        """Ring for a call that needs its process; returns as above. A candidate is released when the clock starts, for
        it could begin before; a kernel of ours may get ready, lest what it loses there makes a low bar."""
        if self._ours:
            self.sandbox.resume()
            stuck = self._wake()
            if stuck is not None:
                return stuck
        curtain.reveal()
        started = time.perf_counter_ns()
        self._bell.words[RING] = call
        if not self._ours:
            self.sandbox.resume_without_wait()
        ended = self._ended(seconds)
        self.sandbox.collect()
        return started if ended is None else ended

    def _wake(self) -> Failure | None:
        """Until it answers, and has had the device work for it."""
        self._bell.words[ASK] += 1
        return self._spin(AWAKE, self._bell.words[ASK], AWAKE_SECONDS)

    def _ended(self, seconds: float) -> Failure | None:
        """Until the worker says that this call has ended."""
        words = self._bell.words
        stuck = self._spin(DONE, self._calls, seconds)
        return self._failed() if stuck is None and words[FAILED] else stuck

    def _soon(self, word: int, value: int, seconds: float) -> bool:
        """Whether the word has this value in time."""
        words, until = self._bell.words, time.monotonic() + seconds
        while words[word] != value:
            for _ in range(_LOOKS):
                if words[word] == value:
                    return True
            if time.monotonic() >= until:
                return False
        return True

    def _spin(self, word: int, value: int, seconds: float) -> Failure | None:
        """Until the worker has written this, without a pause: a nap would be most of a short call."""
        begun = time.monotonic()
        while not self._soon(word, value, _PULSE_SECONDS):
            if self._hung_up() and self._bell.words[word] != value:
                return Failure("incorrect", self._ending())
            stuck = self._stuck(begun + seconds, seconds)
            if stuck is not None:
                return stuck
        return None


def _shape_of(slot: Slot) -> str:
    return repr(sorted(slot.axes.items()))
