"""A closer look at what a few noisy runs refuse: they tell a unit, by chance perhaps a small part of the true one.

Rows of a head may err together, and then a run is one sample of them all: a unit from eight runs is a quarter of its
true value once in 10^5 rows (chi-square, 8 degrees), which a large call of a GPU has many times over. An honest KDA
kernel missed by 1.13 in one row of 786432. From 32 runs a unit never is that small; they take long, so only what is
refused narrowly is worth them.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

from bot.verify.calls import Answered
from bot.verify.cases import Case
from bot.verify.compare import Judgement
from bot.verify.exam import Exam, Question
from bot.verify.oracle import NOISY_RUNS, Expected, Tensor, expect
from bot.verify.philox import Stream

STEPS: tuple[tuple[int, float], ...] = ((NOISY_RUNS, math.inf), (32, 2.0))
"""Noisy runs to judge again with, and the margin below which. What has no distance (margin infinite) has no unit."""


def decide(exam: Exam, index: int, answer: Answered, *, closely: bool = True) -> tuple[Question, Judgement]:
    """What an answer to a planned question is worth, and the question with the units that decided it. `closely`: all
    steps; of a control that must miss by far nothing depends on the last."""
    question = exam.question(index)
    judgement = exam.judge(question, answer)
    for runs, narrow in STEPS if closely else STEPS[:1]:
        if _wants(judgement, narrow) and question.expected.runs < runs:
            question = _sharpened(exam, index, runs)
            judgement = exam.judge(question, answer)
    return question, judgement


def decide_case(
    exam: Exam, case: Case, expected: Expected, noise: Stream, outputs: Mapping[str, Tensor]
) -> tuple[Expected, Judgement]:
    """As `decide`, of a case that was not planned, or is known by its bytes. `noise`: where that of `expected` came
    from."""
    judgement = exam.judge_outputs(case, expected, outputs)
    for runs, narrow in STEPS:
        if _wants(judgement, narrow) and expected.runs < runs:
            expected = _more(exam, case, expected, noise, runs)
            judgement = exam.judge_outputs(case, expected, outputs)
    return expected, judgement


def _wants(judgement: Judgement, narrow: float) -> bool:
    return judgement.counterexample is not None and judgement.margin < narrow


def _sharpened(exam: Exam, index: int, runs: int) -> Question:
    """A question with units from so many noisy runs, made once."""
    if (index, runs) not in exam.sharper:
        rough = exam.question(index)
        expected = _more(exam, rough.case, rough.expected, exam.noise_of(rough.check), runs)
        exam.sharper[index, runs] = replace(rough, expected=expected)
    return exam.sharper[index, runs]


def _more(exam: Exam, case: Case, rough: Expected, noise: Stream, runs: int) -> Expected:
    with exam.spent.on("oracle"):
        return expect(exam.contract, exam.oracle, case, noise, runs=runs, known=rough, on=exam.computed_on(case))
