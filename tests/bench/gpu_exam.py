"""All that needs a GPU, in one run: `make gpu-exam`, `python -m tests.bench.gpu_exam [--only NAME …] [--out FOLDER]`.

Times the clock and the draws, examines every kernel of kernels/ that is for a GPU, ten times over in `quick`, and
writes each evaluation with its report to FOLDER (by default reports/, where they are committed): what CI cannot run is
kept as evidence. A part that fails does not stop the others; the exit status says how many did.
"""

import argparse
import contextlib
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from bot.errors import ProctorError
from bot.evaluation import Evaluation, Job, Mode
from bot.launch import launch
from bot.report.comment import ReportFacts, render_comment
from bot.verdict import decide

ROOT = Path(__file__).parents[2]
KERNELS = {
    "rmsnorm_triton": ("rmsnorm", "triton_row.py"),
    "rmsnorm_cute": ("rmsnorm", "cute_row.py"),
    "kda_triton": ("kda_prefill", "triton_two_phase.py"),
}
BENCHES = {"clock": "tests.bench.gpu_clock", "draws": "tests.bench.draws_gpu"}
QUICK = 10


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


def examined(contract: str, kernel: str, mode: Mode) -> Evaluation:
    """One exam on the GPU, in a verifier of its own."""
    source = (ROOT / "kernels" / contract / kernel).read_text(encoding="utf-8")
    job = Job(
        contracts_dir=str(ROOT / "contracts"),
        contract=contract,
        candidate_name=kernel,
        source=source,
        mode=mode,
        device="cuda",
    )
    return launch(job)


def exams(place: Place) -> int:
    """A kernel's exam of record, then how long the quick one takes; returns how many parts failed."""
    failed = 0
    for mode, times in (("exam", 1), ("quick", QUICK)):
        taken: list[float] = []
        for _ in range(times):
            begun = time.monotonic()
            try:
                evaluation = examined(place.contract, place.kernel, mode)  # type: ignore[arg-type]
            except ProctorError as error:
                print(f"{place.kernel} {mode}: {error}")
                failed += 1
                break
            taken.append(time.monotonic() - begun)
            place.write(evaluation)
            verdict = decide([evaluation])
            print(f"{place.kernel} {mode}: {verdict.kind}, {taken[-1]:.1f} s, {verdict.speedup}", flush=True)
        if len(taken) > 1:
            print(f"{place.kernel} {mode}: median {statistics.median(taken):.1f} s of {len(taken)}")
    return failed


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=[*BENCHES, *KERNELS], default=[*BENCHES, *KERNELS])
    parser.add_argument("--out", type=Path, default=ROOT / "reports")
    options = parser.parse_args()
    failed = 0
    for name in options.only:
        print(f"== {name}", flush=True)
        if name in BENCHES:
            failed += subprocess.run([sys.executable, "-m", BENCHES[name]], cwd=ROOT, check=False).returncode != 0
        else:
            failed += exams(Place(options.out, *KERNELS[name]))
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    return failed


if __name__ == "__main__":
    sys.exit(main())
