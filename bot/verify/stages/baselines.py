"""Before candidate code loads: every baseline runs clean in a worker of its own, is checked, and the bar is fixed.

The bar is, of the baselines that are available and right on all scored cells, the one with the least geometric-mean
time. A named incumbent or official kernel that is inaccurate stays, marked less accurate: it must be beaten too.
"""

import importlib.metadata
import importlib.util
import math
import statistics
from collections.abc import Iterator

from packaging.version import Version

from bot.contract.schema import Requires
from bot.errors import InfrastructureError
from bot.evaluation import BaselineState, BaselineTime
from bot.verify.calls import Answered, Failure, Worker
from bot.verify.cases import Recipe, cell_recipe
from bot.verify.exam import Exam, Kernel

NULL_CALLS = 24
"""Of a kernel that does nothing, on the anchor: their least time is what the clock itself costs a call."""
NULL = "def run(*arguments):\n    return None\n"
CLEAN_CALLS = 5
"""Calls per cell of a clean run, after two that warm up."""
WARM_UPS = 2
GLANCE = 2
"""Calls that tell whether a baseline could be the bar, after those that warm up."""
HOPELESS = 4.0
"""A baseline so many times slower than the bar so far, in the first scored cell, is neither checked nor timed further.
A plain loop takes 0.4 s a call on a GPU, and would be asked 140 times."""


def screen_baselines(exam: Exam) -> None:
    """Check and time each baseline; set `exam.bar`, `exam.baselines` and `exam.clean`."""
    if exam.job.mode == "claim" and len(exam.baselines_planned) == 1:
        # Nothing to choose from, and a claim decides nothing: the bar is timed beside the candidate alone.
        exam.bar = exam.baselines_planned[0][0]
        _note(exam, exam.bar, "available")
        return
    present = []
    for kernel, missing in planned_baselines(exam):
        if missing:
            _note(exam, kernel, "unavailable", note=missing)
        else:
            present.append(kernel)
    best = math.inf
    for kernel, worker in _workers(exam, present):
        times = _screened(exam, kernel, worker)
        for name, row in times.items():
            exam.clean.setdefault(name, []).append(row)
        if times:
            mean = statistics.geometric_mean([statistics.median(row.clean_ns) for row in times.values()])
            if mean < best:
                best, exam.bar = mean, kernel


def planned_baselines(exam: Exam) -> list[tuple[Kernel, str]]:
    """Every baseline and what it needs that this machine has not. A plain reference is the bar where nothing better is
    there, so it comes last."""
    ordered = sorted(exam.baselines_planned, key=lambda planned: planned[0].role == "reference")
    return [(kernel, missing_here(exam, declared.requires if declared else None)) for kernel, declared in ordered]


def _workers(exam: Exam, kernels: list[Kernel]) -> Iterator[tuple[Kernel, Worker]]:
    """A worker for each: the one that was started ahead, with its kernel loaded, which makes loading it again short."""
    for kernel in kernels:
        if kernel.name in exam.screened:
            ahead = exam.screened.pop(kernel.name)
            with exam.spent.on("start"):
                ahead.loaded.result()
            worker = ahead.worker
        else:
            worker = exam.baseline_worker(kernel)
        with worker:
            yield kernel, worker


def _screened(exam: Exam, kernel: Kernel, worker: Worker) -> dict[str, BaselineTime]:
    """Its clean times in all scored cells; nothing when it cannot be the bar, which its note tells."""
    if not exam.overhead_ns:
        _null(exam, worker)
    failed = worker.load(kernel.source)
    if failed is not None:
        _note(exam, kernel, "unavailable", note=failed.text)
        return {}
    hopeless = "" if exam.bar is None else _hopeless(exam, exam.bar, kernel, worker)
    if hopeless:
        _note(exam, kernel, "available", note=hopeless)
        return {}
    wrong = _check(exam, kernel, worker)
    named = kernel.role in {"incumbent", "official"}
    if wrong and not named:
        _note(exam, kernel, "incorrect", note=wrong)
        return {}
    times = _clean_times(exam, kernel, worker)
    if isinstance(times, Failure):
        _note(exam, kernel, "incorrect", note=times.text)
        return {}
    _note(exam, kernel, "available", less_accurate=bool(wrong), note=wrong)
    return times


def _note(exam: Exam, kernel: Kernel, state: str, *, less_accurate: bool = False, note: str = "") -> None:
    exam.baselines.append(
        BaselineState.model_validate(
            {"name": kernel.name, "role": kernel.role, "state": state, "less_accurate": less_accurate, "note": note}
        )
    )


def missing_here(exam: Exam, requires: Requires | None) -> str:
    """What a baseline needs and this machine has not; nothing when all is there."""
    if requires is None:
        return ""
    architecture = exam.gpu.capability if exam.gpu else ""
    if requires.architectures and architecture not in requires.architectures:
        return f"is for {', '.join(requires.architectures)}; this device is {architecture or 'none of them'}"
    if importlib.util.find_spec(requires.module) is None:
        return f"{requires.module} cannot be imported"
    if requires.minimum is None:
        return ""
    name = requires.distribution or requires.module
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return f"no version of {name} is on record"
    return "" if Version(found) >= Version(requires.minimum) else f"{name} {found} is older than {requires.minimum}"


def _check(exam: Exam, kernel: Kernel, worker: Worker) -> str:
    """Ask it the first draw of every scored cell; returns what was wrong, or nothing."""
    wrong = ""
    for index, check in enumerate(exam.checks):
        if not exam.in_ledger(check):
            continue
        question = exam.question(index)
        with exam.spent.on("check"):
            answer = worker.run(question.case, exam.root.child("baseline", kernel.name, index))
        if isinstance(answer, Failure):
            return f"{question.case.where}: {answer.text}"
        judgement = exam.judge(question, answer)
        exam.note_accuracy(kernel.name, judgement)
        if judgement.counterexample is not None and not wrong:
            wrong = f"{question.case.where}: {judgement.margin:.1f} times the limit"
    return wrong


def _null(exam: Exam, worker: Worker) -> None:
    """Set the least envelope of a call that does nothing, and, on a GPU, what emptying its cache takes when idle.
    The kernel is ours and leaves nothing behind in the worker.

    Raises:
        InfrastructureError: even nothing does not work.
    """
    workload = exam.contract.anchor(exam.device)
    recipe = cell_recipe(exam.contract, workload, next(iter(exam.contract.regimes)))
    stream = exam.root.child("null")
    failed = worker.load(NULL)
    slot = worker.bind(recipe.axes, recipe.absent)
    if failed is not None or isinstance(slot, Failure):
        raise InfrastructureError("a kernel that does nothing cannot be called: the worker is broken")
    case = exam.make(recipe, stream, static=stream)
    with exam.spent.on("time"):
        answers = [worker.call(slot, case, stream.child(number)) for number in range(NULL_CALLS)]
        worker.release(slot)
    answered = [answer for answer in answers if isinstance(answer, Answered)]
    if len(answered) < NULL_CALLS:
        raise InfrastructureError("a kernel that does nothing does not answer: the worker is broken")
    exam.overhead_ns = min(answer.envelope_ns for answer in answered)
    exam.flush_ns = round(statistics.median(answer.flush_ns for answer in answered))


def _hopeless(exam: Exam, bar: Kernel, kernel: Kernel, worker: Worker) -> str:
    """That it is many times slower than the bar so far, or nothing: a failure shows later, where it is named."""
    workload, regime = exam.scored()[0]
    cell = f"{workload.name}/{regime}"
    taken = _clean(exam, kernel, worker, cell_recipe(exam.contract, workload, regime), GLANCE)
    if isinstance(taken, Failure):
        return ""
    times = next(row.clean_ns for row in exam.clean[cell] if row.baseline == bar.name)
    slower = min(taken) / statistics.median(times)
    if slower < HOPELESS:
        return ""
    return f"{slower:.0f} times slower than {bar.name} in {cell}: neither checked nor timed further"


def _clean_times(exam: Exam, kernel: Kernel, worker: Worker) -> dict[str, BaselineTime] | Failure:
    times: dict[str, BaselineTime] = {}
    for workload, regime in exam.scored():
        recipe = cell_recipe(exam.contract, workload, regime)
        taken = _clean(exam, kernel, worker, recipe, CLEAN_CALLS)
        if isinstance(taken, Failure):
            return taken
        times[recipe.name] = BaselineTime(baseline=kernel.name, clean_ns=taken)
    return times


def _clean(exam: Exam, kernel: Kernel, worker: Worker, recipe: Recipe, calls: int) -> list[int] | Failure:
    """Envelopes of a cell's calls, after those that warm up."""
    stream = exam.root.child("clean", kernel.name, recipe.name)
    slot = worker.bind(recipe.axes, recipe.absent)
    if isinstance(slot, Failure):
        return slot
    taken: list[int] = []
    for number in range(WARM_UPS + calls):
        case = exam.make(recipe, stream.child(number), static=stream)
        with exam.spent.on("time"):
            answer = worker.call(slot, case, stream.child("call", number))
        if not isinstance(answer, Answered):
            return answer
        taken.append(answer.envelope_ns)
    return worker.release(slot) or taken[WARM_UPS:]
