"""The policy: precedence, what `improved` needs, and the statistics cheats of research/hacks.md."""

import itertools
import math
import statistics

import pytest

from bot.evaluation import BaselineState, BaselineTime, ControlResult, Evaluation, Round
from bot.verdict import ACCEPTED, Kind, Verdict, decide
from tests.report.builders import (
    BASE_NS,
    cell,
    cells,
    evaluation,
    grade,
    noisy,
    refusal,
    simulated,
    stages,
)


def with_stage(name: str, **fields) -> Evaluation:
    return evaluation(stages=[s.model_copy(update=fields) if s.name == name else s for s in stages()])


def with_cells(*made, scored: list[str] | None = None) -> Evaluation:
    names = scored if scored is not None else [one.name for one in made]
    return evaluation(cells=list(made), scored_cells=names)


def with_environment(**fields) -> Evaluation:
    return evaluation(environment=evaluation().environment.model_copy(update=fields))


def rounds(bar: list[int], candidate: list[int]) -> Round:
    return Round(first="candidate", candidate_ns=candidate, baseline_ns=bar)


def text(verdict: Verdict) -> str:
    return "\n".join(verdict.reasons)


def test_a_faster_candidate_with_all_evidence_is_improved():
    verdict = decide([evaluation()])
    assert (verdict.kind, verdict.accepted, verdict.measured, verdict.runs) == (Kind.IMPROVED, True, True, 1)
    assert verdict.speedup is not None
    assert verdict.speedup.low < 1.449 < verdict.speedup.high
    assert verdict.speedup.samples == 160, "40 of each cell pair, in the exam and in the one that confirms it"
    assert {one.direction for one in verdict.cells} == {"faster"}


FINDINGS = {
    Kind.TAMPERED: evaluation(refusal=refusal(kind="tampered")),
    Kind.INCORRECT: evaluation(refusal=refusal()),
    Kind.BUILD_FAILED: evaluation(refusal=refusal(kind="build_failed")),
    Kind.TIMED_OUT: evaluation(refusal=refusal(kind="timed_out")),
    Kind.VERIFIER_WEAK: evaluation(grade=grade(survivors=["controls/constant_norm.py"])),
    Kind.INVALID_MEASUREMENT: with_cells(cell(state="invalid", note="a baseline was lost")),
    Kind.INFRASTRUCTURE: evaluation(infrastructure="the device fell off the bus"),
    Kind.IMPROVED: evaluation(),
}


@pytest.mark.parametrize(("higher", "lower"), list(itertools.combinations(FINDINGS, 2)))
def test_the_graver_finding_decides_whatever_the_order_of_runs(higher, lower):
    for order in ([higher, lower], [lower, higher]):
        verdict = decide([FINDINGS[kind] for kind in order])
        assert verdict.kind is higher
        assert verdict.accepted is (higher in ACCEPTED)
        assert verdict.speedup is None


@pytest.mark.parametrize("kind", [kind for kind in FINDINGS if kind not in ACCEPTED])
def test_a_refusal_alone_is_not_accepted_and_says_why(kind):
    verdict = decide([FINDINGS[kind]])
    assert (verdict.kind, verdict.accepted, verdict.measured) == (kind, False, False)
    assert verdict.reasons


def test_a_refused_honest_variant_makes_the_verifier_weak():
    verdict = decide([evaluation(grade=grade(refused_faithful=["faithful/chunked.py"]))])
    assert verdict.kind is Kind.VERIFIER_WEAK
    assert "refused the honest faithful/chunked.py" in text(verdict)


@pytest.mark.parametrize("field", ["candidate_digest", "contract_digest"])
def test_evaluations_of_something_else_are_not_pooled(field):
    with pytest.raises(ValueError, match=field):
        decide([evaluation(), evaluation(**{field: "ff" * 32})])


def test_nothing_to_decide_on_is_an_error():
    with pytest.raises(ValueError, match="no evaluation"):
        decide([])


def test_quick_is_accepted_and_not_measured():
    verdict = decide([evaluation("quick")])
    assert (verdict.kind, verdict.accepted, verdict.measured) == (Kind.NO_GAIN, True, False)
    assert verdict.reasons == ["not measured"]


def test_an_exam_that_was_not_confirmed_is_not_improved():
    verdict = decide([evaluation(confirmation=None)])
    assert (verdict.kind, verdict.accepted) == (Kind.NO_GAIN, True)
    assert "no confirming exam with a second salt" in text(verdict)


def test_a_confirming_exam_has_a_salt_of_its_own():
    exam = evaluation()
    assert exam.confirmation is not None
    copied = exam.confirmation.model_copy(update={"salt": exam.salt})
    verdict = decide([exam.model_copy(update={"confirmation": copied})])
    assert verdict.kind is Kind.NO_GAIN
    assert "the confirming exam is not one" in text(verdict)


def test_what_the_confirming_exam_refuses_is_refused():
    exam = evaluation()
    assert exam.confirmation is not None
    refused = exam.confirmation.model_copy(update={"refusal": refusal()})
    verdict = decide([exam.model_copy(update={"confirmation": refused})])
    assert (verdict.kind, verdict.accepted) == (Kind.INCORRECT, False)


@pytest.mark.parametrize("stage", ["timing", "influence", "probes"])
def test_a_confirming_exam_needs_evidence_too(stage):
    exam = evaluation()
    assert exam.confirmation is not None
    records = [r.model_copy(update={"done": 0}) if r.name == stage else r for r in exam.confirmation.stages]
    verdict = decide(
        [exam.model_copy(update={"confirmation": exam.confirmation.model_copy(update={"stages": records})})]
    )
    assert verdict.kind in {Kind.NO_GAIN, Kind.INFRASTRUCTURE}
    assert stage in text(verdict)


GATED = ControlResult(file="controls/a.py", variant="gated: while q looks usual", refused=False, where="", margin=0.5)


@pytest.mark.parametrize(
    ("variant", "weak"),
    [
        (GATED, True),
        (GATED.model_copy(update={"severity": 0.7, "variant": "graded: by 0.7"}), True),
        (GATED.model_copy(update={"severity": 0.5, "variant": "graded: by 0.5"}), True),
        (GATED.model_copy(update={"severity": 0.3, "variant": "graded: by 0.3"}), False),
        (GATED.model_copy(update={"refused": True}), False),
    ],
)
def test_a_hidden_control_that_passes_makes_the_verifier_weak_unless_it_is_mild(variant, weak):
    verdict = decide([evaluation(grade=grade().model_copy(update={"variants": [variant]}))])
    assert verdict.kind is (Kind.VERIFIER_WEAK if weak else Kind.IMPROVED)
    assert ("controls/a.py" in text(verdict)) is weak


def test_the_printed_severity_is_where_everything_above_was_caught():
    found = {0.01: False, 0.02: True, 0.05: False, 0.1: True, 0.4: True}
    variants = [
        GATED.model_copy(update={"severity": severity, "refused": refused}) for severity, refused in found.items()
    ]
    graded = grade().model_copy(update={"variants": variants})
    assert graded.severity == 0.1
    assert grade().severity is None
    assert grade().model_copy(update={"variants": variants[:1]}).severity is None


def test_full_may_improve_and_says_that_controls_were_not_run():
    verdict = decide([evaluation("full")])
    assert verdict.kind is Kind.IMPROVED
    assert "controls were not run" in text(verdict)


def test_a_claim_is_never_accepted():
    assert not decide([evaluation("claim", cells=cells())]).accepted
    assert decide([evaluation("claim"), evaluation()]).kind is Kind.INVALID_MEASUREMENT


def test_without_a_sandbox_nothing_is_accepted():
    verdict = decide([with_environment(sandbox="none")])
    assert (verdict.kind, verdict.accepted) == (Kind.INFRASTRUCTURE, False)


@pytest.mark.parametrize("stage", ["build", "smoke", "correctness", "probes"])
@pytest.mark.parametrize("fields", [{"status": "not_run", "done": 0}, {"done": 0}, {"status": "refused"}])
def test_a_check_without_evidence_is_neither_pass_nor_fail(stage, fields):
    verdict = decide([with_stage(stage, **fields)])
    assert verdict.kind is Kind.INFRASTRUCTURE
    assert stage in text(verdict)


def test_a_missing_stage_is_not_a_passed_one():
    assert decide([evaluation(stages=[])]).kind is Kind.INFRASTRUCTURE
    assert decide([evaluation(stages=stages("full"))]).kind is Kind.NO_GAIN


def test_a_comparison_that_was_never_planned_is_no_evidence():
    assert decide([with_stage("correctness", planned=0, done=0)]).kind is Kind.INFRASTRUCTURE
    assert decide([with_stage("probes", planned=0, done=0)]).kind is Kind.NO_GAIN


@pytest.mark.parametrize(
    ("weakened", "reason"),
    [
        (with_stage("timing", done=79), "timing: evidence for 79 of 80"),
        (with_stage("controls", planned=0, done=0), "controls"),
        (evaluation(grade=None), "not graded"),
        (evaluation(checked_timed_calls=0), "no output of a timed call was checked"),
        (evaluation(baselines=[]), "no baseline was available"),
        (evaluation(scored_cells=[]), "no list of scored cells"),
    ],
)
def test_missing_evidence_keeps_a_faster_candidate_from_improved(weakened, reason):
    verdict = decide([weakened])
    assert (verdict.kind, verdict.accepted) == (Kind.NO_GAIN, True)
    assert reason in text(verdict)


def test_an_invalid_timing_stage_is_an_invalid_measurement():
    assert decide([with_stage("timing", status="invalid", note="stalled")]).kind is Kind.INVALID_MEASUREMENT


@pytest.mark.parametrize("change", [{"judge_digest": "ff" * 32}, {"contract_version": 2}])
def test_runs_of_different_judges_do_not_improve(change):
    assert decide([evaluation(), evaluation(**change)]).kind is Kind.NO_GAIN


def test_runs_of_different_devices_do_not_improve():
    assert decide([evaluation(), with_environment(architecture="sm_100a")]).kind is Kind.NO_GAIN


@pytest.mark.parametrize(
    ("speedups", "kind"),
    [
        ((1.5, 1.4), Kind.IMPROVED),
        ((1.0, 1.0), Kind.NO_GAIN),
        ((1.004, 1.004), Kind.NO_GAIN),
        ((0.8, 0.7), Kind.SLOWER),
        ((2.0, 0.8), Kind.MIXED),
        ((1.2, 0.7), Kind.MIXED),
        ((1.0, 1.0, 1.0, 0.97), Kind.NO_GAIN),
    ],
)
def test_the_four_acceptances(speedups, kind):
    verdict = decide([with_cells(*(cell(f"w{i}", speedup=s) for i, s in enumerate(speedups)))])
    assert (verdict.kind, verdict.accepted, verdict.measured) == (kind, True, True)


def test_mixed_names_the_cells():
    verdict = decide([with_cells(cell("long", speedup=2.0), cell("short", speedup=0.8))])
    assert verdict.reasons[:2] == ["faster: long/fast", "slower: short/fast"]


def test_a_mean_that_is_ahead_does_not_hide_a_slower_cell():
    def wavering(name: str, *speedups: float):
        made = cell(name, baselines=[])
        rounds = [
            one.model_copy(update={"baseline_ns": [BASE_NS] * 10, "candidate_ns": [round(BASE_NS / speedup)] * 10})
            for one, speedup in zip(made.rounds, speedups, strict=True)
        ]
        return made.model_copy(update={"rounds": rounds})

    verdict = decide([with_cells(wavering("slow", 0.97, 0.97), *(wavering(f"w{i}", 0.99, 1.2) for i in range(20)))])
    assert verdict.speedup is not None
    assert verdict.speedup.low > 1.01
    assert "faster" not in {one.direction for one in verdict.cells}
    assert verdict.kind is Kind.MIXED


def test_without_two_rounds_in_any_run_the_noise_floor_is_unknown_and_nothing_improved():
    one = cell()
    halves = [with_cells(one.model_copy(update={"rounds": [each]})) for each in one.rounds]
    verdict = decide(halves)
    assert (verdict.kind, verdict.noise_floor) == (Kind.NO_GAIN, None)
    assert "the A/A floor is unknown" in text(verdict)


def test_an_unresolved_cell_cannot_improve_and_leaves_no_mean():
    verdict = decide([with_cells(cell("a"), cell("b", state="unresolved"))])
    assert (verdict.kind, verdict.measured) == (Kind.NO_GAIN, False)
    assert "b/fast: unresolved" in text(verdict)


def test_a_cell_with_one_round_is_unresolved():
    one = cell()
    alone = evaluation(
        cells=[one.model_copy(update={"rounds": one.rounds[:1]})], scored_cells=[one.name], confirmation=None
    )
    assert decide([alone]).cells[0].direction == "unresolved"


def test_a_bar_that_was_not_right_is_no_bar():
    wrong = [BaselineState(name="token_loop", role="reference", state="incorrect")]
    verdict = decide([evaluation(baselines=[*wrong, *evaluation().baselines[1:]])])
    assert verdict.kind is Kind.NO_GAIN
    assert {one.direction for one in verdict.cells} == {"unresolved"}


def test_a_less_accurate_bar_is_said():
    loose = [one.model_copy(update={"less_accurate": True}) for one in evaluation().baselines[:1]]
    assert "the bar token_loop is less accurate" in text(decide([evaluation(baselines=loose)]))


def test_company_that_a_cell_bears_is_told():
    told = "something else was at work on the device before 3 of 14 pairs of calls"
    one, *others = evaluation().cells
    cells = [one.model_copy(update={"note": told}), *others]
    verdict = decide([evaluation(cells=cells)])
    assert verdict.kind is Kind.IMPROVED
    assert f"{one.name}: {told}" in verdict.reasons


def test_the_bar_is_the_lower_of_its_clean_and_interleaved_time():
    slowed = cell(speedup=1.5)
    clean = [BaselineTime(baseline="token_loop", clean_ns=[BASE_NS // 2] * 10)]
    plain, scaled = (decide([with_cells(one)]) for one in (slowed, slowed.model_copy(update={"baselines": clean})))
    assert plain.speedup is not None
    assert scaled.speedup is not None
    assert scaled.speedup.mid == pytest.approx(plain.speedup.mid / 2, rel=0.01)
    assert scaled.kind is Kind.SLOWER


def test_slowing_the_bar_down_in_some_calls_gains_nothing():
    """In each round three of seven calls take ten times as long: the median is that of the upper honest ones, and what
    it is above the bar's time alone is taken off."""
    honest = [100, 103, 97, 101, 104, 98, 99]
    slowed = [1000, 103, 1000, 101, 104, 1000, 99]
    alone = [BaselineTime(baseline="token_loop", clean_ns=honest)]
    equal, cheated = (
        decide([with_cells(cell(baselines=alone, bar="token_loop", rounds=[rounds(bar, honest)] * 2))])
        for bar in (honest, slowed)
    )
    assert equal.speedup is not None
    assert cheated.speedup is not None
    assert cheated.speedup.mid <= equal.speedup.mid
    assert cheated.kind is equal.kind is Kind.NO_GAIN


def test_a_slower_clean_time_gains_nothing():
    clean = [BaselineTime(baseline="token_loop", clean_ns=[BASE_NS * 3] * 10)]
    verdict = decide([with_cells(cell(speedup=1.0, baselines=clean))])
    assert verdict.kind is Kind.NO_GAIN


def test_a_noisy_machine_raises_the_bar_for_improved():
    def unsteady(name: str, speedup: float):
        calm = cell(name, speedup=speedup)
        second = calm.rounds[1]
        slow = second.model_copy(
            update={
                "candidate_ns": [2 * ns for ns in second.candidate_ns],
                "baseline_ns": [2 * ns for ns in second.baseline_ns],
            }
        )
        return calm.model_copy(update={"rounds": [calm.rounds[0], slow], "baselines": []})

    verdict = decide([with_cells(unsteady("a", 1.5), unsteady("b", 1.5))])
    assert verdict.noise_floor == pytest.approx(1.0, abs=0.05)
    assert verdict.kind is Kind.NO_GAIN


# research/hacks.md, family statistics: honest samples, dishonest aggregate.


@pytest.mark.parametrize("value", [0, -1, -(10**15)])
def test_geomean_collapse_a_time_of_nothing_voids_the_measurement(value):
    one = cell("tiny")
    rounds = [r.model_copy(update={"candidate_ns": [value] * len(r.candidate_ns)}) for r in one.rounds]
    verdict = decide([with_cells(cell("big"), one.model_copy(update={"rounds": rounds}))])
    assert (verdict.kind, verdict.speedup) == (Kind.INVALID_MEASUREMENT, None)


def test_geomean_collapse_a_time_below_the_floor_voids_the_measurement():
    verdict = decide([with_cells(cell("a"), cell("b", speedup=1000, floor_ns=BASE_NS // 2))])
    assert verdict.kind is Kind.INVALID_MEASUREMENT
    assert "less than the device's bytes" in text(verdict)


def test_nonpositive_sample_drop_one_bad_sample_is_not_dropped():
    one = cell()
    first = one.rounds[0].model_copy(update={"candidate_ns": [0, *one.rounds[0].candidate_ns[1:]]})
    verdict = decide([with_cells(one.model_copy(update={"rounds": [first, one.rounds[1]]}))])
    assert verdict.kind is Kind.INVALID_MEASUREMENT


def test_outlier_dropping_missing_samples_are_refused():
    one = cell()
    first = one.rounds[0].model_copy(update={"candidate_ns": sorted(one.rounds[0].candidate_ns)[:5]})
    verdict = decide([with_cells(one.model_copy(update={"rounds": [first, one.rounds[1]]}))])
    assert verdict.kind is Kind.INVALID_MEASUREMENT
    assert decide([with_cells(cell(rounds=[]))]).kind is Kind.INVALID_MEASUREMENT


def test_failed_counts_as_one_an_invalid_cell_never_enters_as_one():
    verdict = decide([with_cells(cell("a", speedup=9.0), cell("b", state="invalid"))])
    assert (verdict.kind, verdict.speedup) == (Kind.INVALID_MEASUREMENT, None)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        ([cell("a")], "b/fast: scored but not timed"),
        ([cell("a"), cell("b"), cell("easy", speedup=99)], "easy/fast: timed but not scored"),
        ([cell("a"), cell("b"), cell("b")], "b/fast: stands 2 times"),
    ],
)
def test_cell_omission_and_addition_do_not_improve(made, reason):
    verdict = decide([with_cells(*made, scored=["a/fast", "b/fast"])])
    assert (verdict.kind, verdict.speedup) == (Kind.NO_GAIN, None)
    assert reason in text(verdict)


def test_best_of_n_a_lucky_run_is_pooled_with_the_others():
    plain = [with_cells(cell(speedup=1.0)).model_copy(update={"started_at": str(i)}) for i in range(3)]
    lucky = with_cells(cell(speedup=1.5))
    verdict = decide([*plain, lucky])
    assert decide([lucky]).kind is Kind.IMPROVED
    assert (verdict.kind, verdict.runs) == (Kind.NO_GAIN, 4)


def test_the_same_run_handed_in_twice_counts_once():
    assert decide([evaluation(), evaluation()]) == decide([evaluation()])


def test_the_order_of_runs_does_not_count():
    runs = [evaluation(started_at=str(i)) for i in range(3)]
    assert decide(runs) == decide(runs[::-1])


def test_timed_output_never_checked_is_not_improved():
    assert decide([evaluation(checked_timed_calls=0)]).kind is Kind.NO_GAIN


def test_noise_floor_exemption_short_cells_are_not_exempt():
    short = [cell("long", speedup=2.0), cell("short", state="unresolved", rounds=[])]
    assert decide([with_cells(*short)]).kind is Kind.NO_GAIN


def test_clean_times_without_samples_are_refused():
    empty = [BaselineTime(baseline="token_loop", clean_ns=[])]
    assert decide([with_cells(cell(baselines=empty))]).kind is Kind.INVALID_MEASUREMENT


def test_two_runs_add_their_samples():
    other = [
        one.model_copy(update={"baselines": [BaselineTime(baseline="token_loop", clean_ns=noisy(BASE_NS, 5, "x"))]})
        for one in cells()
    ]
    verdict = decide([evaluation(), evaluation(cells=other)])
    assert verdict.speedup is not None
    assert (verdict.runs, verdict.speedup.samples) == (2, 320)


def test_runs_of_one_workload_alone_are_no_improvement_and_beside_a_whole_one_they_add_samples() -> None:
    part = evaluation(workload="mixed", cells=[cell("mixed", regime) for regime in ("fast", "slow")], salt="12" * 32)
    alone = decide([part])
    assert alone.kind == Kind.NO_GAIN
    assert "no run timed every workload" in alone.reasons
    both = decide([evaluation(), part])
    assert both.kind == Kind.IMPROVED
    assert {one.name: one.ratio.samples for one in both.cells if one.ratio}["mixed/fast"] == 2 * 40


EXAMS = 40
"""Of one kernel, each with noise of its own; 1,560 ordered pairs."""


def logarithms(run: Evaluation) -> tuple[float, float, float]:
    """Of its speedup, of what it says it repeats within, and of its A/A floor."""
    found = decide([run])
    assert found.speedup is not None
    assert found.repeats is not None
    assert found.noise_floor is not None
    return math.log(found.speedup.mid), math.log1p(found.repeats), math.log1p(found.noise_floor)


@pytest.mark.parametrize("rounds", [2, 3])
@pytest.mark.parametrize(
    "noise",
    [
        {"worker": 0.0, "call": 0.05},
        {"worker": 0.01},
        {"worker": 0.01, "clean": False},
        {"worker": 0.02},
    ],
    ids=["calls alone", "calls and workers", "a bar that is slower alone", "workers more than calls"],
)
def test_exams_of_one_kernel_come_out_within_what_they_say_they_repeat(rounds, noise):
    found = [logarithms(simulated(seed, rounds, **noise)) for seed in range(EXAMS)]
    pairs = [(abs(one[0] - other[0]), *one[1:]) for one, other in itertools.permutations(found, 2)]
    assert statistics.fmean(gap <= repeats for gap, repeats, _ in pairs) >= 0.93
    assert statistics.fmean(gap <= floor for gap, _, floor in pairs) < 0.75, "the A/A floor is the bar's, and one gap"
    needed = statistics.quantiles([gap for gap, _, _ in pairs], n=20)[-1]
    assert statistics.median(repeats for _, repeats, _ in found) < 3.5 * needed


def test_what_a_speedup_repeats_within_decides_nothing():
    made = []
    for name in ("a", "b", "c"):
        slow, fast = cell(name, speedup=1.4, baselines=[]).rounds[0], cell(name, speedup=2.4, baselines=[]).rounds[1]
        made.append(cell(name, rounds=[slow, fast], baselines=[]))
    verdict = decide([evaluation("full", cells=made)])
    assert verdict.repeats is not None
    assert verdict.repeats > 0.5
    assert verdict.kind is Kind.IMPROVED, "each worker was faster, though nobody can say by how much"


def test_one_round_does_not_tell_how_far_a_speedup_repeats():
    one = cell()
    alone = with_cells(one.model_copy(update={"rounds": one.rounds[:1]})).model_copy(update={"confirmation": None})
    assert decide([alone]).repeats is None
    assert decide([evaluation(refusal=refusal())]).repeats is None


def test_several_runs_are_held_against_each_other_as_wholes():
    apart_by_a_tenth = [with_cells(cell(speedup=speedup)) for speedup in (1.5, 1.65)]
    alone = [decide([run]).repeats for run in apart_by_a_tenth]
    together = decide(apart_by_a_tenth).repeats
    assert together is not None
    assert all(one is not None and one < 0.02 for one in alone)
    assert together > 0.1


def test_a_run_of_one_workload_is_no_repetition_of_the_whole():
    part = evaluation(workload="mixed", cells=[cell("mixed", r, 1.4) for r in ("fast", "slow")], salt="12" * 32)
    both = decide([evaluation(), part])
    assert both.speedup is not None
    assert both.repeats is not None
    assert both.repeats < 0.02, "1.4x in its two cells is 3 % below the 1.449x of all four"
