"""Rows computed from facts."""

import pytest

from bot.evaluation import ControlResult
from bot.report import tables
from bot.verdict import decide
from tests.report.builders import BASE_NS, accuracy, agent_run, cell, confirmed, evaluation, grade, refused, stages


def table(*runs):
    return tables.time_table(list(runs), decide(list(runs)))


def test_the_bar_leads_and_other_available_baselines_follow():
    times = table(evaluation())
    assert times.bar is not None
    assert times.bar.name == "token_loop"
    assert [state.name for state in times.columns] == ["chunked_fp32"]
    assert [state.name for state in times.missing] == ["fla"]


def test_each_workload_shows_its_slowest_regime():
    made = [cell("w", "fast", 1.5), cell("w", "slow", 1.1), cell("v", "fast", 2.0)]
    shown = table(evaluation(cells=made)).slowest
    assert [row.cell.name for row in shown] == ["v/fast", "w/slow"]


def test_a_cell_without_ratio_is_the_slowest():
    made = [cell("w", "fast", 1.5), cell("w", "slow", state="unresolved", rounds=[])]
    assert [row.cell.regime for row in table(evaluation(cells=made)).slowest] == ["slow"]


def test_an_unsound_sample_shows_no_time():
    one = cell()
    rounds = [r.model_copy(update={"candidate_ns": [0] * len(r.candidate_ns)}) for r in one.rounds]
    row = table(evaluation(cells=[one.model_copy(update={"rounds": rounds})])).rows[0]
    assert row.candidate_ns is None
    assert row.bar_ns == pytest.approx(BASE_NS, rel=0.01)


def test_the_floor_is_shown_as_a_share():
    row = table(evaluation(cells=[cell(speedup=1.0, floor_ns=BASE_NS // 4)])).rows[0]
    assert row.roofline == pytest.approx(0.25, rel=0.01)


def test_bars_that_differ_have_no_common_column():
    made = [cell("w"), cell("v", bar="chunked_fp32")]
    times = table(evaluation(cells=made))
    assert times.bar is None
    assert len(times.columns) == 2


def test_of_several_runs_the_worst_error_is_shown():
    runs = [evaluation(), evaluation(accuracy=[accuracy(error=1.5)])]
    rows = tables.accuracy_rows(runs)
    assert [(row.kernel, row.worst.median) for row in rows] == [(None, 1.5), ("token_loop", 0.95)]


@pytest.mark.parametrize(("error", "output"), [(0.9, None), (1.0, None), (1.4, "out")])
def test_less_accurate_means_more_than_a_tenth_worse_than_the_bar(error, output):
    run = evaluation(accuracy=[accuracy(error=error), accuracy("token_loop", error=1.0)])
    assert tables.less_accurate([run], "token_loop") == output
    assert tables.less_accurate([run], "another") is None


def test_the_draws_of_a_confirmation_are_no_loss_against_a_bar_that_was_not_asked_them():
    exam = confirmed(accuracy=[accuracy(error=1.5)])
    runs = exam.model_copy(update={"accuracy": [accuracy(error=0.5), accuracy("token_loop", error=0.5)]}).runs
    assert tables.accuracy_rows(runs)[0].worst.median == 1.5
    assert tables.less_accurate(runs, "token_loop") is None
    worse = runs[0].model_copy(update={"accuracy": [accuracy(error=0.9), accuracy("token_loop", error=0.5)]})
    assert tables.less_accurate([worse, runs[1]], "token_loop") == "out"


def test_stage_checks_add_up_and_the_worst_status_shows():
    worse = [s.model_copy(update={"status": "refused", "done": 3}) if s.name == "probes" else s for s in stages()]
    row = next(r for r in tables.stage_rows([evaluation(), evaluation(stages=worse)]) if r.name == "probes")
    assert (row.status, row.done, row.planned) == ("refused", 12, 18)


def test_the_grade_counts_survivors_and_the_weakest_margin():
    found = tables.grade_row([evaluation(grade=grade(survivors=["controls/constant_norm.py"]))])
    assert found == tables.GradeRow(
        caught=1,
        controls=2,
        weakest=4.4,
        accepted=1,
        faithful=1,
        gated_caught=0,
        gated=0,
        graded_caught=0,
        graded=0,
        severity=None,
    )
    assert tables.grade_row([evaluation("full")]) is None


@pytest.mark.parametrize(
    ("severities", "shown"),
    [
        ([[(0.1, False), (0.3, True), (0.9, True)], [(0.2, True), (0.7, True)]], 0.3),
        ([[(0.3, True)], []], 0.3),
        ([[(0.3, True)], [(0.9, False)]], None),
        ([[], []], None),
    ],
)
def test_the_severity_is_one_from_which_on_every_run_caught_all(severities, shown):
    runs = [
        evaluation(grade=grade().model_copy(update={"variants": [variant(*pair) for pair in run] + [variant()]}))
        for run in severities
    ]
    row = tables.grade_row(runs)
    assert row is not None
    assert row.severity == shown
    assert (row.gated_caught, row.gated, row.graded) == (2, 2, sum(map(len, severities)))


def variant(severity: float | None = None, refused: bool = True) -> ControlResult:
    return ControlResult(
        file="controls/a.py", variant="v", severity=severity, refused=refused, where="", margin=3.0 if refused else None
    )


def test_a_claim_is_what_the_candidate_would_have_counted():
    rows = tables.refused_rows(agent_run(refused(1, claimed=3.74), refused(2, claimed=None)))
    assert rows[0].claimed == pytest.approx(3.74, rel=0.01)
    assert rows[1].claimed is None


def test_a_claim_without_rounds_falls_back_on_what_the_process_says():
    claim = evaluation("claim", cells=[cell(rounds=[], claimed_ns=[BASE_NS // 4] * 3)])
    assert tables.claimed_ratio(claim) == pytest.approx(4.0, rel=0.02)
    assert tables.claimed_ratio(evaluation("claim")) is None


def test_an_accepted_attempt_is_not_in_the_table_of_refused_ones():
    good = refused(1)
    kept = good.model_copy(update={"evaluation": evaluation("quick")})
    assert tables.refused_rows(agent_run(kept)) == []
    assert tables.refused_rows(None) == []
