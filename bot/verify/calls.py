"""Talk to one worker: load a candidate, lend it memory, call it, and say what happened as a value.

A call: the worker is stopped; inputs are written and outputs poisoned; the bell is set; t0; it is rung and the worker
released; it answers; it is stopped again, confirmed; t1; outputs are copied. The time is ours, t1 − t0. Messages that
nobody asked for cannot happen honestly.
"""

import contextlib
import math
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pydantic import ValidationError

from bot.contract.schema import Contract, ScalarInput, Sizes, TensorInput
from bot.errors import InfrastructureError
from bot.evaluation import RefusalKind
from bot.verify.buffers import Slot, lend
from bot.verify.cases import Case, Held
from bot.verify.doorbell import CLAIMED, DONE, FAILED, RING, Doorbell
from bot.verify.mounts import Limits
from bot.verify.philox import Stream
from bot.verify.protocol import (
    CLAIMS,
    MAX_PACKET,
    Bind,
    Bye,
    Claim,
    Done,
    Load,
    Packet,
    Raised,
    Ready,
    Release,
    Replay,
    Replayed,
    Tensor,
    pack,
    parse,
)
from bot.verify.sandbox import Kind, NotStoppedError, Sandbox
from bot.verify.spent import Spent

READY_SECONDS = 60.0
LOAD_SECONDS = 60.0
CALL_SECONDS = 20.0
CLAIM_SECONDS = 1.0
STOP_TRIES = 2
"""Each takes the stopper five seconds before it gives up: a process that ends with much memory has taken more than two
where others were busy."""
MAX_CLAIM_NS = 2**53
_POLL_SECONDS = 0.25
"""How often a waiting verifier looks at the sandbox's memory and pulse."""
SPIN_SECONDS = 0.0003
_NAP_SECONDS = 0.00005
"""Who waits spins at first and then naps: a short call is seen at once, and a long one is not slowed down by a spinning
neighbour, who may share a core with it. A nap's end is uncertain by some 0.1 ms, which is little of a call so long."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The candidate did something that ends its exam. `alive`: its process still answers."""

    kind: RefusalKind
    text: str
    alive: bool = False


@dataclass(frozen=True, slots=True)
class Answered:
    """One finished call: our time for it, what the worker claims, what it left in the outputs. `unwritten`: an output
    with an element nobody wrote, and where. `flush_ns`: on a GPU, what emptying the cache took before it; `host_bound`:
    whether its process had to run in the midst of it."""

    envelope_ns: int
    claimed_ns: int
    outputs: dict[str, Held] = field(repr=False)
    unwritten: tuple[str, tuple[int, ...]] | None = None
    flush_ns: int = 0
    host_bound: bool = False


@dataclass
class Allowance:
    """What the calls of one kernel may take in all, over all its workers: each call has its own limit, and there are
    hundreds."""

    seconds: float = math.inf
    used: float = 0.0

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.seconds - self.used


class Worker:
    """A sandboxed process that serves candidates. Every method that runs foreign code returns a Failure or a result."""

    call_seconds = CALL_SECONDS

    def __init__(
        self,
        contract: Contract,
        kind: Kind,
        cpus: set[int],
        *,
        start_cpus: set[int] | None = None,
        threads: int = 1,
        fork: bool = False,
        packages: frozenset[str] = frozenset(),
    ) -> None:
        """Start it; `ready()` waits for it. It stays on `cpus` once it is up, and may start up on `start_cpus` too.
        `packages`: distributions that it sees beside what the contract lets a candidate use."""
        self.contract = contract
        self.threads = threads
        self.fork = fork
        self.packages = packages | frozenset(contract.may_use)
        self.cpus = cpus
        self.sandbox = self._sandbox(kind, cpus | (start_cpus or set()))
        self._slots: dict[int, Slot] = {}
        self._next_slot = 0
        self._calls = 0
        self._bell = Doorbell()
        self.allowance = Allowance()
        self.spent = Spent()
        self._closed = False
        self._ready = False

    def _sandbox(self, kind: Kind, cpus: set[int]) -> Sandbox:
        return Sandbox(kind, cpus=cpus, limits=Limits(), fork=self.fork, packages=self.packages)

    def _lend(self, axes: Sizes, absent: frozenset[str]) -> Slot:
        return lend(self.contract, axes, absent, self._next_slot)

    def ready(self) -> None:
        """Wait until torch is imported.

        Raises:
            InfrastructureError: it did not come up.
        """
        if self._ready:
            return
        with self.spent.on("start"):
            claim = self._answer(READY_SECONDS)
        if not isinstance(claim, Ready):
            detail = claim.text if isinstance(claim, Failure) else "unexpected answer"
            raise InfrastructureError(f"a worker did not come up: {detail}\n{self.sandbox.output.text()}".strip())
        self.sandbox.pin(self.cpus)
        self._ready = True

    def load(self, source: str) -> Failure | None:
        """Import a candidate; its bytes travel in lent memory."""
        self.ready()
        data = source.encode()
        fd = os.memfd_create("source", os.MFD_CLOEXEC)
        try:
            os.write(fd, data or b"\n")
            load = Load(size=max(len(data), 1), threads=self.threads)
            self._renew_bell()
            with self.spent.on("compile"):
                claim = self._ask(load, [fd, self._bell.fd], LOAD_SECONDS)
        finally:
            os.close(fd)
        return self._plain(claim, "build_failed")

    def bind(self, axes: Sizes, absent: frozenset[str]) -> Slot | Failure:
        """Lend memory for these axis values."""
        self._next_slot += 1
        slot = self._lend(axes, absent)
        lents = [*slot.inputs.values(), *slot.outputs.values()]
        tensors = [
            Tensor(
                name=t.name,
                shape=list(t.shape),
                dtype=t.dtype,
                offset=t.offset,
                size=t.size,
                lasting=_lasts(self.contract, t.name),
            )
            for t in lents
        ]
        # Known from now on: whatever happens next, it is closed with the worker.
        self._slots[slot.number] = slot
        bind = Bind(slot=slot.number, tensors=tensors, arguments=self._signature(slot))
        claim = self._ask(bind, [t.fd for t in lents], CALL_SECONDS)
        failed = self._plain(claim, "incorrect")
        if failed is not None:
            self._slots.pop(slot.number).close()
            return failed
        return slot

    def release(self, slot: Slot) -> Failure | None:
        """Take memory back. The worker's mapping goes first; a message that lay in the socket before is a Failure."""
        claim = self._ask(Release(slot=slot.number), [], CALL_SECONDS)
        self._slots.pop(slot.number).close()
        return self._plain(claim, "incorrect")

    def call(self, slot: Slot, case: Case, stream: Stream, seconds: float = math.inf) -> Answered | Failure:
        """One call on a slot with the inputs of a case."""
        if not self._new_to(slot):
            return self._call(slot, case, stream, seconds)
        with self.spent.on("compile"):
            return self._call(slot, case, stream, seconds)

    def _new_to(self, slot: Slot) -> bool:  # noqa: ARG002 - on a CPU every size is the same code
        """Whether the kernel may have to be compiled for this call: the first."""
        return not self._calls

    def _call(self, slot: Slot, case: Case, stream: Stream, seconds: float) -> Answered | Failure:
        if self.allowance.left <= 0:
            return Failure("timed_out", f"took more than {self.allowance.seconds:.0f} s in all its calls")
        self.sandbox.stop()
        self._calls += 1
        numbers = self._numbers(case)
        self._bell.set(slot.number, numbers)
        stray = self._queue(slot, numbers) or self._stray()
        if stray is not None:
            return stray
        slot.fill(case.inputs, stream)
        self._conceal(slot, stream)
        taken = self._timed(slot, self._calls, min(seconds, self.call_seconds, self.allowance.left))
        if isinstance(taken, Failure):
            return taken
        self.allowance.used += taken.envelope_ns / 1e9
        damage = slot.damage(case.inputs)
        if damage is not None:
            return Failure("incorrect", damage, alive=True)
        places = {name: lent.unwritten(taken.outputs[name]) for name, lent in slot.outputs.items()}
        left = [(name, place) for name, place in places.items() if place is not None]
        return replace(taken, unwritten=left[0]) if left else taken

    def _queue(self, slot: Slot, numbers: list[float | int]) -> Failure | None:
        """Nothing: on a CPU nothing can wait to be released but the process."""

    def _conceal(self, slot: Slot, stream: Stream) -> None:
        """Nothing: whoever is stopped reads nothing."""

    def _timed(self, slot: Slot, call: int, seconds: float) -> Answered | Failure:
        """Let the call happen; the worker is stopped before and after."""
        started = time.perf_counter_ns()
        self._bell.words[RING] = call
        self.sandbox.resume_without_wait()
        ended = self._wait(call, seconds)
        self.sandbox.collect()
        if not self._stopped():
            return Failure("timed_out", f"was still at work {STOP_TRIES} times after it was stopped")
        envelope = time.perf_counter_ns() - started
        return ended or Answered(envelope, self._claimed(), slot.snapshot())

    def _claimed(self) -> int:
        return min(self._bell.words[CLAIMED], MAX_CLAIM_NS)

    def _stopped(self) -> bool:
        """Stop after a call. Only the candidate runs in there: one that stays inside the kernel too long to be stopped
        is late, and no fault of the machine's."""
        for _ in range(STOP_TRIES):
            try:
                self.sandbox.stop()
            except NotStoppedError:
                continue
            return True
        return False

    def _signature(self, slot: Slot) -> list[str | int | None]:
        """What `run` gets on a slot: names of tensors, places of numbers, None for what is absent."""
        signature: list[str | int | None] = []
        numbers = 0
        for name, spec in self.contract.inputs.items():
            if isinstance(spec, ScalarInput):
                signature.append(numbers)
                numbers += 1
            else:
                signature.append(name if name in slot.inputs else None)
        return [*signature, *self.contract.outputs]

    def _numbers(self, case: Case) -> list[float | int]:
        held = (case.inputs[n] for n, spec in self.contract.inputs.items() if isinstance(spec, ScalarInput))
        return [value for value in held if isinstance(value, float | int)]

    def _wait(self, call: int, seconds: float) -> Failure | None:
        """Until the bell says that the call has ended; a Failure when it raised, or cannot end any more."""
        words = self._bell.words
        begun = pulse = time.monotonic()
        spin_until = begun if self.fork else begun + SPIN_SECONDS
        while words[DONE] != call:
            now = time.monotonic()
            if now < spin_until:
                continue
            time.sleep(_NAP_SECONDS)
            if now >= min(pulse + _POLL_SECONDS, begun + seconds):
                pulse = now
                stuck = self._stuck(begun + seconds, seconds)
                if stuck is not None:
                    return stuck
            if self._hung_up() and words[DONE] != call:
                return Failure("incorrect", self._ending())
        return self._failed() if words[FAILED] else None

    def _hung_up(self) -> bool:
        """Whether the other end of the wire is closed."""
        try:
            return not self.sandbox.wire.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _failed(self) -> Failure:
        """A call that did not succeed says why through the socket."""
        claim = self._answer(CLAIM_SECONDS)
        if isinstance(claim, Failure):
            return claim
        if isinstance(claim, Raised):
            return Failure("incorrect", f"raised {claim.text}", alive=True)
        return Failure("tampered", "answered something that was not asked")

    def _renew_bell(self) -> None:
        """A page of its own for each candidate."""
        self._bell.close()
        self._bell = Doorbell()
        self._calls = 0

    def run(self, case: Case, stream: Stream, seconds: float = math.inf) -> Answered | Failure:
        """One call at addresses never used before."""
        slot = self.bind(case.axes, frozenset(n for n, held in case.inputs.items() if held is None))
        if isinstance(slot, Failure):
            return slot
        answer = self.call(slot, case, stream, seconds)
        self.sandbox.resume()
        return answer if isinstance(answer, Failure) else self.release(slot) or answer

    def replay(self, slot: Slot, times: int) -> int | Failure:
        """The ns that one replay of the slot's last call takes, captured as a graph: what its process says."""
        claim = self._ask(Replay(slot=slot.number, times=times), [], CALL_SECONDS)
        if isinstance(claim, Replayed):
            return claim.ns
        failed = self._plain(claim, "incorrect")
        return failed or Failure("tampered", "answered something that was not asked")

    def leave(self) -> None:
        """End the current candidate of a forking worker; the next `load` meets a fresh child."""
        self.sandbox.resume()
        for slot in self._slots.values():
            slot.close()
        self._slots.clear()
        with contextlib.suppress(OSError):
            self.sandbox.wire.send(pack(Bye()))

    def stop(self) -> None:
        """Keep it from running until it is needed."""
        self.sandbox.stop()

    def close(self) -> None:
        """End it and everything it started."""
        self.sandbox.close()
        for slot in self._slots.values():
            slot.close()
        self._slots.clear()
        if not self._closed:
            self._bell.close()
            self._closed = True

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, packet: Packet, fds: Sequence[int], seconds: float) -> Claim | Failure:
        if self.sandbox.stopped:
            self.sandbox.resume()
        stray = self._stray()
        if stray is not None:
            return stray
        with contextlib.suppress(OSError):
            socket.send_fds(self.sandbox.wire, [pack(packet)], list(fds))
        return self._answer(seconds)

    def _plain(self, claim: Claim | Failure, kind: RefusalKind) -> Failure | None:
        match claim:
            case Failure():
                return claim if claim.kind != "incorrect" else Failure(kind, claim.text)
            case Raised():
                return Failure(kind, claim.text)
            case Done():
                return None
            case _:
                return Failure("tampered", "answered something that was not asked")

    def _stray(self) -> Failure | None:
        """A message in the socket before anything was asked."""
        self.sandbox.wire.setblocking(False)  # noqa: FBT003 - the socket module's own signature
        try:
            data = self.sandbox.wire.recv(1)
        except OSError:
            return None
        return Failure("tampered", "sent a message that nobody asked for") if data else None

    def _answer(self, seconds: float) -> Claim | Failure:
        """The next message, or why there is none."""
        wire, deadline = self.sandbox.wire, time.monotonic() + seconds
        while True:
            wire.settimeout(max(min(_POLL_SECONDS, deadline - time.monotonic()), 0.001))
            try:
                data, _, flags, _ = wire.recvmsg(MAX_PACKET)
            except TimeoutError:
                stuck = self._stuck(deadline, seconds)
                if stuck is not None:
                    return stuck
                continue
            except OSError:
                data, flags = b"", 0
            if not data:
                return Failure("incorrect", self._ending())
            if flags & socket.MSG_TRUNC:
                return Failure("tampered", "sent a message larger than any answer")
            try:
                return CLAIMS.validate_python(parse(data))
            except (ValueError, ValidationError):
                return Failure("tampered", "sent a message that is none of the protocol's")

    def _stuck(self, deadline: float, seconds: float) -> Failure | None:
        if self.sandbox.resident_bytes() > self.sandbox.limits.resident:
            return Failure("incorrect", f"used more than {self.sandbox.limits.resident >> 30} GiB of memory")
        ended = self.sandbox.ended()
        if ended is not None:
            return Failure("incorrect", ended)
        if time.monotonic() >= deadline:
            return Failure("timed_out", f"did not answer within {seconds:.0f} s")
        return None

    def _ending(self) -> str:
        """The socket is closed: how the process ended. It may take a moment to be reaped."""
        for _ in range(50):
            ended = self.sandbox.ended()
            if ended is not None:
                return ended
            time.sleep(0.01)
        return "the process closed its connection"


def _lasts(contract: Contract, name: str) -> bool:
    """Whether a tensor keeps its value while it is there, so that kernels may keep what they made of it."""
    spec = contract.inputs.get(name)
    return isinstance(spec, TensorInput) and spec.lifetime == "static"
