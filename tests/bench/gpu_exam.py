"""All that needs a GPU, in one run: `make gpu-exam`, or `python -m tests.bench.gpu_exam --help`.

Runs the tests marked `gpu` and the museum's files for one, times the clock, the draws, the KDA kernel and the exams of
all contracts, asks whether ten exams agree, and examines every kernel of kernels/ that is for a GPU, several times over
in `quick` by a verifier that stays. What CI cannot run is kept as evidence under FOLDER (by default reports/, where it
is committed): each kernel's evaluation with its report, `museum/sm_NN.json`, and `bench/sm_NN/` for the others, whose
figures are what they print. A part that fails does not stop the others; the exit status says how many did.
"""

import argparse
import ast
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree as ET

import pynvml

from bot import digest
from bot.errors import ProctorError
from bot.evaluation import Evaluation, Job, Mode, Preparation
from bot.launch import Resident, launch
from bot.report.comment import ReportFacts, render_comment
from bot.verdict import decide
from tests.museum import exhibits

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
CONTRACTS = ROOT / "contracts"
KERNELS = {
    "rmsnorm_triton": ("rmsnorm", "triton_row.py"),
    "rmsnorm_cute": ("rmsnorm", "cute_row.py"),
    "kda_triton": ("kda_prefill", "triton_two_phase.py"),
}
BENCHES = {
    "clock": ["gpu_clock"],
    "draws": ["draws_gpu"],
    "kda": ["kda_gpu"],
    "contracts": ["contract_times", "--exams"],
    "agreement": ["agreement", "rmsnorm", "kernels/rmsnorm/triton_row.py", "--device", "cuda"],
}
MUSEUM = [TESTS / "test_exploits.py", TESTS / "test_honest.py"]


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


def exams(place: Place, quick: int, pause: float, times: Path) -> int:
    """A kernel's exam of record, then how long the quick one takes; returns how many could not be held."""
    record = examined(place, "exam", launch)
    wanted = Preparation(contracts_dir=str(CONTRACTS), contract=place.contract, device="cuda")
    taken = []
    with Resident(wanted) as resident:
        resident.start()
        for _ in range(quick):
            time.sleep(pause)
            taken.append(examined(place, "quick", resident))
    whole = [seconds for seconds in taken if seconds is not None]
    median = statistics.median(whole) if whole else None
    if median is not None:
        print(f"{place.kernel} quick: median {median:.1f} s of {len(whole)}", flush=True)
    keep(times, {"exam_seconds": record, "quick_seconds": whole, "quick_median_seconds": median})
    return int(record is None) + len(taken) - len(whole)


def keep(file: Path, found: dict[str, object]) -> None:
    """Write figures down, with the judge that they are of."""
    file.parent.mkdir(parents=True, exist_ok=True)
    head = {"judge": digest.of_judge(), "ended_at": datetime.now(UTC).isoformat(timespec="seconds")}
    file.write_text(json.dumps({**head, **found}, indent=1) + "\n", encoding="utf-8")


def measured(arguments: list[str], file: Path) -> int:
    """Run a measurement and keep what it prints; returns whether it failed."""
    begun, lines = time.monotonic(), []
    command = [sys.executable, "-u", "-m", f"tests.bench.{arguments[0]}", *arguments[1:]]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        for line in program.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip("\n"))
    taken = round(time.monotonic() - begun, 1)
    keep(file, {"measurement": arguments, "seconds": taken, "status": program.returncode, "printed": lines})
    return int(program.returncode != 0)


def tested(files: list[Path], file: Path) -> int:
    """Run the tests for a GPU in these files and keep what came of each; returns whether one failed, or none ran."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", *reported(report), *map(str, files)]
        status = subprocess.run(command, cwd=ROOT, check=False).returncode
        rows = outcomes(report) if report.exists() else []
    keep(file, {"tests": rows})
    return int(status != 0 or not any(row["outcome"] == "passed" for row in rows))


def reported(report: Path) -> list[str]:
    """How pytest is told to write its report: the later format has no room for what a test records."""
    return [f"--junitxml={report}", "--override-ini=junit_family=xunit1"]


def outcomes(report: Path) -> list[dict[str, object]]:
    """Each test of a JUnit report; of a file of the museum also what was expected, what came, and what caught it."""
    expected = {
        (one.file.parent.name, one.file.stem): " or ".join(one.expected)
        for one in (*exhibits("exploits", "class"), *exhibits("honest", "hazard"))
    }
    rows: list[dict[str, object]] = []
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - pytest's own
        ended = next((tag for tag in ("failure", "error", "skipped") if case.find(tag) is not None), "passed")
        row: dict[str, object] = {"test": case.get("name"), "outcome": ended, "seconds": float(case.get("time", "nan"))}
        for told in case.iterfind("properties/property[@name='museum']"):
            folder, name, verdict, stage, _ = ast.literal_eval(told.get("value", ""))
            stem = str(case.get("name")).partition("[")[2].removesuffix("]")
            row |= {"file": f"tests/{folder}/{stem}.py", "stands_for": name, "expected": expected[folder, stem]}
            row |= {"got": verdict, "caught_by": stage}
        rows.append(row)
    return rows


def capability() -> str:
    """Of the first device.

    Raises:
        NVMLError: there is none.
    """
    pynvml.nvmlInit()
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(pynvml.nvmlDeviceGetHandleByIndex(0))
    return f"sm_{major}{minor}"


def main() -> int:
    """Run what was asked for."""
    parts = ["tests", "museum", *BENCHES, *KERNELS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=parts, default=parts)
    parser.add_argument("--out", type=Path, default=ROOT / "reports", metavar="FOLDER")
    parser.add_argument("--quick", type=int, default=10, help="quick exams of each kernel")
    parser.add_argument("--pause", type=float, default=20.0, help="seconds before each, for the verifier to get ready")
    options = parser.parse_args()
    try:
        device = capability()
    except pynvml.NVMLError as error:
        print(f"there is no GPU here: {error}")
        return len(options.only)
    bench, failed = options.out / "bench" / device, 0
    others = [file for file in sorted(TESTS.rglob("test_*.py")) if "mark.gpu" in file.read_text(encoding="utf-8")]
    for name in options.only:
        print(f"== {name}", flush=True)
        if name == "tests":
            failed += tested([file for file in others if file not in MUSEUM], bench / "tests.json")
        elif name == "museum":
            failed += tested(MUSEUM, options.out / "museum" / f"{device}.json")
        elif name in BENCHES:
            own = ["--out", str(bench / name)] if name == "contracts" else []
            failed += measured([*BENCHES[name], *own], bench / f"{name}.json")
        else:
            place = Place(options.out, *KERNELS[name])
            failed += exams(place, options.quick, options.pause, bench / f"{name}.json")
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    return failed


if __name__ == "__main__":
    sys.exit(main())
