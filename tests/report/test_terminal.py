"""What `proctor verify` prints."""

import io
import re

import pytest
from rich.console import Console

from bot.evaluation import Evaluation, Grade
from bot.report.terminal import print_verdict
from bot.verdict import decide
from tests.report.builders import cell, confirmed, evaluation, grade, influence_map, refusal, smallest, taught
from tests.report.test_tables import variant


def printed(run: Evaluation) -> str:
    console = Console(file=io.StringIO(), width=160, force_terminal=False)
    print_verdict(run, decide([run]), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_first_line_is_the_verdict():
    assert printed(evaluation()).startswith("improved · 1.449x (1.445–1.452, n=160) over the bar · torch_chunked")


def test_stages_cells_accuracy_and_grade_follow():
    text = printed(evaluation())
    for part in ("T256_H4/fast", "T256_H4/slow", "1.0 / 1.8", "caught 2/2 controls (weakest margin 3.40x)"):
        assert part in text


def test_a_refusal_shows_its_counterexample_and_what_the_probe_breaks():
    text = printed(evaluation("quick", refusal=refusal()))
    assert "counterexample: out[3, 0, 17] (H=0) in probe scaled_queries with H=1, lengths=[16]" in text
    assert "candidate 0.812, oracle 0.203; 58 units, maximum limit 16" in text
    assert "fails scaled_queries, which breaks a norm replaced by a constant" in text


def test_the_smallest_counterexample_and_the_map_follow():
    lines = [line.rstrip() for line in printed(evaluation("quick", refusal=taught())).splitlines()]
    start = lines.index("the smallest found: out[0, 0, 0] (H=0) in probe scaled_queries with H=1, lengths=[1]")
    assert lines[start + 2] == "inputs absent: state; ones: k; as drawn: q; 9 smaller ones asked"
    assert " k: out forgets it 4 parts later" in lines[start:]


def test_a_confirmation_counts_as_a_run():
    text = printed(evaluation())
    assert re.search(r"correctness +✓ +54/54 +3.00", text)
    assert "confirmed with a second salt" in text
    again = printed(confirmed(refusal=taught()))
    assert "confirmed with" not in again
    assert "counterexample: out[3, 0, 17]" in again


def test_the_grade_tells_gated_from_graded():
    variants = [variant(), variant(0.25), variant(0.1, refused=False)]
    made: Grade = grade().model_copy(update={"variants": variants})
    told = "accepted 1/1 honest variants, gated caught 1/1, graded caught 1/2 (all from severity 0.250 on)"
    assert told in printed(evaluation(grade=made)).replace("\n", " ")


@pytest.mark.parametrize("text", ["[bold red]x[/]", "\x1b[2J\x1b]0;title\x07", "[/nothing]", "a\nimproved · 9x"])
def test_candidate_text_is_neither_markup_nor_control(text):
    rows = [row.model_copy(update={"input": text, "axis": text, "outputs": [text] * 2}) for row in influence_map()]
    bad = refusal(reason=text, influence=rows, influence_where=text, smallest=smallest(inputs={text: "ones"}))
    run = evaluation(candidate_name=text, refusal=bad, cells=[cell(text)])
    shown = printed(run)
    assert "\x1b" not in shown
    assert not any(line.startswith("improved") for line in shown.splitlines())
