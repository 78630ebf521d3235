"""How a GPU's exam grades itself, without one: `python -m tests.bench.gpu_grading [--only NAME ...] [--share 0.25]`.

Controls and faithful variants run on the CPU whatever an exam's device is, and are asked what is small enough for it.
This holds that stage alone, with a new salt; returns how many contracts have a survivor among the plain controls and
their gated variants, or an honest variant that is refused. A miss of a graded one is told.
"""

import argparse
import secrets
import sys
import time
from dataclasses import replace

import torch

from bot.verify.memory import keep_freed
from bot.verify.plan import for_ours, plan_checks, plan_turns
from bot.verify.stages.controls import grade
from bot.verify.variants import draw_variants
from tests.contracts.judging import CONTRACTS
from tests.verify.test_gpu_host import exam


def graded(name: str, share: float) -> bool:
    """Grade an exam of one contract, print what came of it; whether it is sound."""
    held = exam(name)
    held.salt = secrets.token_bytes(32)
    checks = plan_checks(held)
    kept = [i for i, c in enumerate(checks) if c.stage == "controls" or for_ours(held.contract, c.recipe.axes)]
    places = {index: place for place, index in enumerate(kept)}
    bases = [checks[i].base for i in kept]
    held.checks = [
        replace(checks[i], base=None if base is None else places[base]) for i, base in zip(kept, bases, strict=True)
    ]
    held.turns = plan_turns(held)
    held.variants = draw_variants(held.loaded, held.root.child("variants"), share)
    begun = time.monotonic()
    try:
        found = grade(held)
    finally:
        held.close()
    missed = [f"{v.file} ({v.variant})" for v in found.variants if not v.refused]
    print(
        f"{name}: {len(held.turns)} turns, {len(held.indices('controls'))} for controls alone; "
        f"{len(found.controls)} controls, {len(found.variants)} variants, {len(found.faithful)} honest, "
        f"{time.monotonic() - begun:.0f} s; survivors {found.survivors or 'none'}, "
        f"honest refused {found.refused_faithful or 'none'}, missed {missed or 'none'}",
        flush=True,
    )
    return not found.survivors and not found.refused_faithful


def main() -> int:
    """All contracts, one after the other."""
    names = sorted(path.parent.name for path in CONTRACTS.glob("*/contract.yaml"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=names, default=names)
    parser.add_argument("--share", type=float, default=0.25, help="of the gated and graded variants")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed()
    return sum(not graded(name, options.share) for name in options.only)


if __name__ == "__main__":
    sys.exit(main())
