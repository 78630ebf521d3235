"""What `proctor verify` prints."""

import io

import pytest
from rich.console import Console

from bot.evaluation import Evaluation
from bot.report.terminal import print_verdict
from bot.verdict import decide
from tests.report.builders import cell, evaluation, refusal


def printed(run: Evaluation) -> str:
    console = Console(file=io.StringIO(), width=160, force_terminal=False)
    print_verdict(run, decide([run]), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_first_line_is_the_verdict():
    assert printed(evaluation()).startswith("improved · 1.449x (1.443–1.455, n=80) over the bar · torch_chunked")


def test_stages_cells_accuracy_and_grade_follow():
    text = printed(evaluation())
    for part in ("correctness  ✓  27/27", "T256_H4/slow", "1.0 / 1.8", "caught 2/2 controls (weakest margin 3.40x)"):
        assert part in text


def test_a_refusal_shows_its_counterexample_and_what_the_probe_breaks():
    text = printed(evaluation("quick", refusal=refusal()))
    assert "counterexample: out[3, 0, 17] (H=0) in probe scaled_queries with H=1, lengths=[16]" in text
    assert "candidate 0.812, oracle 0.203; 58 units, maximum limit 16" in text
    assert "fails scaled_queries, which breaks a norm replaced by a constant" in text


@pytest.mark.parametrize("text", ["[bold red]x[/]", "\x1b[2J\x1b]0;title\x07", "[/nothing]", "a\nimproved · 9x"])
def test_candidate_text_is_neither_markup_nor_control(text):
    run = evaluation(candidate_name=text, refusal=refusal(reason=text), cells=[cell(text)])
    shown = printed(run)
    assert "\x1b" not in shown
    assert not any(line.startswith("improved") for line in shown.splitlines())
