"""What our clock costs a call on a GPU, piece by piece: `python -m tests.bench.gpu_clock`.

Every figure is in µs, of calls of a kernel that does nothing, of two that work, and of one that waits for the device in
its midst, on small and on large buffers: what an envelope takes, and what its parts do. The parts are timed by
themselves, so they need not add up.
"""

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from bot.contract.load import load_contract
from bot.verify import cpus
from bot.verify.buffers import Slot
from bot.verify.calls import Answered
from bot.verify.cases import cell_recipe, make_case
from bot.verify.device import cuda
from bot.verify.philox import Stream
from bot.verify.start import drawer_for, start_worker

ROOT = Path(__file__).parents[2]
KERNELS = {
    "nothing": "def run(hidden_states, weight, output):\n    return None\n",
    "copy": "def run(hidden_states, weight, output):\n    output.copy_(hidden_states)\n",
    "triton": (ROOT / "kernels" / "rmsnorm" / "triton_row.py").read_text(encoding="utf-8"),
    "waits": (
        "def run(hidden_states, weight, output):\n    output.copy_(hidden_states)\n    float(output[0, 0])\n"
        "    output.copy_(hidden_states)\n"
    ),
}
CALLS = 60


def us(times: list[int]) -> str:
    """Least, median and 95th percentile."""
    ranked = sorted(times)
    return f"{ranked[0] / 1e3:7.1f} {statistics.median(ranked) / 1e3:7.1f} {ranked[int(0.95 * len(ranked))] / 1e3:7.1f}"


def timed(work: Callable[[], object], calls: int = CALLS) -> list[int]:
    """How long it takes, again and again."""
    taken = []
    for _ in range(calls):
        start = time.perf_counter_ns()
        work()
        taken.append(time.perf_counter_ns() - start)
    return taken


def main() -> None:
    """Print the tables."""
    torch.set_num_threads(1)
    os.sched_setaffinity(0, cpus.first())
    loaded = load_contract(ROOT / "contracts", "rmsnorm")
    drawer, stream = drawer_for("cuda"), Stream.from_salt(b"clock")
    print("worker, workload, kernel: envelope | claimed (least, median, 95th), µs")
    for name, source in KERNELS.items():
        begun = time.monotonic()
        with start_worker(loaded.contract, "cuda", "bubblewrap") as worker:
            worker.ready()
            print(f"ready after {time.monotonic() - begun:.2f} s; guards {sorted(worker.sandbox.guards)}")
            assert worker.load(source) is None
            for workload in loaded.contract.workloads:
                if workload.name not in {"b1_h4096", "b170_h4096", "b8192_h7168"}:
                    continue
                recipe = cell_recipe(loaded.contract, workload, "gaussian")
                case = make_case(loaded.contract, recipe, stream, static=stream, drawer=drawer)
                slot = worker.bind(recipe.axes, recipe.absent)
                assert isinstance(slot, Slot)
                answers, whole = [], []
                for number in range(CALLS):
                    start = time.perf_counter_ns()
                    answer = worker.call(slot, case, stream.child(number))
                    whole.append(time.perf_counter_ns() - start)
                    if not isinstance(answer, Answered):
                        print(answer)
                        break
                    answers.append(answer)
                print(
                    f"{name:8} {workload.name:12} {us([a.envelope_ns for a in answers[5:]])} | "
                    f"{us([a.claimed_ns for a in answers[5:]])} | call as a whole {us(whole[5:])}"
                )
                rung = sum(a.host_bound for a in answers)
                print(f"  {'flush':12} {us([a.flush_ns for a in answers[5:]])} | {rung} needed the host")
                worker.release(slot)
    curtain = cuda.curtain()
    lents = {name: cuda.CudaLent(name, (4096, 4096), "bfloat16") for name in ("a", "b", "c", "d")}
    outs = {"o": cuda.CudaLent("o", (4096, 4096), "bfloat16")}
    curtain.hide(lents, outs, stream)
    print("pieces, with nobody else on the device; four inputs, one output:")
    print(f"  reveal       {us(timed(curtain.reveal))}")
    print(f"  glimpse      {us(timed(curtain.glimpse))}")
    print(f"  flush        {us(timed(curtain.flush))}")


if __name__ == "__main__":
    main()
