"""What a report says of a GPU alone: claims by device events, the roofline, calls that are mostly overhead, the clock."""
# ruff: noqa: E501 - the expected rows stand as they are

import re

import pytest

from bot.evaluation import Build, Cell, Evaluation, Gpu, GpuState, Inspected, Latency
from bot.report.comment import render_comment, render_summary
from bot.report.tables import LongClaims, long_claims, time_table
from bot.verdict import decide
from tests.report.builders import BASE_NS, cell, evaluation, report_facts
from tests.report.test_comment import HOSTILE, visible_outside_code

STATE = GpuState(sm_mhz=1980, memory_mhz=3201, celsius=36, throttled=[], foreign_processes=0)
H200 = Gpu(
    capability="sm_90",
    driver="580.1",
    cuda="13.0",
    memory_bytes=140 << 30,
    cache_bytes=60 << 20,
    bytes_per_second=4.2e12,
    operations_per_second=7.42e14,
    ceilings_sm_mhz=1980,
    before=STATE,
    after=STATE.model_copy(update={"celsius": 37}),
)


def on(gpu: Gpu | None, *cells: Cell) -> Evaluation:
    """A full exam of these cells on this GPU."""
    made = evaluation("full", cells=list(cells))
    machine = {"device": "NVIDIA H200", "architecture": "sm_90", "gpu": gpu} if gpu else {}
    return made.model_copy(update={"environment": made.environment.model_copy(update=machine)})


def claiming(of_candidate: float, of_bar: float = 0.9, **fields) -> Cell:
    """A cell whose processes claim such shares of what our clock says, call by call."""
    made = cell(**fields)
    return made.model_copy(
        update={
            "claimed_ns": [round(of_candidate * ns) for one in made.rounds for ns in one.candidate_ns],
            "baseline_claimed_ns": [round(of_bar * ns) for one in made.rounds for ns in one.baseline_ns],
        }
    )


def row_of(shown: str, workload: str) -> list[str]:
    found = re.search(rf"^\| {workload} \| (.*) \|$", shown, re.MULTILINE)
    assert found is not None, shown
    return found[1].split(" | ")


def test_claims_stand_beside_our_times_and_beside_the_roofline() -> None:
    timed = claiming(0.8, speedup=2.0, floor_ns=BASE_NS // 4, moving_ns=BASE_NS // 4, computing_ns=BASE_NS // 5)
    shown = render_comment(report_facts(on(H200, timed)))
    assert "bar ÷ candidate | | device events, ms | roofline |" in shown
    assert row_of(shown, "T256_H4")[-2:] == ["1.60, 3.59", "50 % (63 %)"]
    row = time_table([on(H200, timed)], decide([on(H200, timed)])).rows[0]
    assert row.roofline == pytest.approx(0.5, rel=0.01)
    assert row.claimed_roofline == pytest.approx(0.625, rel=0.01)


def test_on_a_cpu_a_claim_says_nothing_new() -> None:
    shown = render_comment(report_facts(on(None, claiming(0.8))))
    assert "device events" not in shown
    assert "| floor |" in shown


def test_of_an_evaluation_without_the_bars_claims_the_candidates_are_shown() -> None:
    timed = claiming(0.8, speedup=2.0).model_copy(update={"baseline_claimed_ns": []})
    assert row_of(render_comment(report_facts(on(H200, timed))), "T256_H4")[-2] == "1.60, –"


def test_the_roofline_is_that_of_the_clock_it_was_timed_at() -> None:
    parts = {"floor_ns": BASE_NS // 4, "moving_ns": BASE_NS // 8, "computing_ns": BASE_NS // 4}
    slow = H200.model_copy(update={"before": STATE.model_copy(update={"sm_mhz": 1320}), "after": None})
    timed = cell(speedup=1.0).model_copy(update=parts)
    rows = [time_table([run], decide([run])).rows[0] for run in (on(H200, timed), on(slow, timed))]
    assert [row.roofline for row in rows] == pytest.approx([0.25, 0.375], rel=0.01)


@pytest.mark.parametrize("where", ["comment", "summary"])
def test_where_a_call_costs_more_than_its_kernel_it_is_launch_bound(where: str) -> None:
    cells = [
        cell("short", overhead_ns=BASE_NS // 2, speedup=1.5),
        cell("long", overhead_ns=BASE_NS // 4, speedup=1.5),
        cell("hosted", host_bound=["candidate"]),
        cell("bar", host_bound=["baseline"]),
    ]
    render = render_comment if where == "comment" else render_summary
    shown = render(report_facts(on(H200, *cells)))
    marked = [name for name in ("short", "long", "hosted", "bar") if "launch-bound" in row_of(shown, name)[-2]]
    assert marked == ["short", "hosted"]
    assert "\nlaunch-bound, in 2 of 4 cells: more than half of the candidate's time is what a call" in shown
    assert "(up to 2.00 ms)" in shown
    assert "launch-bound" not in render(report_facts(on(None, *cells))), "on a CPU nothing is launched"


@pytest.mark.parametrize(
    ("of_candidate", "of_bar", "expected"),
    [
        (0.9, 0.9, []),
        (1.005, 1.005, []),
        (1.2, 0.9, [("candidate", 2)]),
        (0.9, 1.2, [("bar", 2)]),
        (0.0, 0.9, []),
    ],
)
def test_a_claim_that_is_longer_than_our_time_is_told(of_candidate, of_bar, expected) -> None:
    run = on(H200, claiming(of_candidate, of_bar, workload="a"), claiming(of_candidate, of_bar, workload="b"))
    found = long_claims([run], decide([run]))
    assert [(one.kernel, one.cells) for one in found] == expected
    told = [
        f"events the {kernel} takes longer than the verifier's clock says in 2 of 2 cells" for kernel, _ in expected
    ]
    shown = render_comment(report_facts(run))
    assert [line for line in told if line in shown] == told
    assert ("is outside these times" in shown) == bool(expected)
    other = on(None, *run.cells)
    assert long_claims([other], decide([other])) == [], "on a CPU it says nothing new"


def test_the_cell_where_a_claim_is_longest_is_named() -> None:
    run = on(H200, claiming(1.2, workload="a", speedup=2.0), claiming(1.5, workload="b", speedup=2.0))
    (found,) = long_claims([run], decide([run]))
    assert found == LongClaims("candidate", 2, "b/fast", found.claimed_ns, found.own_ns)
    assert found.claimed_ns / found.own_ns == pytest.approx(1.5, rel=1e-6)


def test_the_device_around_one_run_is_told() -> None:
    shown = render_comment(report_facts(on(H200, cell())))
    assert (
        "\n- its device when timed: SM clock 1980 MHz, memory 3201 MHz, 36–37 °C, throttled by nothing, 0 other processes on the device; at best 4.20 TB/s and 742 T/s of matrix operations, measured at 1980 MHz\n"
        in shown
    )
    hot = STATE.model_copy(update={"sm_mhz": 1500, "memory_mhz": None, "throttled": ["power"], "foreign_processes": 1})
    shown = render_comment(report_facts(on(H200.model_copy(update={"after": hot, "before": None}), cell())))
    assert "SM clock 1500 MHz, 36 °C, throttled by power, 1 other process on the device;" in shown
    idle = H200.model_copy(update={"before": None, "after": None})
    assert "its device" not in render_comment(report_facts(on(idle, cell())))


@pytest.mark.parametrize("text", HOSTILE)
def test_what_is_said_to_throttle_it_stays_inside_code_spans(text: str) -> None:
    hostile = STATE.model_copy(update={"throttled": [text]})
    shown = render_comment(report_facts(on(H200.model_copy(update={"after": hostile}), cell())))
    line = next(line for line in shown.splitlines() if "its device when timed" in line)
    assert line.endswith("measured at 1980 MHz")
    assert not re.search(r"@maintainer|deadbee|evil|script|onerror|99x|\{\{|GH-|x{61}|<!--", visible_outside_code(line))


def built(**of) -> Build:
    figures = {"registers": 40, "spill_bytes": 0, "stack_bytes": 0, "shared_bytes": 2048, "instructions": {"mma": 2}}
    return Build(kernel="_rows", architecture="sm_90a", cubin_sha256="0" * 64, **{**figures, **of})


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (
            Inspected(
                workload="w",
                builds=[built(), built(registers=168, shared_bytes=98304, instructions={"wgmma": 4, "ldg.128": 9})],
                seconds=1.0,
            ),
            "for sm_90a: 2 kernels, at most 168 registers a thread, no spills, 96 KiB of shared memory a block, with wgmma and mma; two builds are alike",
        ),
        (
            Inspected(workload="w", builds=[built(spill_bytes=64, instructions={})], differences=["x"], seconds=1.0),
            "for sm_90a: 1 kernel, at most 40 registers a thread, 64 bytes of spills, 2.0 KiB of shared memory a block; two builds differ",
        ),
        (
            Inspected(workload="w", builds=[], refusals=["sm_90a: nothing compiled"], seconds=1.0),
            "none was found: it was not compiled by Triton or CuTe-DSL",
        ),
    ],
)
def test_the_machine_code_of_a_candidate_is_told_in_one_line(found: Inspected, expected: str) -> None:
    run = on(H200, claiming(0.8)).model_copy(update={"machine_code": found})
    assert f"- its machine code {expected}\n" in render_comment(report_facts(run))


def test_where_the_time_of_an_exam_went_is_told_beside_it() -> None:
    spent = Latency(start=3.21, compile=2.4, draw=0.4, oracle=1.25, check=2.0, time=0.0)
    run = on(H200, claiming(0.8)).model_copy(update={"latency": spent})
    assert " s (start 3.2 s, compile 2.4, draw 0.40, oracle 1.2, check 2.0, time 0), " in render_comment(
        report_facts(run)
    )


def test_a_launch_bound_cell_has_its_graph_replay_beside_it() -> None:
    bound = claiming(0.8, overhead_ns=BASE_NS, replay_ns=4_100, baseline_replay_ns=9_200)
    shown = render_comment(report_facts(on(H200, bound)))
    assert "launch-bound (graph replay 0.00410, 0.00920)" in shown
    assert "Graph replay: candidate and bar in ms as a captured call" in shown
    without = render_comment(report_facts(on(H200, claiming(0.8, overhead_ns=BASE_NS))))
    assert "launch-bound |" in without
    assert "raph replay" not in without
