"""What the model is told of an exam, and what it is never told."""

from typing import get_args

import pytest

from bot.agent.feedback import _WRONG, feedback, is_secret, timing
from bot.evaluation import Evaluation, Influence, Refusal, Smallest, Statistic
from bot.verdict import decide
from tests.agent.conftest import CONTRACT, LIMIT, SALT, evaluation, refusal


def taught(where: str = "small/plain", mapped: str = "small/plain", statistic: Statistic = "median") -> Refusal:
    """A refusal with all that is found afterwards; its sizes and limit stand in the smallest counterexample as well."""
    made = refusal("incorrect", "correctness", where=where)
    assert made.counterexample is not None
    found = made.counterexample.model_copy(update={"statistic": statistic})
    mapped_input = Influence(
        input="x", axis="tokens", outputs=["y"], shares=[[1.0, 0.0], [None, 1.0]], leaks=[[False] * 2] * 2
    )
    shrunk = {"axes": {"L": [23], "H": 3}, "index": [22, 2, 9], "error_units": 43.5, "candidate": "0.911"}
    return made.model_copy(
        update={
            "counterexample": found,
            "smallest": Smallest(
                counterexample=found.model_copy(update=shrunk), inputs={"x": "ones", "state": "absent"}, tried=17
            ),
            "influence": [mapped_input],
            "influence_where": mapped,
        }
    )


def told(made: Refusal) -> str:
    return feedback(evaluation("x", "quick", refusal=made), CONTRACT)


MAP = [
    "Influence in small/plain: how far each part of an output follows when one part of one input is changed.",
    " x: y forgets it 1 part later",
    " parts of tokens of each sequence down, parts of each output across",
    "     y",
    "  1  █·",
    "  2   █",
    " █ answers as it must   · not read   blank: the oracle does not answer either",
]

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
    for secret in ("31", "19", "H=3", "0.812", "0.203", "odd_lengths", "[5"):
        assert secret not in text


def test_the_smallest_counterexample_and_the_map_are_told() -> None:
    assert told(taught()).splitlines()[5:] == [
        "The smallest input found that it still gets wrong:",
        "Output y, group H=1: the median of its error is too large (43.5 noise units; an honest kernel: about 1).",
        "Worst element [22, 2, 9]: candidate 0.911, oracle 0.203.",
        "Axes: L=[23], H=3",
        "It is still wrong with these inputs: absent: state; ones: x.",
        "It also fails the probe all_zero: a division by the norm",
        *MAP,
    ]


def test_of_a_secret_draw_the_smallest_tells_no_size_and_the_map_of_an_open_cell_is_told() -> None:
    text = told(taught("odd_lengths"))
    assert text.splitlines() == [
        "Refused: incorrect at stage correctness.",
        "It failed on a secret draw: sizes and lengths from the legal domain that nobody was told.",
        "It is still wrong with these inputs: absent: state; ones: x.",
        "It also fails the probe all_zero: a division by the norm",
        *MAP,
    ]


@pytest.mark.parametrize("hidden", ["odd_lengths", "odd_lengths/plain 3", "", "something new"])
def test_a_smallest_or_a_map_of_a_secret_draw_is_not_told_by_an_open_refusal(hidden: str) -> None:
    made = taught(mapped=hidden)
    assert made.smallest is not None
    moved = made.smallest.counterexample.model_copy(update={"where": hidden})
    text = told(made.model_copy(update={"smallest": made.smallest.model_copy(update={"counterexample": moved})}))
    for secret in ("L=[23]", "[22, 2, 9]", "0.911", "Influence", "█"):
        assert secret not in text


@pytest.mark.parametrize("statistic", get_args(Statistic))
def test_every_statistic_is_told_in_words_and_never_with_its_limit(statistic: Statistic) -> None:
    assert set(get_args(Statistic)) == set(_WRONG)
    for where in ("small/plain", "odd_lengths"):
        assert str(LIMIT) not in told(taught(where, statistic=statistic))
    assert _WRONG[statistic] in told(taught(statistic=statistic))


@pytest.mark.parametrize(
    ("statistic", "words"),
    [
        ("median", "an honest kernel: about 1"),
        ("bar", "candidate 0.812, bar 0.203."),
        ("leak", "(41.2 noise units)"),
        ("leak", "candidate 0.812, itself before 0.203."),
        ("relation", "candidate 0.812, itself asked otherwise 0.203."),
        ("set", "candidate 0.812, the cut 0.203."),
    ],
)
def test_what_the_answer_was_compared_with_is_named(statistic: Statistic, words: str) -> None:
    assert words in told(taught(statistic=statistic))


@pytest.mark.parametrize(
    "facts",
    [
        *(REFUSED, HIDDEN, BUILD, evaluation("x", "quick")),
        *(evaluation("x", "quick", refusal=taught(where)) for where in ("small/plain", "odd_lengths")),
    ],
)
def test_neither_salt_nor_limits_are_told(facts: Evaluation) -> None:
    text = feedback(facts, CONTRACT)
    for secret in (SALT, facts.salt_commitment, str(LIMIT), "17.77", "27.77"):
        assert secret not in text


def test_a_build_failure_tells_its_error() -> None:
    assert feedback(BUILD, CONTRACT) == "Refused: build_failed at stage build.\nNameError: name 'tl' is not defined"


def test_an_acceptance_tells_what_was_checked() -> None:
    assert feedback(evaluation("x", "quick"), CONTRACT) == (
        "Accepted so far. Checks passed: build (5), smoke (5), correctness (5), probes (5), influence (5), "
        "relations (5), integrity (5). Not timed: `time` measures it."
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
