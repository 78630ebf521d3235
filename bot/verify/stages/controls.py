"""Stage 9, controls: deliberately wrong kernels of this contract must be refused, honest variants accepted, or the exam
says of itself that it is weak. They are ours: one worker forks a child for each, and they get the exam's own questions.
"""

from dataclasses import dataclass

from bot.errors import DataError, Problem
from bot.evaluation import ControlResult, Grade
from bot.verify.calls import Failure, Worker
from bot.verify.exam import Exam, Outcome
from bot.verify.variants import Variant


def controls(exam: Exam) -> Outcome:
    """Grade the exam."""
    named = {control.file: list(control.fails) for control in exam.contract.controls}
    with exam.house_worker() as worker:
        refused = [_plain(exam, worker, file, first) for file, first in named.items()]
        accepted = [_plain(exam, worker, file, []) for file in exam.contract.faithful]
        hidden = [_variant(exam, worker, variant, named[variant.file]) for variant in exam.variants]
    exam.grade = Grade(controls=refused, faithful=accepted, variants=hidden)
    return Outcome(len(refused) + len(accepted) + len(hidden))


def _plain(exam: Exam, worker: Worker, file: str, first: list[str]) -> ControlResult:
    """A kernel of the contract's; one that does not even run is the contract's mistake."""
    found = _ask(exam, worker, file, exam.loaded.read(file), _order(exam, first))
    if isinstance(found, Failure):
        raise DataError(f"contracts/{exam.contract.name}", [Problem(file, found.text)])
    return ControlResult(file=file, refused=found.refused, where=found.where, margin=_finite(found.margin))


def _variant(exam: Exam, worker: Worker, variant: Variant, first: list[str]) -> ControlResult:
    """A composed one. A gate may open or shut by what came before, so gated ones are asked in the exam's own order."""
    found = _ask(exam, worker, variant.file, variant.source, _order(exam, first if variant.kind == "graded" else []))
    text = f"{variant.kind}: {variant.description}"
    if isinstance(found, Failure):
        return ControlResult(file=variant.file, variant=text, refused=True, where=found.text, margin=None)
    margin = _finite(found.margin)
    return ControlResult(file=variant.file, variant=text, refused=found.refused, where=found.where, margin=margin)


@dataclass(frozen=True, slots=True)
class _Found:
    """The worst answer so far, or the first wrong one."""

    refused: bool
    where: str
    margin: float


def _ask(exam: Exam, worker: Worker, file: str, source: str, order: list[int]) -> _Found | Failure:
    """Ask until the first wrong answer, in a child process of its own."""
    exam.progress("controls", 0, file)
    try:
        failed = worker.load(source)
        if failed is not None:
            return failed
        worst = _Found(refused=False, where="", margin=0.0)
        for index in order:
            question = exam.question(index)
            answer = worker.run(question.case, exam.root.child("control", file, index))
            if isinstance(answer, Failure):
                return Failure(answer.kind, f"{question.case.where}: {answer.text}")
            judgement = exam.judge(question, answer)
            if judgement.counterexample is not None:
                return _Found(refused=True, where=question.case.where, margin=judgement.margin)
            if not (judgement.margin <= worst.margin):
                worst = _Found(refused=False, where=question.case.where, margin=judgement.margin)
        return worst
    finally:
        worker.leave()


def _finite(margin: float) -> float | None:
    return round(margin, 3) if margin < 1e12 else None


def _order(exam: Exam, first: list[str]) -> list[int]:
    """All questions of correctness and probes, one draw each; those named in `first` before the others."""
    own = [i for i, c in enumerate(exam.checks) if c.stage in {"correctness", "probes"} and c.number == 0]

    def late(index: int) -> bool:
        name = exam.checks[index].recipe.name
        return not (name in first or name.rpartition("/")[2] in first)

    return sorted(own, key=late)
