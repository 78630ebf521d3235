"""Stages 2 to 7, smoke to integrity: the exam's questions, one kind of call, each compared with the oracle.

Correctness, probes, influence and second askings come in one secret order; what a call counts for is decided here,
afterwards. Integrity is also part of each call: poisoned outputs, guard bands, inputs compared afterwards (calls.py).
"""

import time
from collections.abc import Mapping

from bot.evaluation import Refusal, StageName
from bot.verify.calls import Failure
from bot.verify.counterexample import answer_tensors, pair_tensors
from bot.verify.diagnosis import diagnose
from bot.verify.exam import Exam, Outcome, Turn, incorrect, refuse
from bot.verify.oracle import Tensor
from bot.verify.relations import Compared
from bot.verify.sitting import Reply, Sitting, exam_relations

MIXED: tuple[StageName, ...] = ("correctness", "probes", "influence", "integrity")
"""Stages whose calls come in one order."""


def smoke(exam: Exam) -> Mapping[StageName, Outcome]:
    """One draw of the anchor."""
    sitting = _sitting(exam)
    for done, index in enumerate(exam.indices("smoke")):
        refusal = _ask(exam, sitting, "smoke", Turn(index))
        if refusal is not None:
            return {"smoke": Outcome(done, refusal)}
    return {"smoke": Outcome(exam.planned("smoke"))}


def questions(exam: Exam) -> Mapping[StageName, Outcome]:
    """Every cell, other lengths with the same total, hidden axis values, the contract's extreme and structured inputs,
    inputs changed part by part, and a share of it all again."""
    sitting = _sitting(exam)
    done, seconds = dict.fromkeys(MIXED, 0), dict.fromkeys(MIXED, 0.0)
    refused: tuple[StageName, Refusal] | None = None
    for turn in exam.turns:
        stage: StageName = "integrity" if turn.again else exam.checks[turn.index].stage
        exam.progress(stage, done[stage], exam.question(turn.index).case.where)
        begun = time.monotonic()
        refusal = _ask(exam, sitting, stage, turn)
        seconds[stage] += time.monotonic() - begun
        if refusal is not None:
            refused = (stage, refusal)
            break
        done[stage] += 1
    return {
        stage: Outcome(done[stage], refused[1] if refused and refused[0] == stage else None, seconds=seconds[stage])
        for stage in MIXED
    }


def relations(exam: Exam) -> Mapping[StageName, Outcome]:
    """The same question in two ways."""
    sitting = _sitting(exam)
    for number, relation in enumerate(exam_relations(exam)):
        exam.progress("relations", number, relation.name)
        found = sitting.relate(number)
        if isinstance(found, Failure):
            return {"relations": Outcome(number, refuse("relations", relation.name, found))}
        compared, example = found
        if example is not None:
            refusal = incorrect("relations", compared.case, example, note=_ways(relation.kind))
            exam.shown = _shown(exam, compared)
            return {"relations": Outcome(number, refusal.model_copy(update={"call": relation.name}))}
    return {"relations": Outcome(exam.planned("relations"))}


def _ways(kind: str) -> str:
    return {
        "split": "when sequences are cut in two and the state is handed over",
        "alone": "when a sequence is alone and not packed with others",
        "permuted": "when steps change places",
        "scaled": "when what is linear is scaled",
    }[kind]


def _shown(exam: Exam, compared: Compared) -> dict[str, Tensor]:
    one = {name: pair[0] for name, pair in compared.answers.items()}
    other = {name: pair[1] for name, pair in compared.answers.items()}
    return pair_tensors(exam, compared.case, one, other)


def _sitting(exam: Exam) -> Sitting:
    if exam.sitting is None:
        exam.sitting = Sitting(exam, exam.candidate_worker, exam.root.child("call"))
    return exam.sitting


def _ask(exam: Exam, sitting: Sitting, stage: StageName, turn: Turn) -> Refusal | None:
    reply = sitting.ask(turn)
    where = exam.question(turn.index).case
    if isinstance(reply, Failure):
        return refuse(stage, where.where, reply)
    if exam.in_ledger(reply.question.check) and not turn.again:
        exam.note_accuracy(exam.candidate.name, reply.judgement)
    if reply.wrong is None:
        return None
    exam.shown = answer_tensors(exam, reply.question, reply.answer)
    refusal = incorrect(stage, where, reply.wrong, note=_note(reply, turn), unwritten=_unwritten(reply))
    return diagnose(exam, sitting, reply, refusal.model_copy(update={"check": turn.index}))


def _note(reply: Reply, turn: Turn) -> str:
    if reply.judgement.counterexample is None:
        return "where nothing may change: inputs of other heads and sequences were changed"
    if turn.again:
        return "when asked the same again; the first answer was right"
    return "where parts of the inputs were changed" if reply.question.check.base is not None else ""


def _unwritten(reply: Reply) -> bool:
    left = reply.answer.unwritten
    return left is not None and reply.wrong is not None and reply.wrong.output == left[0] and not reply.leaked
