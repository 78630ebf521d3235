"""What GitHub takes, whatever an evaluation holds: the verdict stays, detail folds."""

import pytest

from bot.github import sticky
from bot.github.api import BODY_LIMIT
from bot.handlers.stale import BANNER_LIMIT
from bot.report.comment import COMMENT_LIMIT, SUMMARY_BYTES, ReportFacts, render_comment, render_full
from bot.report.echo import Understood, render_echo
from bot.verdict import decide
from tests.report.builders import agent_run, cell, evaluation, refused, report_facts


def large(count: int) -> ReportFacts:
    """A report of so many cells, and as many refused candidates."""
    cells = [cell(f"workload_{number:04d}", "fast", pairs=2) for number in range(count)]
    run = agent_run(*(refused(number + 1, reason="x" * 400) for number in range(min(count, 200))))
    return report_facts(evaluation(cells=cells, confirmation=None)).model_copy(update={"agent_run": run})


def test_a_comment_has_its_verdict_and_a_step_summary_the_rows_that_a_comment_leaves_out() -> None:
    facts = large(220)
    comment, whole = render_comment(facts), render_full(facts)
    assert len(comment) <= COMMENT_LIMIT
    assert len(whole.encode()) <= SUMMARY_BYTES
    first = decide(facts.evaluations).kind.value
    assert first in comment.splitlines()[0]
    assert first in whole.splitlines()[0]
    assert "more left out here for length" in comment
    assert whole.count("workload_") > comment.count("workload_")


def test_a_step_summary_is_counted_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = large(40)
    least = len(render_full(facts).encode()) - 1
    monkeypatch.setattr("bot.report.comment.SUMMARY_BYTES", least)
    folded = render_full(facts)
    assert len(folded.encode()) <= least
    assert len(folded) < len(folded.encode()), "signs of several bytes are in it"
    assert decide(facts.evaluations).kind.value in folded.splitlines()[0]


def test_a_report_has_room_for_its_marker_and_for_saying_that_it_is_stale() -> None:
    longest = "x" * BANNER_LIMIT + "\n\n" + "y" * COMMENT_LIMIT
    assert len(sticky.marked("report", 10**18, longest)) <= BODY_LIMIT


def test_an_echo_of_the_longest_request_is_short() -> None:
    text = "`|@<!--\n" * 1000
    echo = render_echo(
        Understood(
            contract="c" * 64,
            version=1,
            contract_digest="0" * 64,
            request_digest="0" * 64,
            start="incumbent",
            incumbents={f"sm_{n}": text for n in range(100, 112)},
            anchors=["w" * 40] * 16,
            workloads=1,
            cells=1,
            device="cuda",
            target="sm_100",
            runners=16,
            hardware=text,
            rules=[text] * 3,
            criteria=text,
            share=100.0,
            hidden=[text] * 10_000,
            turns=60,
            tokens=4_000_000,
            seconds=3600.0,
            headroom=1.05,
            best=text,
            headroom_cells=1,
            measured_at="2026-12-01",
            exam_seconds=1.0,
            exams=1,
            agent_seconds=1.0,
            agent_tokens=1.0,
            agents=1,
        )
    )
    assert len(echo) < BODY_LIMIT // 4
    assert "<!--" not in echo
    rows = [line for line in echo.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {3}, "no text of theirs makes a column"
