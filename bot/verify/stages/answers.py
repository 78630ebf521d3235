"""Stages 2 to 4, smoke, correctness and probes: one kind of call, in secret order, each compared with the oracle.

Integrity is part of each of these calls: poisoned outputs, guard bands, inputs compared afterwards (calls.py).
"""

import math
import time

from bot.evaluation import FailedProbe, StageName
from bot.verify.calls import Failure
from bot.verify.compare import Judgement
from bot.verify.counterexample import tensors_of
from bot.verify.exam import Exam, Outcome, incorrect, refuse

DIAGNOSIS_SECONDS = 4.0
"""After a wrong answer the remaining probes are asked too, for at most this long: which shortcut is it?"""


def smoke(exam: Exam) -> Outcome:
    """One draw of the anchor."""
    return _ask_all(exam, "smoke")


def correctness(exam: Exam) -> Outcome:
    """Every cell, other lengths with the same total, hidden axis values."""
    return _ask_all(exam, "correctness")


def probes(exam: Exam) -> Outcome:
    """The contract's extreme and structured inputs."""
    return _ask_all(exam, "probes")


def _ask_all(exam: Exam, stage: StageName) -> Outcome:
    done = 0
    for index in exam.indices(stage):
        question = exam.question(index)
        exam.progress(stage, done, question.case.where)
        answer = ask(exam, index)
        if isinstance(answer, Failure):
            return Outcome(done, refuse(stage, question.case.where, answer))
        if exam.in_ledger(question.check):
            exam.note_accuracy(exam.candidate.name, answer)
        if answer.counterexample is not None:
            refusal = incorrect(stage, question, answer.counterexample)
            return Outcome(done, refusal.model_copy(update={"check": index, "diagnosis": _diagnose(exam)}))
        done += 1
    return Outcome(done)


def ask(exam: Exam, index: int) -> Judgement | Failure:
    """Put one planned question to the candidate."""
    question = exam.question(index)
    answer = exam.candidate_worker.run(question.case, exam.root.child("call", question.check.stage, index))
    if isinstance(answer, Failure):
        return answer
    judgement = exam.judge(question, answer)
    if judgement.counterexample is not None and not exam.shown:
        exam.shown = tensors_of(exam, question, answer)
    return judgement


def _diagnose(exam: Exam) -> list[FailedProbe]:
    """Which probes the refused candidate fails: they name the shortcut it takes. For people; decides nothing."""
    failed: list[FailedProbe] = []
    deadline = time.monotonic() + DIAGNOSIS_SECONDS
    for index in exam.indices("probes"):
        if time.monotonic() > deadline:
            break
        recipe = exam.checks[index].recipe
        answer = ask(exam, index)
        if isinstance(answer, Failure):
            failed.append(FailedProbe(name=recipe.name, breaks=recipe.breaks))
        elif answer.counterexample is not None:
            margin = round(answer.margin, 2) if math.isfinite(answer.margin) else None
            failed.append(FailedProbe(name=recipe.name, breaks=recipe.breaks, margin=margin))
        if isinstance(answer, Failure) and answer.kind != "incorrect":
            break
    # The plainest failures first: they say most about the shortcut.
    return sorted(failed, key=lambda probe: (-(probe.margin or math.inf), probe.name))
