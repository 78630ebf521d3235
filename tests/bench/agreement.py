"""Whether exams of one kernel agree: `python -m tests.bench.agreement CONTRACT FILE [--exams 10] [--device cpu]`.

Each is a `full` exam by a verifier of its own: new salt, new workers. Prints each speed-up with its interval, within
what it repeats, and the A/A floor; then how many are no further from the median of all than they repeat, of how many
ordered pairs the second is that near to the first (19 of 20 are promised), and how many are within their A/A floor.
"""

import argparse
import itertools
import math
import statistics
import sys
from pathlib import Path

from bot.contract.schema import Device
from bot.evaluation import Job
from bot.launch import launch
from bot.report import figures
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
    """Print the table; 1 when an exam gave no figure, or is further off than it repeats."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("contract")
    parser.add_argument("file", type=Path)
    parser.add_argument("--exams", type=int, default=10)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options = parser.parse_args()
    found: list[tuple[float, float, float]] = []
    for number in range(options.exams):
        verdict = examined(options.contract, options.file, options.device)
        ratio, floor, repeats = verdict.speedup, verdict.noise_floor, verdict.repeats
        if ratio is None or floor is None or repeats is None:
            print(f"{number + 1:3}  {verdict.kind}: {'; '.join(verdict.reasons)}", flush=True)
            continue
        print(
            f"{number + 1:3}  {verdict.kind:10}  {ratio.mid:.3f} ({ratio.low:.3f} to {ratio.high:.3f})  "
            f"repeats within {figures.within(repeats)}  A/A {figures.percent(floor)}",
            flush=True,
        )
        found.append((ratio.mid, repeats, floor))
    if not found:
        return 1
    middle = statistics.median(ratio for ratio, _, _ in found)
    near = sum(_apart(ratio, middle) <= repeats for ratio, repeats, _ in found)
    floored = sum(_apart(ratio, middle) <= floor for ratio, _, floor in found)
    pairs = [_apart(other, ratio) <= repeats for (ratio, repeats, _), (other, *_) in itertools.permutations(found, 2)]
    print(f"median {middle:.3f}, furthest {max(_apart(ratio, middle) for ratio, _, _ in found):.1%}")
    print(
        f"{near} of {options.exams} no further from it than they repeat, {sum(pairs)} of {len(pairs)} from each other"
    )
    print(f"{floored} of {options.exams} within their A/A floor")
    return int(near < options.exams)


def _apart(one: float, other: float) -> float:
    """How far apart two ratios are, as a fraction, whichever is the larger."""
    return math.expm1(abs(math.log(one / other)))


if __name__ == "__main__":
    sys.exit(main())
