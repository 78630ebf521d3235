"""All that needs a GPU, in one run: `make gpu-exam`, or `python -m tests.bench.gpu_exam --help`.

Times the clock and the draws, examines every kernel of kernels/ that is for a GPU, several times over in `quick` by a
verifier that stays, and writes each evaluation with its report to FOLDER (by default reports/, where they are
committed): what CI cannot run is kept as evidence. A part that fails does not stop the others; the exit status says how
many did.
"""

import argparse
import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bot.errors import ProctorError
from bot.evaluation import Evaluation, Job, Mode, Preparation
from bot.launch import Resident, launch
from bot.report.comment import ReportFacts, render_comment
from bot.verdict import decide

ROOT = Path(__file__).parents[2]
CONTRACTS = ROOT / "contracts"
KERNELS = {
    "rmsnorm_triton": ("rmsnorm", "triton_row.py"),
    "rmsnorm_cute": ("rmsnorm", "cute_row.py"),
    "kda_triton": ("kda_prefill", "triton_two_phase.py"),
}
BENCHES = {"clock": "tests.bench.gpu_clock", "draws": "tests.bench.draws_gpu"}


@dataclass(frozen=True, slots=True)
class Place:
    """Where the evaluations of one kernel go."""

    out: Path
    contract: str
    kernel: str

    def write(self, evaluation: Evaluation) -> None:
        """The facts, and how they read."""
        gpu = evaluation.environment.gpu
        folder = self.out / self.contract / (gpu.capability if gpu else "cpu")
        folder.mkdir(parents=True, exist_ok=True)
        stem = f"{self.kernel.removesuffix('.py')}-{evaluation.mode}"
        (folder / f"{stem}.json").write_text(evaluation.model_dump_json(indent=1) + "\n", encoding="utf-8")
        facts = ReportFacts(evaluations=[evaluation], verdict=decide([evaluation]))
        (folder / f"{stem}.md").write_text(render_comment(facts) + "\n", encoding="utf-8")


def job_for(place: Place, mode: Mode) -> Job:
    """An exam of this kernel on the GPU."""
    source = (ROOT / "kernels" / place.contract / place.kernel).read_text(encoding="utf-8")
    return Job(
        contracts_dir=str(CONTRACTS),
        contract=place.contract,
        candidate_name=place.kernel,
        source=source,
        mode=mode,
        device="cuda",
    )


def examined(place: Place, mode: Mode, verifier: Callable[[Job], Evaluation]) -> float | None:
    """One exam, written down; returns the seconds it took, or nothing when it could not be held."""
    begun = time.monotonic()
    try:
        evaluation = verifier(job_for(place, mode))
    except ProctorError as error:
        print(f"{place.kernel} {mode}: {error}", flush=True)
        return None
    taken = time.monotonic() - begun
    place.write(evaluation)
    verdict = decide([evaluation])
    print(f"{place.kernel} {mode}: {verdict.kind}, {taken:.1f} s, {verdict.speedup}", flush=True)
    return taken


def exams(place: Place, quick: int, pause: float) -> int:
    """A kernel's exam of record, then how long the quick one takes; returns how many could not be held."""
    failed = int(examined(place, "exam", launch) is None)
    wanted = Preparation(contracts_dir=str(CONTRACTS), contract=place.contract, device="cuda")
    taken = []
    with Resident(wanted) as resident:
        resident.start()
        for _ in range(quick):
            time.sleep(pause)
            taken.append(examined(place, "quick", resident))
    whole = [seconds for seconds in taken if seconds is not None]
    if whole:
        print(f"{place.kernel} quick: median {statistics.median(whole):.1f} s of {len(whole)}", flush=True)
    return failed + len(taken) - len(whole)


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=[*BENCHES, *KERNELS], default=[*BENCHES, *KERNELS])
    parser.add_argument("--out", type=Path, default=ROOT / "reports")
    parser.add_argument("--quick", type=int, default=10, help="quick exams of each kernel")
    parser.add_argument("--pause", type=float, default=20.0, help="seconds before each, for the verifier to get ready")
    options = parser.parse_args()
    failed = 0
    for name in options.only:
        print(f"== {name}", flush=True)
        if name in BENCHES:
            failed += subprocess.run([sys.executable, "-m", BENCHES[name]], cwd=ROOT, check=False).returncode != 0
        else:
            failed += exams(Place(options.out, *KERNELS[name]), options.quick, options.pause)
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    return failed


if __name__ == "__main__":
    sys.exit(main())
