"""Several runs of one candidate: what is said of each, of chance, and of what differs."""
# ruff: noqa: E501 - the expected comments stand as they are

import re

import pytest
from inline_snapshot import snapshot

from bot.evaluation import BaselineState, Evaluation, Gpu, GpuState
from bot.report.comment import render_comment, render_summary
from bot.report.runs import Difference, RunRow, run_rows
from bot.verdict import Kind, decide
from tests.report.builders import cell, evaluation, refusal, report_facts, simulated
from tests.report.test_comment import HOSTILE, visible_outside_code

QUIET = GpuState(sm_mhz=1980, celsius=38, throttled=[], foreign_processes=0)
GPU = Gpu(
    capability="sm_90",
    driver="580.1",
    cuda="13.0",
    memory_bytes=140 << 30,
    cache_bytes=60 << 20,
    bytes_per_second=4.1532e12,
    operations_per_second=7.42e14,
    before=QUIET,
    after=QUIET,
)


def slowed(run: Evaluation, factor: float) -> Evaluation:
    """The run with the candidate's times so many times as long, in its confirmation too."""
    cells = [
        one.model_copy(
            update={
                "rounds": [
                    r.model_copy(update={"candidate_ns": [round(factor * ns) for ns in r.candidate_ns]})
                    for r in one.rounds
                ]
            }
        )
        for one in run.cells
    ]
    again = slowed(run.confirmation, factor) if run.confirmation else None
    return run.model_copy(update={"cells": cells, "confirmation": again})


def on(run: Evaluation, **fields) -> Evaluation:
    """The run on a machine with these conditions, in its confirmation too."""
    again = on(run.confirmation, **fields) if run.confirmation else None
    machine = run.environment.model_copy(update=fields)
    return run.model_copy(update={"environment": machine, "confirmation": again})


def rows(*runs: Evaluation) -> list[RunRow]:
    return run_rows(runs, decide(runs))


def runs_of(text: str) -> str:
    found = re.search(r"^\*\*Runs\*\*.*?(?=\n\n\| workload)", text, re.MULTILINE | re.DOTALL)
    assert found
    return found[0]


def test_runs_stand_beside_each_other_as_the_reader_sees_them():
    hot = QUIET.model_copy(update={"sm_mhz": 1410, "celsius": 71, "throttled": ["sw_thermal"]})
    gpus = [GPU, GPU, GPU.model_copy(update={"driver": "590.2", "after": hot})]
    runs = [on(simulated(seed, 3), gpu=gpu) for seed, gpu in enumerate(gpus)]
    runs[2] = slowed(runs[2], 1.12)
    assert runs_of(render_comment(report_facts(*runs))) == snapshot("""\
**Runs** run 3: 1.31x (1.29–1.33, n=126), −9.6 %, outside noise (±2.2 %) · reproduced 3 of 3

| run | alone | bar ÷ candidate | from all pooled | what differs |
|--:|---|--:|--:|---|
| 1 | improved | 1.48x (1.44–1.50, n=126) | **+2.4 %, outside noise (±2.2 %)** | from run 3: driver `590.2` → `580.1`, throttled by `sw_thermal` → `nothing`, SM clock `1410–1980 MHz` → `1980 MHz`, temperature `38–71 °C` → `38 °C`; times of the candidate −12 %, of the bar −0.30 % |
| 2 | improved | 1.49x (1.47–1.52, n=126) | **+3.4 %, outside noise (±2.2 %)** | from run 3: driver `590.2` → `580.1`, throttled by `sw_thermal` → `nothing`, SM clock `1410–1980 MHz` → `1980 MHz`, temperature `38–71 °C` → `38 °C`; times of the candidate −12 %, of the bar +0.40 % |
| 3 | improved | 1.31x (1.29–1.33, n=126) | **−9.6 %, outside noise (±2.2 %)** | from run 2: driver `580.1` → `590.2`, throttled by `nothing` → `sw_thermal`, SM clock `1980 MHz` → `1410–1980 MHz`, temperature `38 °C` → `38–71 °C`; times of the candidate +13 %, of the bar −0.40 % |\
""")


def test_a_summary_says_it_in_one_line():
    shown = render_summary(report_facts(simulated(1, 3), simulated(2, 3)))
    assert runs_of(shown) == snapshot(
        "**Runs** run 2: 1.46x (1.44–1.49, n=126), −1.1 %, inside noise (±1.8 %) · reproduced 2 of 2"
    )


def test_a_single_run_says_nothing_of_runs_even_when_handed_in_twice():
    assert rows(evaluation(), evaluation()) == []
    assert "**Runs**" not in render_comment(report_facts())


def test_runs_that_only_chance_parts_are_inside_the_noise_and_need_no_explanation():
    found = rows(*(simulated(seed, 3) for seed in range(5)))
    assert [row.outside for row in found] == [False] * 5
    assert all(row.noise and not row.differs and row.moved is None for row in found)
    assert [row.number for row in found] == [1, 2, 3, 4, 5]


def test_a_rerun_that_need_not_grade_the_judge_again_is_under_the_same_conditions():
    """The first is an exam, those after it are measured in full: that is what a rerun is, and no drift."""
    again = simulated(1).model_copy(update={"mode": "full", "grade": None, "confirmation": None})
    assert [row.differs for row in rows(simulated(0), again)] == [[], []]


@pytest.mark.parametrize("factor", [0.85, 1.2])
def test_a_run_outside_the_noise_tells_which_side_moved(factor):
    found = rows(simulated(0, 3), simulated(1, 3), slowed(simulated(2, 3), factor))[2]
    assert found.outside
    assert found.moved is not None
    assert found.moved.candidate == pytest.approx(factor - 1, abs=0.03)
    assert found.moved.bar == pytest.approx(0, abs=0.03)
    shown = render_comment(report_facts(simulated(0, 3), simulated(1, 3), slowed(simulated(2, 3), factor)))
    assert re.search(r"from run [12]: nothing on record; times of the candidate", shown)


ACCEPTED = [BaselineState(name="chunked_fp32", role="competitor", state="available")]


@pytest.mark.parametrize(
    ("changed", "difference"),
    [
        (on(evaluation(), torch="2.14.0"), Difference("torch", "2.13.0+cpu", "2.14.0")),
        (on(evaluation(), device="AMD EPYC"), Difference("device", "cpu", "AMD EPYC")),
        (evaluation(judge_digest="ab" * 32), Difference("judge", "9d31000", "abababa")),
        (evaluation(baselines=ACCEPTED), Difference("baselines", "chunked_fp32, token_loop", "chunked_fp32")),
        (
            evaluation(cells=[one.model_copy(update={"bar": "chunked_fp32"}) for one in evaluation().cells]),
            Difference("bar", "token_loop", "chunked_fp32"),
        ),
    ],
    ids=["torch", "device", "judge", "baselines", "bar"],
)
def test_conditions_that_differ_are_named_of_a_run_inside_the_noise_too(changed, difference):
    first, second = rows(evaluation(), changed)
    assert first.differs == []
    assert difference in second.differs
    assert second.against == 1


def test_a_library_that_is_another_is_named():
    one, two = (on(evaluation(), packages={"triton": version, "numpy": "2.4"}) for version in ("3.6.0", "3.7.0"))
    assert rows(one, two)[1].differs == [Difference("triton", "3.6.0", "3.7.0")]


def test_what_held_the_clock_back_and_who_else_was_there_is_named_and_a_degree_more_is_not():
    busy = QUIET.model_copy(update={"celsius": 39, "throttled": ["sw_power"], "foreign_processes": 2})
    again = on(simulated(1), gpu=GPU.model_copy(update={"before": busy, "bytes_per_second": 4.16e12}))
    assert rows(on(simulated(0), gpu=GPU), again)[1].differs == [
        Difference("throttled by", "nothing", "sw_power"),
        Difference("foreign processes", "0", "2"),
    ]


def test_a_run_that_is_refused_does_not_reproduce_and_leaves_no_figure_of_all():
    found = rows(evaluation(), evaluation(refusal=refusal()))
    assert [row.agrees for row in found] == [True, False]
    assert [row.off for row in found] == [None, None]
    assert found[0].verdict.speedup is not None
    shown = render_comment(report_facts(evaluation(), evaluation(refusal=refusal())))
    assert "**Runs** run 2: incorrect · reproduced 1 of 2" in shown


def test_another_conclusion_is_counted():
    runs = [evaluation(), evaluation(salt="12" * 32), slowed(evaluation(salt="34" * 32), 1.6)]
    found = rows(*runs)
    assert [row.verdict.kind for row in found] == [Kind.IMPROVED, Kind.IMPROVED, Kind.SLOWER]
    assert "reproduced 2 of 3" in render_comment(report_facts(*runs))


@pytest.mark.parametrize(("factor", "agrees"), [(1.0, True), (1.6, False)])
def test_a_run_of_one_workload_is_compared_in_its_own_cells(factor, agrees):
    part = slowed(
        evaluation(workload="mixed", cells=[cell("mixed", regime, 1.4) for regime in ("fast", "slow")]), factor
    )
    row = rows(evaluation(), part)[1]
    assert row.verdict.kind in {Kind.NO_GAIN, Kind.SLOWER}, "alone it is not the whole"
    assert row.agrees is agrees
    assert row.off is not None
    assert (abs(row.off) < 0.01) is agrees, "in these cells all are 1.4x, and in the others 1.5x"


def test_runs_of_different_workloads_alone_have_nothing_in_common():
    one, other = (
        evaluation(workload=name, cells=[cell(name)], salt=salt * 32) for name, salt in (("a", "12"), ("b", "34"))
    )
    found = rows(one, other)
    assert [row.noise for row in found] == [None, None]
    assert not any(row.outside for row in found)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_conditions_stay_inside_code_spans(text):
    bad = GPU.model_copy(
        update={"driver": text, "cuda": text, "after": QUIET.model_copy(update={"throttled": [text] * 3})}
    )
    loose = [BaselineState(name=text, role="official", state="available")]
    run = on(evaluation(workload=text, baselines=loose), gpu=bad, torch=text, system=text, python=text, device=text)
    shown = render_comment(report_facts(on(evaluation(), gpu=GPU), run))
    table = runs_of(shown)
    assert "driver" in table
    assert len({line.count("|") for line in table.splitlines() if line.startswith("|")}) == 1
    assert not re.search(r"@maintainer|deadbee|evil|script|onerror|99x|\{\{|GH-|x{61}", visible_outside_code(table))
    assert "<!--" not in table
