"""The loop: what ends a run, what a run costs, and what it leaves behind."""

import json
from pathlib import Path

import pytest

from bot.agent.task import (
    Budget,
    InfrastructureFailed,
    ModelFailed,
    ModelStopped,
    Submitted,
    TimeSpent,
    TokensSpent,
    TurnsSpent,
)
from bot.errors import ModelError, UsageError
from tests.agent.conftest import CHEAT, HONEST, KERNEL, Clock, Examiner, Play, broken, call, turn, write

CHECK = call("check", path=KERNEL)
SUBMIT = call("submit", path=KERNEL)


def test_an_honest_kernel_is_submitted_with_its_attempt_and_source(play: Play) -> None:
    played = play(turn(write(CHEAT), CHECK), turn(write(HONEST), CHECK), turn(SUBMIT))
    submitted = played.outcome.submitted
    assert played.outcome.stop == Submitted(attempt=2)
    assert submitted is not None
    assert (submitted.name, submitted.source, submitted.attempt) == ("torch_toy", HONEST, 2)
    run = played.outcome.agent_run
    assert (run.submitted, run.turns, run.stopped) == (True, 3, "submitted attempt 2")
    assert [a.evaluation.candidate_digest == submitted.candidate_digest for a in run.attempts] == [False, True]


@pytest.mark.parametrize(
    ("source", "checked"), [(CHEAT, True), (HONEST, False)], ids=["refused by its check", "never checked"]
)
def test_a_kernel_that_no_check_accepted_is_not_submitted(play: Play, source: str, checked: bool) -> None:
    played = play(turn(write(source), *([CHECK] if checked else [])), turn(SUBMIT))
    assert played.outcome.submitted is None
    assert not played.outcome.agent_run.submitted
    assert played.answers()[-1][1]
    assert isinstance(played.outcome.stop, ModelStopped)


def test_a_kernel_changed_after_its_check_is_not_submitted(play: Play) -> None:
    played = play(turn(write(HONEST), CHECK, write(CHEAT), SUBMIT))
    assert played.outcome.submitted is None
    assert "not checked as it stands now" in played.answers()[-1][0]


def test_calls_after_a_submission_are_not_run(play: Play) -> None:
    played = play(turn(write(HONEST), CHECK, SUBMIT, write("# later")))
    assert played.outcome.submitted is not None
    assert (played.folder / KERNEL).read_text() == HONEST


def test_the_turn_budget_ends_the_run(play: Play) -> None:
    played = play(*[turn(call("read", path="."))] * 5, budget=Budget(turns=3))
    assert played.outcome.stop == TurnsSpent(turns=3)
    assert len(played.model.shown) == 3


def test_the_token_budget_ends_the_run_before_the_next_call(play: Play) -> None:
    played = play(*[turn(call("read", path="."), tokens=60)] * 5, budget=Budget(tokens=100))
    assert played.outcome.stop == TokensSpent(tokens=120)
    assert played.outcome.agent_run.input_tokens == 120


def test_the_time_budget_ends_the_run_and_keeps_its_attempts(play: Play) -> None:
    played = play(turn(write(HONEST), CHECK), turn(SUBMIT), budget=Budget(seconds=1.5))
    assert played.outcome.stop == TimeSpent(seconds=2.0)
    assert len(played.outcome.agent_run.attempts) == 1


def test_a_passing_failure_of_the_model_is_tried_again(play: Play) -> None:
    passing = ModelError("overloaded", retryable=True)
    played = play(passing, passing, turn(write(HONEST), CHECK), turn(SUBMIT))
    assert played.outcome.submitted is not None
    assert played.outcome.agent_run.turns == 2


def test_a_lasting_failure_of_the_model_ends_the_run_at_once(play: Play) -> None:
    played = play(turn(write(HONEST), CHECK), ModelError("wrong key"))
    assert played.outcome.stop == ModelFailed(reason="wrong key")
    assert len(played.model.shown) == 2
    assert len(played.outcome.agent_run.attempts) == 1


def test_the_third_passing_failure_of_the_model_ends_the_run(play: Play) -> None:
    played = play(*[ModelError("overloaded", retryable=True)] * 3)
    assert played.outcome.stop == ModelFailed(reason="overloaded")


def test_two_failures_of_the_verifier_are_mended_by_trying_again(play: Play, examiner: Examiner) -> None:
    examiner.failures = [broken(), broken()]
    played = play(turn(write(HONEST), CHECK), turn(SUBMIT))
    assert examiner.modes == ["quick"] * 3
    assert played.outcome.submitted is not None
    assert played.outcome.agent_run.feedback_seconds == [6.0]


@pytest.mark.parametrize(
    "failure", [broken("no device"), UsageError("no such contract")], ids=["no device", "wrong job"]
)
def test_a_verifier_that_keeps_failing_ends_the_run_and_says_why(
    play: Play, examiner: Examiner, failure: Exception
) -> None:
    examiner.failures = [failure] * 3
    played = play(turn(write(HONEST), CHECK), turn(SUBMIT))
    assert isinstance(played.outcome.stop, InfrastructureFailed)
    assert str(failure) in played.outcome.agent_run.stopped
    assert played.outcome.submitted is None


def test_without_a_sandbox_nothing_is_accepted(play: Play, examiner: Examiner) -> None:
    examiner.sandbox = False
    played = play(turn(write(HONEST), CHECK, SUBMIT))
    assert isinstance(played.outcome.stop, InfrastructureFailed)
    assert "sandbox" in played.outcome.agent_run.stopped


def test_an_answer_that_was_cut_is_pointed_out_and_the_run_goes_on(play: Play) -> None:
    played = play(turn(text="a very long", cut=True), turn(write(HONEST), CHECK, SUBMIT))
    assert played.outcome.submitted is not None
    last = played.model.shown[1][-1]
    assert last.kind == "prompt"
    assert "length limit" in last.text


def test_each_call_gets_its_answer_under_its_id(play: Play) -> None:
    calls = [call("read", call_id=f"id{n}", path=".") for n in range(12)]
    played = play(turn(*calls))
    results = played.model.shown[-1][-1]
    assert results.kind == "results"
    assert [r.call for r in results.results] == [f"id{n}" for n in range(12)]
    assert [r.is_error for r in results.results] == [False] * 8 + [True] * 4


def test_the_journal_is_complete_up_to_the_moment_of_a_crash(play: Play, examiner: Examiner, tmp_path: Path) -> None:
    examiner.failures = [RuntimeError("power cut")]
    with pytest.raises(RuntimeError):
        play(turn(write(HONEST), CHECK))
    lines = (tmp_path / "run" / "journal.jsonl").read_text().splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["header", "turn", "result"]


def test_the_journal_names_the_run_its_attempts_and_its_end(play: Play) -> None:
    played = play(turn(write(CHEAT), CHECK), turn(write(HONEST), CHECK), turn(SUBMIT))
    lines = [json.loads(line) for line in (played.folder / "journal.jsonl").read_text().splitlines()]
    header, attempts = lines[0], [line for line in lines if line["kind"] == "attempt"]
    assert (header["model"], header["contract"], header["contract_version"]) == ("scripted", "toy", 3)
    assert header["budget"]["turns"] == Budget().turns
    run = played.outcome.agent_run
    assert [a["evaluation"] for a in attempts] == [a.evaluation.digest() for a in run.attempts]
    assert [a["outcome"] for a in attempts] == ["incorrect", "accepted"]
    assert lines[-1] == {"kind": "end", "stop": {"kind": "submitted", "attempt": 2}}


def test_every_examined_source_is_kept_by_number_and_digest(play: Play) -> None:
    played = play(turn(write(CHEAT), CHECK, write(HONEST), CHECK))
    kept = sorted((played.folder / "candidates").iterdir())
    digests = [a.evaluation.candidate_digest[:12] for a in played.outcome.agent_run.attempts]
    assert [p.name for p in kept] == [f"01_{digests[0]}.py", f"02_{digests[1]}.py"]
    assert [p.read_text() for p in kept] == [CHEAT, HONEST]


def test_a_folder_that_holds_a_run_is_not_used_again(play: Play) -> None:
    first = play()
    before = (first.folder / "journal.jsonl").read_text()
    with pytest.raises(UsageError, match="holds a run already"):
        play()
    assert (first.folder / "journal.jsonl").read_text() == before


def test_a_watcher_sees_steps_verdicts_and_the_end(play: Play) -> None:
    played = play(turn(write(CHEAT), CHECK, text="first\ntry"))
    assert played.lines == [
        "turn 1: first try",
        f"writes {KERNEL}",
        f"attempt 1, {KERNEL}: incorrect",
        "turn 2: I have nothing more.",
        "the model stopped without submitting",
    ]


def test_seconds_of_the_run_are_the_clocks(play: Play, clock: Clock) -> None:
    played = play(turn(write(HONEST), CHECK))
    assert played.outcome.agent_run.seconds == clock.now - 100.0 == 2.0
