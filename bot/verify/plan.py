"""What an exam will do, fixed before candidate code loads: which draws, which baselines, how many checks a stage."""

import math
from collections.abc import Iterator

from bot.contract.schema import Baseline, Contract, Sizes, TensorInput, Workload
from bot.evaluation import Mode, StageName
from bot.verify.cases import HOST_ELEMENTS, cell_recipe, hidden_recipes, probe_recipe
from bot.verify.exam import Check, Exam, Kernel, Turn
from bot.verify.sitting import exam_relations

CORRECTNESS_DRAWS: dict[Mode, int] = {"quick": 1, "full": 1, "exam": 2, "confirm": 1, "claim": 0}
INFLUENCE_CHECKS: dict[Mode, int] = {"quick": 0, "full": 2, "exam": 6, "confirm": 2, "claim": 0}
"""For each scored workload: draws of which parts are changed. With six, a part of an input is changed in one of them in
a slice with 1 − (1 − 1/12)^6 = 0.4, and there are several slices and workloads."""
SECOND_ASKINGS: dict[Mode, float] = {"quick": 0.0, "full": 0.5, "exam": 1.0, "confirm": 0.5, "claim": 0.0}
"""Share of the probes, and half as much of the other questions, that are asked twice: what a kernel makes of a question
it has seen shows only then."""
OURS = 2
"""So many times the elements of a contract's largest cell for a CPU, at most."""
RELATIONS: frozenset[Mode] = frozenset({"full", "exam", "confirm"})


def plan_checks(exam: Exam) -> list[Check]:
    """Every draw of smoke, correctness, probes and influence, by name. Nothing here depends on the candidate's
    behaviour."""
    mode, device, contract = exam.job.mode, exam.device, exam.contract
    if mode == "claim":
        return []
    anchor = contract.anchor(device)
    checks = [Check("smoke", cell_recipe(contract, anchor, next(iter(contract.regimes))), 0)]
    for workload, regime in _cells(exam, anchor):
        recipe = cell_recipe(contract, workload, regime)
        checks += [Check("correctness", recipe, n, "other" if n % 2 else "same") for n in range(_draws(exam))]
    hidden = list(hidden_recipes(contract, device, exam.root.child("hidden")))
    if mode == "quick":
        hidden = list({recipe.name: recipe for recipe in hidden}.values())
    checks += [Check("correctness", recipe, number) for number, recipe in enumerate(hidden)]
    probes = (probe for probe in contract.probes if device in probe.device)
    checks += [Check("probes", probe_recipe(contract, probe), 0) for probe in probes]
    checks += _influence(exam, checks)
    return [*checks, *_for_controls(exam, checks)]


def _for_controls(exam: Exam, checks: list[Check]) -> Iterator[Check]:
    """On a GPU, what only the kernels of ours are asked, which run on the CPU: its cells, hidden draws and probes that
    the GPU's exam has not. Of some contracts nothing that a GPU is asked is small enough for them."""
    if exam.device == "cpu" or exam.job.mode != "exam":
        return
    contract, regimes = exam.contract, exam.contract.regimes
    here = [w.axes for w in contract.workloads if exam.device in w.device and for_ours(contract, w.axes)]
    for workload in (w for w in contract.workloads if "cpu" in w.device and w.axes not in here):
        yield from (Check("controls", cell_recipe(contract, workload, regime), 0) for regime in regimes)
    known = {check.recipe.name for check in checks if for_ours(contract, check.recipe.axes)}
    hidden = hidden_recipes(contract, "cpu", exam.root.child("hidden", "controls"))
    yield from (Check("controls", r, number) for number, r in enumerate(hidden) if r.name not in known)
    probes = (probe for probe in contract.probes if "cpu" in probe.device and probe.name not in known)
    yield from (Check("controls", probe_recipe(contract, probe), 0) for probe in probes)


def for_host(contract: Contract, axes: Sizes) -> bool:
    """Whether a GPU's exam draws and compares everything of these sizes on the host."""
    return _largest(contract, axes) < HOST_ELEMENTS


def for_ours(contract: Contract, axes: Sizes) -> bool:
    """Whether kernels of ours, which run on the CPU and are dozens, answer questions of these sizes in time: those that
    are not much larger than the contract's own for a CPU. Of gdn_prefill's 1800 tokens a loop takes a second, and an
    exam of it on a GPU would ask each control 150 times."""
    own = max((_largest(contract, w.axes) for w in contract.workloads if "cpu" in w.device), default=HOST_ELEMENTS)
    return _largest(contract, axes) < min(OURS * own, HOST_ELEMENTS)


def _largest(contract: Contract, axes: Sizes) -> int:
    tensors = [spec for spec in contract.inputs.values() if isinstance(spec, TensorInput)]
    return max(math.prod(contract.shape(spec, axes)) for spec in tensors)


def _draws(exam: Exam) -> int:
    """Draws of a cell. On a GPU one: its float64 takes a second, and timed calls are compared with float64 too."""
    drawn = CORRECTNESS_DRAWS[exam.job.mode]
    return drawn if exam.device == "cpu" else min(drawn, 1)


def _cell_of(exam: Exam, index: int, workload: str) -> bool:
    recipe = exam.checks[index].recipe
    return recipe.kind == "cell" and recipe.name.startswith(f"{workload}/")


def _mapped(exam: Exam, workload: Workload) -> bool:
    """Whether its inputs are changed part by part: the scored ones; of a GPU's those that are small enough to be
    compared on the host, whatever they count for."""
    contract = exam.contract
    if exam.device not in workload.device or exam.device == "cpu":
        return workload.scored and exam.device in workload.device
    return for_host(contract, workload.axes)


def _influence(exam: Exam, checks: list[Check]) -> Iterator[Check]:
    """Of each scored workload a few draws with parts changed, its regimes taking turns from a secret start."""
    for workload in exam.workloads:
        if not _mapped(exam, workload):
            continue
        cells = {f"{workload.name}/{regime}" for regime in exam.contract.regimes}
        bases = [i for i, c in enumerate(checks) if c.stage == "correctness" and c.recipe.name in cells]
        start = int(exam.root.child("influence", workload.name).below(len(bases))[0]) if bases else 0
        for number in range(INFLUENCE_CHECKS[exam.job.mode] if bases else 0):
            base = bases[(start + number) % len(bases)]
            yield Check("influence", checks[base].recipe, number, base=base)


def plan_turns(exam: Exam) -> list[Turn]:
    """The order of the calls of correctness, probes and influence, some twice: one order, drawn."""
    stream, share = exam.root.child("turns"), SECOND_ASKINGS[exam.job.mode]
    asked = exam.indices("correctness", "probes", "influence")
    probes, others = exam.indices("probes"), exam.indices("correctness", "influence")
    twice = [probes[i] for i in stream.child("probes").shuffled(len(probes))[: round(share * len(probes))]]
    twice += [others[i] for i in stream.child("others").shuffled(len(others))[: round(share / 2 * len(others))]]
    pool, met = [*asked, *twice], set[int]()
    turns = []
    order = stream.child("order").shuffled(len(pool))
    # Smoke asked at the anchor's sizes: at once another draw of them, or a kernel that keeps its last answer by its
    # shape might never be asked the same shape twice running.
    anchor = exam.contract.anchor(exam.device).name
    first = next((place for place in order if _cell_of(exam, pool[place], anchor)), None)
    for place in sorted(order, key=lambda place: place != first):
        turns.append(Turn(pool[place], again=pool[place] in met))
        met.add(pool[place])
    return turns


def _cells(exam: Exam, anchor: Workload) -> list[tuple[Workload, str]]:
    """All cells; in quick mode the anchor in every regime smoke leaves, and the others in one secret regime each."""
    cells = [(w, r) for w in exam.workloads for r in exam.contract.regimes]
    if exam.job.mode != "quick":
        return cells
    regimes = list(exam.contract.regimes)
    start = int(exam.root.child("quick").below(len(regimes))[0])
    turn = {w.name: regimes[(start + i) % len(regimes)] for i, w in enumerate(exam.contract.workloads)}
    asked = [(w, r) for w, r in cells if w.name == anchor.name or turn[w.name] == r]
    return [(w, r) for w, r in asked if (w.name, r) != (anchor.name, regimes[0])]


def baseline_kernels(exam: Exam) -> list[tuple[Kernel, Baseline | None]]:
    """The contract's baselines on this device, and the incumbent that the job names for it."""
    found: list[tuple[Kernel, Baseline | None]] = [
        (Kernel(b.name, exam.loaded.read(b.file), b.role), b)
        for b in exam.contract.baselines
        if exam.device in b.device
    ]
    held = exam.job.incumbents.get(exam.gpu.capability if exam.gpu else "cpu")
    if held is not None:
        found.insert(0, (Kernel(held.name, held.source, held.role), None))
    return found


PAIRS: dict[Mode, int] = {"quick": 0, "full": 5, "exam": 7, "confirm": 7, "claim": 2}
"""Pairs of calls per cell and round."""
ROUNDS: dict[Mode, int] = {"quick": 0, "full": 2, "exam": 2, "confirm": 1, "claim": 1}
"""Pairs of fresh workers; the one started first is up to 5 % slower (design.md), so the order alternates. A claim is
shown and counts for nothing: one pair will do. A confirmation adds a third to the two of its exam: their times are
pooled, and the A/A floor is the exam's."""


def rounds_of(exam: Exam) -> int:
    """Pairs of fresh workers a cell: as many as were asked for, where the mode has several."""
    usual = ROUNDS[exam.job.mode]
    return exam.job.rounds or usual if usual > 1 else usual


def plan_stages(exam: Exam) -> dict[StageName, int]:
    """How many checks each stage has in this mode."""
    mode = exam.job.mode
    stages: tuple[StageName, ...] = ("smoke", "correctness", "probes", "influence")
    drawn: dict[StageName, int] = {stage: sum(check.stage == stage for check in exam.checks) for stage in stages}
    measured = mode != "quick" and bool(exam.baselines_planned)
    contract = exam.contract
    return {
        "build": int(mode != "claim"),
        **drawn,
        "relations": len(exam_relations(exam)) if mode in RELATIONS else 0,
        "integrity": sum(turn.again for turn in exam.turns),
        "timing": len(exam.scored()) * rounds_of(exam) if measured else 0,
        "controls": len(contract.controls) + len(contract.faithful) + len(exam.variants) if mode == "exam" else 0,
    }
