"""A closer look at narrow refusals (bot/verify/closer.py), where eight noisy runs made a unit too small by chance."""

import dataclasses
from pathlib import Path

import pytest
import torch

from bot.contract.load import load_contract
from bot.evaluation import Job
from bot.verify.calls import Answered
from bot.verify.closer import STEPS, decide, decide_case
from bot.verify.compare import Judgement
from bot.verify.conduct import open_exam
from bot.verify.exam import Exam, Question
from bot.verify.oracle import NOISY_RUNS, Expected

CONTRACTS = Path(__file__).parents[2] / "contracts"
ROW = 5
MANY, NARROW = STEPS[-1]


@pytest.fixture(scope="module")
def exam() -> Exam:
    job = Job(
        contracts_dir=str(CONTRACTS), contract="silu_and_mul", candidate_name="", source="", mode="full", device="cpu"
    )
    return open_exam(job, load_contract(CONTRACTS, "silu_and_mul"), None, lambda _: None, salt=bytes(32))


def unlucky(exam: Exam) -> Question:
    """A planned question in one row of which eight runs happened to agree: its unit is a third of the others'."""
    exam.questions.clear()
    exam.sharper.clear()
    index = exam.indices("smoke")[0]
    held = exam.question(index)
    squares, units = ({k: v.clone() for k, v in d.items()} for d in (held.expected.squares, held.expected.units))
    squares["output"][ROW] /= 9
    units["output"][ROW] /= 3
    exam.questions[index] = dataclasses.replace(
        held, expected=Expected(held.expected.exact, units, held.expected.runs, squares)
    )
    return exam.questions[index]


def off_by(question: Question, units: float) -> dict[str, torch.Tensor]:
    """Right everywhere but in that row, which errs by so many of its units."""
    exact, unit = question.expected.exact["output"], question.expected.units["output"]
    answer = exact.clone()
    answer[ROW] += units * unit[ROW]
    return {"output": answer}


def judged(exam: Exam, question: Question, times: float) -> tuple[Expected, Judgement, Judgement]:
    """With what it was decided, at first and in the end; the error is so many times the limit."""
    limit = exam.contract.limits["output"].maximum
    outputs = off_by(question, times * limit)
    first = exam.judge_outputs(question.case, question.expected, outputs)
    expected, last = decide_case(exam, question.case, question.expected, exam.noise_of(question.check), outputs)
    return expected, first, last


def test_a_unit_too_small_by_chance_refuses_nobody(exam: Exam) -> None:
    question = unlucky(exam)
    expected, first, last = judged(exam, question, 1.3)
    assert first.counterexample is not None
    assert first.margin == pytest.approx(1.3)
    assert (last.counterexample, expected.runs) == (None, MANY)


def test_a_wrong_row_is_refused_however_often_it_is_looked_at(exam: Exam) -> None:
    question = unlucky(exam)
    expected, _, last = judged(exam, question, 1.95 * 3)
    assert (last.counterexample is not None, expected.runs) == (True, NOISY_RUNS)
    honest = exam.questions[exam.indices("smoke")[0]] = dataclasses.replace(
        question, expected=exam.expected(question.case, exam.noise_of(question.check))
    )
    expected, first, last = judged(exam, honest, 1.9)
    assert first.margin < NARROW
    assert (last.counterexample is not None, expected.runs) == (True, MANY)


def test_what_is_far_off_is_not_looked_at_again(exam: Exam) -> None:
    question = unlucky(exam)
    expected, _, last = judged(exam, question, 40.0)
    assert last.counterexample is not None
    assert expected.runs == NOISY_RUNS


def test_more_noisy_runs_are_made_once_for_all_who_are_asked(exam: Exam, monkeypatch: pytest.MonkeyPatch) -> None:
    question = unlucky(exam)
    index = exam.indices("smoke")[0]
    outputs = off_by(question, 1.3 * exam.contract.limits["output"].maximum)
    monkeypatch.setattr(exam, "tensors", lambda _: outputs)
    answer = Answered(1, 1, {})
    decided = [decide(exam, index, answer) for _ in range(2)]
    assert [judgement.counterexample for _, judgement in decided] == [None, None]
    assert decided[0][0] is decided[1][0]
    assert exam.questions[index] is question


def test_of_a_control_that_must_miss_by_far_the_last_step_is_not_taken(
    exam: Exam, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = unlucky(exam)
    outputs = off_by(question, 1.3 * exam.contract.limits["output"].maximum)
    monkeypatch.setattr(exam, "tensors", lambda _: outputs)
    found, judgement = decide(exam, exam.indices("smoke")[0], Answered(1, 1, {}), closely=False)
    assert judgement.counterexample is not None
    assert found.expected.runs == NOISY_RUNS
