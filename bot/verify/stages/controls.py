"""Stage 9, controls: deliberately wrong kernels of this contract must be refused, honest variants accepted, or the exam
says of itself that it is weak. They are ours: one worker forks a child for each, and they sit the exam's own questions.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue

from bot.errors import DataError, Problem
from bot.evaluation import ControlResult, Grade, StageName
from bot.verify import cpus
from bot.verify.calls import Failure, Worker
from bot.verify.exam import Exam, Outcome, Turn
from bot.verify.plan import for_ours
from bot.verify.sitting import Sitting, exam_relations
from bot.verify.variants import Variant

HOUSES = 2
"""Workers for kernels of ours, at least: nothing is timed, and judging an answer takes as long as the kernel."""
STRONG = 3.0
"""A plain control is asked until it misses a limit by this factor, which every one must somewhere."""


def houses() -> int:
    """One for each CPU of the verifier's, on which their answers are judged."""
    return max(HOUSES, len(cpus.split()[0]))


def controls(exam: Exam) -> Mapping[StageName, Outcome]:
    """Grade the exam."""
    with exam.spent.on("check"):
        exam.grade = grade(exam)
    return {"controls": Outcome(len(exam.grade.controls) + len(exam.grade.faithful) + len(exam.grade.variants))}


def grade(exam: Exam) -> Grade:
    """Every control and faithful variant of the contract, and the exam's share of the hidden ones."""
    named = {control.file: list(control.fails) for control in exam.contract.controls}
    for index in range(len(exam.checks)):
        exam.question(index)  # Before they are asked in several threads.
    tasks: list[Callable[[House], ControlResult]] = [
        *(partial(_plain, file=file, first=_first(exam, names)) for file, names in named.items()),
        *(partial(_plain, file=file, first=None) for file in exam.contract.faithful),
        *(partial(_variant, variant=variant, names=named[variant.file]) for variant in exam.variants),
    ]
    results = _in_houses(exam, tasks)
    controls_end = len(named)
    faithful_end = controls_end + len(exam.contract.faithful)
    return Grade(
        controls=results[:controls_end],
        faithful=results[controls_end:faithful_end],
        variants=results[faithful_end:],
    )


def _in_houses(exam: Exam, tasks: Sequence[Callable[["House"], ControlResult]]) -> list[ControlResult]:
    """All results, in order. While one kernel runs, the answer of another is judged."""
    all_houses = [House(exam) for _ in range(houses())]
    free: SimpleQueue[House] = SimpleQueue()
    for house in all_houses:
        free.put(house)

    def run(task: Callable[[House], ControlResult]) -> ControlResult:
        house = free.get()
        try:
            return task(house)
        finally:
            free.put(house)

    # A sandbox dies with the thread that started it: the threads live until all is done.
    with ThreadPoolExecutor(len(all_houses), initializer=os.sched_setaffinity, initargs=(0, cpus.split()[0])) as pool:
        try:
            return list(pool.map(run, tasks))
        finally:
            for house in all_houses:
                house.close()


@dataclass
class House:
    """The worker our own kernels run in: a child of it each. A child that broke may leave messages for the next, so
    that one gets a worker of its own."""

    exam: Exam
    worker: Worker | None = None

    def sit(self, file: str, source: str, turns: Sequence[Turn], task: "Task") -> "Found | Failure":
        """Ask a kernel until it has shown what it is."""
        self.exam.progress("controls", 0, file)
        worker = self.worker = self.worker or self.exam.house_worker()
        found = worker.load(source) or _sit(self.exam, worker, file, turns, task)
        if isinstance(found, Failure) and not found.alive and found.kind != "build_failed":
            self.close()
        else:
            worker.leave()
        return found

    def close(self) -> None:
        """End it."""
        if self.worker is not None:
            self.worker.close()
            self.worker = None


@dataclass(frozen=True, slots=True)
class Task:
    """How long to ask: on after a wrong answer until one misses by `enough`; `relations`: these too."""

    enough: float = 1.0
    relations: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """The worst wrong answer, or the worst right one."""

    refused: bool
    where: str
    margin: float


def _sit(exam: Exam, worker: Worker, file: str, turns: Sequence[Turn], task: Task) -> Found | Failure:
    sitting = Sitting(exam, worker, exam.root.child("control", file), closely=task.enough < STRONG)
    worst = Found(refused=False, where="", margin=0.0)
    for turn in turns:
        reply = sitting.ask(turn)
        where = exam.checks[turn.index].recipe.name
        if isinstance(reply, Failure):
            return Failure(reply.kind, f"{where}: {reply.text}", alive=reply.alive)
        if not (reply.margin <= worst.margin):
            worst = Found(refused=reply.wrong is not None, where=where, margin=reply.margin)
        if worst.refused and not (worst.margin < task.enough):
            return worst
    for number, relation in enumerate(exam_relations(exam) if task.relations else ()):
        related = sitting.relate(number)
        if isinstance(related, Failure):
            return Failure(related.kind, f"{relation.name}: {related.text}", alive=related.alive)
        if related[1] is not None:
            return Found(refused=True, where=relation.name, margin=0.0)
    return worst


def _plain(house: House, file: str, first: Sequence[Turn] | None) -> ControlResult:
    """A kernel of the contract's: a control from the places that must see it on; a faithful variant all through. One
    that does not even run is the contract's mistake."""
    exam = house.exam
    turns = [*first, *(turn for turn in _asked(exam) if turn not in first)] if first is not None else _once(exam)
    task = Task(relations=file == _related(exam)) if first is None else Task(enough=STRONG)
    found = house.sit(file, exam.loaded.read(file), turns, task)
    if isinstance(found, Failure):
        raise DataError(f"contracts/{exam.contract.name}", [Problem(file, found.text)])
    return ControlResult(file=file, refused=found.refused, where=found.where, margin=_finite(found.margin))


def _variant(house: House, variant: Variant, names: Sequence[str]) -> ControlResult:
    """A composed one. A gate may open or shut by what came before, so gated ones are asked in the exam's own order."""
    # A graded one is asked where the plain one must be seen and nowhere else: a mild one would pass all of it slowly.
    exam = house.exam
    turns = _first(exam, names) if variant.kind == "graded" else _asked(exam)
    found = house.sit(variant.file, variant.source, turns, Task())
    text, severity = f"{variant.kind}: {variant.description}", variant.severity
    if isinstance(found, Failure):
        # A kernel that breaks teaches nothing about the exam: it counts as not caught, and shows why.
        return ControlResult(
            file=variant.file, variant=text, severity=severity, refused=False, where=found.text, margin=None
        )
    return ControlResult(
        file=variant.file,
        variant=text,
        severity=severity,
        refused=found.refused,
        where=found.where,
        margin=_finite(found.margin),
    )


def _related(exam: Exam) -> str:
    """The faithful variant that answers the relations too, another in every exam: their sequences are long."""
    files = exam.contract.faithful
    return files[int(exam.root.child("related").below(len(files))[0])]


def _once(exam: Exam) -> list[Turn]:
    """Every question, none a second time."""
    return [turn for turn in _asked(exam) if not turn.again]


def _asked(exam: Exam) -> list[Turn]:
    """The exam's order, then what only kernels of ours are asked, probes twice as in an exam. They run on the CPU: what
    a GPU alone can answer in time is not asked of them."""
    own = exam.indices("controls")
    again = [index for index in own if exam.checks[index].recipe.kind == "probe"]
    turns = (*exam.turns, *map(Turn, own), *(Turn(index, again=True) for index in again))
    all_of_them, small = exam.device == "cpu", {*own}
    small |= {i for i, check in enumerate(exam.checks) if for_ours(exam.contract, check.recipe.axes)}
    return [turn for turn in turns if all_of_them or turn.index in small]


def _first(exam: Exam, names: Sequence[str]) -> list[Turn]:
    """The turns that must see a control. In the exam's order: one that keeps its first answer needs two of a kind."""

    def sees(turn: Turn) -> bool:
        name = exam.checks[turn.index].recipe.name
        return name in names or name.rpartition("/")[2] in names

    return [turn for turn in _asked(exam) if sees(turn)]


def _finite(margin: float) -> float | None:
    return round(margin, 3) if margin < 1e12 else None
