"""What the model is told of an exam, and what it is never told."""

import pytest

from bot.agent.feedback import feedback, is_secret, timing
from bot.evaluation import Evaluation
from bot.verdict import decide
from tests.agent.conftest import CONTRACT, LIMIT, SALT, evaluation, refusal

REFUSED = evaluation("x", "quick", refusal=refusal("incorrect", "correctness"))
HIDDEN = evaluation("x", "quick", refusal=refusal("incorrect", "correctness", where="odd_lengths"))
BUILD = evaluation("x", "quick", refusal=refusal("build_failed", "build"))


def test_a_refusal_tells_stage_place_counterexample_and_failed_probes() -> None:
    assert feedback(REFUSED, CONTRACT).splitlines() == [
        "Refused: incorrect at stage correctness.",
        "Where: small/plain",
        "Output y, group H=1: the median of its error is too large (41.2 noise units; an honest kernel: about 1).",
        "Worst element [5, 1, 9]: candidate 0.812, oracle 0.203.",
        "Axes: L=[31, 19], H=3",
        "It also fails the probe all_zero: a division by the norm",
    ]


def test_values_of_the_wrong_class_are_told_without_an_error_figure() -> None:
    refused = refusal("incorrect", "smoke")
    assert refused.counterexample is not None
    found = refused.counterexample.model_copy(update={"statistic": "class", "error_units": None, "candidate": "nan"})
    text = feedback(evaluation("x", "quick", refusal=refused.model_copy(update={"counterexample": found})), CONTRACT)
    assert "do not stand where the oracle has them.\nWorst element [5, 1, 9]: candidate nan, oracle 0.203." in text


def test_of_a_secret_draw_only_its_kind_is_told() -> None:
    text = feedback(HIDDEN, CONTRACT)
    assert text.splitlines()[:2] == [
        "Refused: incorrect at stage correctness.",
        "It failed on a secret draw: sizes and lengths from the legal domain that nobody was told.",
    ]
    for told in ("31", "19", "H=3", "0.812", "0.203", "odd_lengths", "[5"):
        assert told not in text


@pytest.mark.parametrize("facts", [REFUSED, HIDDEN, BUILD, evaluation("x", "quick")])
def test_neither_salt_nor_limits_are_told(facts: Evaluation) -> None:
    text = feedback(facts, CONTRACT)
    for told in (SALT, facts.salt_commitment, str(LIMIT), "17.77", "27.77"):
        assert told not in text


def test_a_build_failure_tells_its_error() -> None:
    assert feedback(BUILD, CONTRACT) == "Refused: build_failed at stage build.\nNameError: name 'tl' is not defined"


def test_an_acceptance_tells_what_was_checked() -> None:
    assert feedback(evaluation("x", "quick"), CONTRACT) == (
        "Accepted so far. Checks passed: build (5), smoke (5), correctness (5), probes (5). "
        "Not timed: `time` measures it."
    )


def test_a_candidates_own_text_is_printable_bounded_and_without_tokens() -> None:
    hostile = "x\u202e\x1b[2J ghp_" + "a" * 36 + "y" * 100_000
    refused = refusal("build_failed", "build").model_copy(update={"reason": hostile})
    text = feedback(evaluation("x", "quick", refusal=refused), CONTRACT)
    assert len(text) < 5000
    assert "\u202e" not in text
    assert "\x1b" not in text
    assert "ghp_" not in text


@pytest.mark.parametrize(
    ("where", "secret"),
    [
        ("small/plain", False),
        ("all_zero", False),
        ("odd_lengths", True),
        ("odd_lengths/plain 3", True),
        ("something new", True),
        ("", True),
    ],
)
def test_what_the_contract_does_not_name_openly_is_secret(where: str, *, secret: bool) -> None:
    assert is_secret(where, CONTRACT) is secret


def test_timing_tells_verdict_cells_and_reasons() -> None:
    facts = evaluation("x", "full")
    text = timing(facts, decide([facts]), CONTRACT)
    assert text.startswith("Verdict of this run: improved.\nSpeedup over the bar, geometric mean: 2.000x (")
    assert "- small/plain against loop: 2.000x" in text


def test_a_refusal_while_timing_is_told_like_any_other() -> None:
    facts = evaluation("x", "full", refusal=refusal("incorrect", "timing"))
    assert timing(facts, decide([facts]), CONTRACT) == feedback(facts, CONTRACT)
