"""What the verifier's clock resolves: `python -m tests.bench.clock`. A benchmark, not a test: machines are noisy.

A kernel that spins for 10 µs, 100 µs, 1 ms or 10 ms is timed call by call in a real worker, as an exam would: its
envelope less what it spun for is the clock's own cost. Two workers of the same kernel, interleaved, tell how far apart
two equal kernels look. Everything is from one run, so that ratios hold whatever the machine does meanwhile.
"""

import os
import statistics
import sys
from pathlib import Path

from bot.contract.load import load_contract
from bot.verify import cpus
from bot.verify.buffers import Slot
from bot.verify.calls import Answered, Worker
from bot.verify.cases import Case, cell_recipe, make_case
from bot.verify.philox import Stream

CONTRACTS = Path(__file__).parents[1] / "data" / "contracts"
CALLS = 200
WARM_UPS = 20
SPINS_US = (0, 10, 100, 1_000, 10_000)
KERNEL = """
import time


def run(*arguments):
    end = time.perf_counter_ns() + {ns}
    while time.perf_counter_ns() < end:
        pass
"""


def main() -> None:
    """Print one line a duration."""
    loaded = load_contract(CONTRACTS, "center")
    contract = loaded.contract
    ours, theirs = cpus.split()
    os.sched_setaffinity(0, ours)
    stream = Stream.from_salt(os.urandom(32), "clock")
    recipe = cell_recipe(contract, contract.anchor("cpu"), next(iter(contract.regimes)))
    case = make_case(contract, recipe, stream, static=stream)
    sys.stdout.write(f"{len(theirs)} CPU for workers, {CALLS} calls each, µs\n")
    sys.stdout.write("  spins for   p5 over   median over   p95 over   one worker ÷ its twin\n")
    for spin in SPINS_US:
        one, other = (Worker(contract, "bubblewrap", theirs, start_cpus=ours) for _ in range(2))
        with one, other:
            times = _interleaved((one, other), KERNEL.format(ns=spin * 1000), case, stream)
        over = sorted(ns / 1000 - spin for ns in times[0])
        apart = statistics.median(times[0]) / statistics.median(times[1])
        low, middle, high = (over[int(share * (len(over) - 1))] for share in (0.05, 0.5, 0.95))
        sys.stdout.write(f"{spin:>9} µs {low:>9.0f} {middle:>13.0f} {high:>10.0f} {apart:>23.3f}\n")


def _interleaved(
    workers: tuple[Worker, Worker], source: str, case: Case, stream: Stream
) -> tuple[list[int], list[int]]:
    """Times of both, call by call, the idle one stopped."""
    slots: list[Slot] = []
    for worker in workers:
        failed = worker.load(source)
        slot = worker.bind(case.axes, frozenset())
        assert failed is None
        assert isinstance(slot, Slot), slot
        slots.append(slot)
        worker.stop()
    times: tuple[list[int], list[int]] = ([], [])
    for call in range(WARM_UPS + CALLS):
        order = (0, 1) if call % 4 in {0, 3} else (1, 0)
        for side in order:
            answer = workers[side].call(slots[side], case, stream.child(call, side))
            assert isinstance(answer, Answered), answer
            if call >= WARM_UPS:
                times[side].append(answer.envelope_ns)
    return times


if __name__ == "__main__":
    main()
