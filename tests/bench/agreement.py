"""Whether exams of one kernel agree: `python -m tests.bench.agreement CONTRACT FILE [--exams 10] [--device cpu]`.

Each is a `full` exam by a verifier of its own: new salt, new workers. Prints each speed-up with its interval and the
A/A floor it was printed with, and how far each is from the median of all, in floors.
"""

import argparse
import statistics
import sys
from pathlib import Path

from bot.contract.schema import Device
from bot.evaluation import Job
from bot.launch import launch
from bot.verdict import Verdict, decide

ROOT = Path(__file__).parents[2]


def examined(contract: str, file: Path, device: Device) -> Verdict:
    """One exam."""
    source = file.read_text(encoding="utf-8")
    job = Job(
        contracts_dir=str(ROOT / "contracts"),
        contract=contract,
        candidate_name=file.name,
        source=source,
        mode="full",
        device=device,
    )
    return decide([launch(job)])


def main() -> int:
    """Print the table; 1 when an exam gave no figure or is further off than its floor."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("contract")
    parser.add_argument("file", type=Path)
    parser.add_argument("--exams", type=int, default=10)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options = parser.parse_args()
    found: list[tuple[float, float]] = []
    for number in range(options.exams):
        verdict = examined(options.contract, options.file, options.device)
        if verdict.speedup is None or verdict.noise_floor is None:
            print(f"{number + 1:3}  {verdict.kind}: {'; '.join(verdict.reasons)}", flush=True)
            continue
        ratio = verdict.speedup
        print(
            f"{number + 1:3}  {verdict.kind:10}  {ratio.mid:.3f} ({ratio.low:.3f} to {ratio.high:.3f})  "
            f"A/A {verdict.noise_floor:.1%}",
            flush=True,
        )
        found.append((ratio.mid, verdict.noise_floor))
    if not found:
        return 1
    middle = statistics.median(ratio for ratio, _ in found)
    off = [(abs(ratio / middle - 1), floor) for ratio, floor in found]
    within = sum(distance <= floor for distance, floor in off)
    print(f"median {middle:.3f}; {within} of {options.exams} within their own floor, furthest {max(off)[0]:.1%}")
    return int(within < options.exams)


if __name__ == "__main__":
    sys.exit(main())
