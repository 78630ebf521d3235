"""What an exam will do, fixed before candidate code loads: which draws, which baselines, how many checks a stage."""

from bot.contract.schema import Baseline, Workload
from bot.evaluation import Mode, StageName
from bot.verify.cases import cell_recipe, hidden_recipes, probe_recipe
from bot.verify.exam import Check, Exam, Kernel

CORRECTNESS_DRAWS: dict[Mode, int] = {"quick": 1, "full": 1, "exam": 2, "claim": 0}


def plan_checks(exam: Exam) -> list[Check]:
    """Every draw of smoke, correctness and probes, by name. Nothing here depends on the candidate's behaviour."""
    mode, device, contract = exam.job.mode, exam.device, exam.contract
    if mode == "claim":
        return []
    anchor = contract.anchor(device)
    checks = [Check("smoke", cell_recipe(contract, anchor, next(iter(contract.regimes))), 0, "same")]
    for workload, regime in _cells(exam, anchor):
        recipe = cell_recipe(contract, workload, regime)
        checks += [
            Check("correctness", recipe, n, "other" if n % 2 else "same") for n in range(CORRECTNESS_DRAWS[mode])
        ]
    hidden = list(hidden_recipes(contract, device, exam.root.child("hidden")))
    if mode == "quick":
        hidden = list({recipe.name: recipe for recipe in hidden}.values())
    checks += [Check("correctness", recipe, number, "same") for number, recipe in enumerate(hidden)]
    probes = (probe for probe in contract.probes if device in probe.device)
    checks += [Check("probes", probe_recipe(contract, probe), 0, "same") for probe in probes]
    return checks


def _cells(exam: Exam, anchor: Workload) -> list[tuple[Workload, str]]:
    """All cells; in quick mode the anchor in every regime smoke leaves, and the others in one secret regime each."""
    cells = [(w, r) for w in exam.contract.workloads if exam.device in w.device for r in exam.contract.regimes]
    if exam.job.mode != "quick":
        return cells
    regimes = list(exam.contract.regimes)
    start = int(exam.root.child("quick").below(len(regimes))[0])
    turn = {w.name: regimes[(start + i) % len(regimes)] for i, w in enumerate(exam.contract.workloads)}
    asked = [(w, r) for w, r in cells if w.name == anchor.name or turn[w.name] == r]
    return [(w, r) for w, r in asked if (w.name, r) != (anchor.name, regimes[0])]


def baseline_kernels(exam: Exam) -> list[tuple[Kernel, Baseline | None]]:
    """The contract's baselines on this device, and the incumbent the job names."""
    found: list[tuple[Kernel, Baseline | None]] = [
        (Kernel(b.name, exam.loaded.read(b.file), b.role), b)
        for b in exam.contract.baselines
        if exam.device in b.device
    ]
    if exam.job.incumbent is not None:
        held = exam.job.incumbent
        found.insert(0, (Kernel(held.name, held.source, held.role), None))
    return found


PAIRS: dict[Mode, int] = {"quick": 0, "full": 5, "exam": 7, "claim": 2}
"""Pairs of calls per cell and round."""
ROUNDS: dict[Mode, int] = {"quick": 0, "full": 2, "exam": 2, "claim": 1}
"""Pairs of fresh workers; the one started first is up to 5 % slower (design.md), so the order alternates. A claim is
shown and counts for nothing: one pair will do."""


def plan_stages(exam: Exam) -> dict[StageName, int]:
    """How many checks each stage has in this mode."""
    mode = exam.job.mode
    stages: tuple[StageName, ...] = ("smoke", "correctness", "probes")
    drawn: dict[StageName, int] = {stage: sum(check.stage == stage for check in exam.checks) for stage in stages}
    measured = mode != "quick" and bool(exam.baselines_planned)
    contract = exam.contract
    return {
        "build": int(mode != "claim"),
        **drawn,
        "timing": len(exam.scored()) * ROUNDS[mode] if measured else 0,
        "controls": len(contract.controls) + len(contract.faithful) + len(exam.variants) if mode == "exam" else 0,
    }
