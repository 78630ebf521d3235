"""Stage 9, controls: deliberately wrong kernels of this contract must be refused, honest variants accepted, or the exam
says of itself that it is weak. They are ours: one worker forks a child for each, and they get the exam's own questions.
"""

from bot.errors import DataError, Problem
from bot.evaluation import ControlResult, Grade
from bot.verify.calls import Failure, Worker
from bot.verify.exam import Exam, Outcome


def controls(exam: Exam) -> Outcome:
    """Grade the exam."""
    refused: list[ControlResult] = []
    accepted: list[ControlResult] = []
    with exam.house_worker() as worker:
        for control in exam.contract.controls:
            exam.progress("controls", len(refused), control.file)
            refused.append(_try(exam, worker, control.file, list(control.fails)))
        for file in exam.contract.faithful:
            exam.progress("controls", len(refused) + len(accepted), file)
            accepted.append(_try(exam, worker, file, []))
    exam.grade = Grade(controls=refused, faithful=accepted)
    return Outcome(len(refused) + len(accepted))


def _try(exam: Exam, worker: Worker, file: str, first: list[str]) -> ControlResult:
    """Ask until the first wrong answer; questions that must show a control's cheat come first."""
    failed = worker.load(exam.loaded.read(file))
    if failed is not None:
        raise DataError(f"contracts/{exam.contract.name}", [Problem(file, failed.text)])
    margin, place = 0.0, ""
    for index in _order(exam, first):
        question = exam.question(index)
        answer = worker.run(question.case, exam.root.child("control", file, index))
        if isinstance(answer, Failure):
            raise DataError(f"contracts/{exam.contract.name}", [Problem(file, f"{question.case.where}: {answer.text}")])
        judgement = exam.judge(question, answer)
        if not (judgement.margin <= margin):
            margin, place = judgement.margin, question.case.where
        if judgement.counterexample is not None:
            worker.leave()
            return ControlResult(file=file, refused=True, where=place, margin=_finite(margin))
    worker.leave()
    return ControlResult(file=file, refused=False, where=place, margin=_finite(margin))


def _finite(margin: float) -> float | None:
    return round(margin, 3) if margin < 1e12 else None


def _order(exam: Exam, first: list[str]) -> list[int]:
    """All questions of correctness and probes, one draw each; those named in `first` before the others."""
    own = [i for i, c in enumerate(exam.checks) if c.stage in {"correctness", "probes"} and c.number == 0]

    def late(index: int) -> bool:
        name = exam.checks[index].recipe.name
        return not (name in first or name.rpartition("/")[2] in first)

    return sorted(own, key=late)
