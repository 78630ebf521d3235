"""What calls do: examination, claims, timing, and answers to nonsense."""

import pytest

from bot.agent.bench import ANSWER_LIMIT
from bot.agent.model import ToolCall
from tests.agent.conftest import CHEAT, HONEST, KERNEL, SALT, Examiner, Play, call, turn, write

CHECK = call("check", path=KERNEL)
TIME = call("time", path=KERNEL)


@pytest.mark.parametrize("kind", ["incorrect", "tampered"])
def test_a_refused_candidate_gets_one_claim(play: Play, examiner: Examiner, kind: str) -> None:
    played = play(turn(write(f"# {kind}\n"), CHECK), turn(CHECK))
    assert examiner.modes == ["quick", "claim"]
    attempt = played.outcome.agent_run.attempts[0]
    assert attempt.claim is not None
    assert attempt.claim.mode == "claim"


@pytest.mark.parametrize("kind", ["build_failed", "timed_out"])
def test_what_cannot_run_to_its_end_gets_no_claim(play: Play, examiner: Examiner, kind: str) -> None:
    played = play(turn(write(f"# {kind}\n"), CHECK))
    assert examiner.modes == ["quick"]
    assert played.outcome.agent_run.attempts[0].claim is None


def test_a_claim_that_fails_does_not_end_the_run(play: Play, examiner: Examiner) -> None:
    examiner.broken_modes = {"claim"}
    played = play(turn(write(CHEAT), CHECK), turn(write(HONEST), CHECK), turn(call("submit", path=KERNEL)))
    assert played.outcome.submitted is not None
    assert played.outcome.agent_run.attempts[0].claim is None
    assert "no claim to show: no device" in played.lines


def test_the_same_source_is_examined_once(play: Play, examiner: Examiner) -> None:
    other = "kernels/toy/triton_other.py"
    played = play(turn(write(CHEAT), CHECK, CHECK, write(CHEAT, other), call("check", path=other)))
    assert examiner.modes == ["quick", "claim"]
    assert len(played.outcome.agent_run.attempts) == len(played.outcome.agent_run.feedback_seconds) == 1
    assert "as attempt 1" in played.answers()[-1][0]


def test_feedback_latency_is_what_the_agent_waits(play: Play) -> None:
    played = play(turn(write(CHEAT), CHECK, write(HONEST), CHECK))
    # 2 s an exam; the first one is followed by a claim.
    assert played.outcome.agent_run.feedback_seconds == [4.0, 2.0]


def test_timing_needs_an_accepted_check(play: Play, examiner: Examiner) -> None:
    played = play(turn(write(HONEST), TIME, write(CHEAT), CHECK, TIME))
    answers = played.answers()
    assert "check it first" in answers[1][0]
    assert "refused as attempt 1" in answers[4][0]
    assert "full" not in examiner.modes


def test_timing_tells_the_ratio_with_interval_and_sample_count(play: Play) -> None:
    played = play(turn(write(HONEST), CHECK, TIME))
    text, is_error = played.answers()[-1]
    assert not is_error
    assert "small/plain against loop: 2.000x" in text
    assert "pairs)" in text


def test_a_refusal_while_timing_is_an_attempt_and_takes_acceptance_back(play: Play, examiner: Examiner) -> None:
    played = play(turn(write("# late\n"), CHECK, TIME), turn(call("submit", path=KERNEL)))
    attempts = played.outcome.agent_run.attempts
    assert [a.evaluation.mode for a in attempts] == ["quick", "full"]
    assert examiner.modes == ["quick", "full", "claim"]
    assert played.outcome.submitted is None


@pytest.mark.parametrize(
    ("wish", "says"),
    [
        (call("rm", path="/"), "no tool 'rm'; there are read, write, check, time, journal, submit"),
        (call("read"), "path: Field required"),
        (call("check", path=KERNEL), "no such file"),
        (call("check", path="contract.md"), "kernels are kernels/toy/"),
        (call("read", path="contract.md", start=-1), "start"),
        (call("journal", note=""), "note"),
        (ToolCall(id="c", name="write", arguments={"path": 3, "source": None, "mode": "x"}), "3 problems"),
    ],
    ids=["unknown tool", "no argument", "no file", "not a kernel", "negative", "empty note", "all problems at once"],
)
def test_a_wrong_call_is_answered_as_an_error(play: Play, wish: ToolCall, says: str) -> None:
    text, is_error = play(turn(wish)).answers()[0]
    assert is_error
    assert says in text


def test_a_long_file_comes_in_pages_that_join_to_the_whole(play: Play) -> None:
    long = "".join(f"# {n}\n" for n in range(6000))
    played = play(turn(write(long), call("read", path=KERNEL)))
    first = played.answers()[-1][0]
    assert len(first) <= ANSWER_LIMIT
    page, _, hint = first.rpartition("\n… ")
    start = int(hint.rpartition("=")[2])
    rest = play(turn(write(long), call("read", path=KERNEL, start=start)), folder="second").answers()[-1][0]
    assert page + rest.rpartition("\n… ")[0] == long[: start + len(rest.rpartition("\n… ")[0])]


def test_a_huge_error_is_cut(play: Play) -> None:
    many = ToolCall(id="c1", name="read", arguments={f"argument_{n}": n for n in range(3000)})
    text, _ = play(turn(many)).answers()[0]
    assert len(text) <= ANSWER_LIMIT
    assert "cut" in text


def test_lessons_are_kept_as_one_printable_line_each(play: Play) -> None:
    played = play(turn(call("journal", note="norms\nmatter\u202e"), call("journal", note="so do gates")))
    assert (played.folder / "lessons.md").read_text() == "- norms matter\n- so do gates\n"


def test_no_answer_and_no_journal_holds_a_salt(play: Play) -> None:
    played = play(turn(write(CHEAT), CHECK), turn(write("# secret\n"), CHECK), turn(write(HONEST), CHECK, TIME))
    assert SALT not in (played.folder / "journal.jsonl").read_text()
    assert all(SALT not in p.read_text() for p in played.folder.rglob("*") if p.is_file())
