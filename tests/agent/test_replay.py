"""Recorded runs, played again."""

import runpy
from pathlib import Path

import pytest

from bot.agent.journal import Header, read_journal
from bot.agent.loop import run_agent
from bot.agent.model import Model, ToolCall, Turn
from bot.agent.replay import ReplayModel
from bot.agent.task import AgentOutcome, ModelStopped, Submitted
from bot.errors import UsageError
from tests.agent.conftest import CHEAT, HONEST, KERNEL, Clock, Examiner, Play, call, task_with, turn, write

ROOT = Path(__file__).parents[2]
RECORDING = ROOT / "bot" / "agent" / "recordings" / "kda_prefill.jsonl"
CHECK = call("check", path=KERNEL)
STORY = (
    turn(write(CHEAT), CHECK, tokens=9),
    turn(call("journal", note="no")),
    turn(write(HONEST), CHECK),
    turn(call("submit", path=KERNEL)),
)


@pytest.fixture
def recorded(play: Play) -> Path:
    return play(*STORY).folder / "journal.jsonl"


def again(model: Model, folder: Path) -> tuple[AgentOutcome, Examiner, list[ToolCall]]:
    clock = Clock()
    examiner = Examiner(clock)
    outcome = run_agent(task_with(), model, examiner, folder, list[str]().append, clock)
    calls = [c for entry in read_journal(folder / "journal.jsonl") if isinstance(entry, Turn) for c in entry.calls]
    return outcome, examiner, calls


def test_a_run_is_replayed_call_by_call_with_live_exams(recorded: Path, tmp_path: Path) -> None:
    outcome, examiner, calls = again(ReplayModel(recorded), tmp_path / "again")
    assert calls == [c for step in STORY for c in step.calls]
    assert examiner.modes == ["quick", "claim", "quick"]
    assert outcome.stop == Submitted(attempt=2)


def test_a_replay_can_be_replayed(recorded: Path, tmp_path: Path) -> None:
    _, _, first = again(ReplayModel(recorded), tmp_path / "one")
    _, _, second = again(ReplayModel(tmp_path / "one" / "journal.jsonl"), tmp_path / "two")
    assert first == second


def test_replayed_turns_cost_no_tokens(recorded: Path, tmp_path: Path) -> None:
    run = again(ReplayModel(recorded), tmp_path / "again")[0].agent_run
    assert (run.model, run.input_tokens, run.output_tokens) == ("replay of scripted", 0, 0)


def test_an_honest_kernel_swapped_for_a_cheat_is_not_submitted(recorded: Path, tmp_path: Path) -> None:
    cheat = "# incorrect, but otherwise\n"
    outcome, examiner, _ = again(ReplayModel(recorded, swap={KERNEL: cheat}), tmp_path / "again")
    assert [source for mode, _, source in examiner.calls if mode == "quick"] == [CHEAT, cheat]
    assert outcome.submitted is None
    assert outcome.stop == ModelStopped(text="The recording ends here.")


def test_a_swap_of_a_path_never_written_is_said(recorded: Path) -> None:
    with pytest.raises(UsageError, match="never writes"):
        ReplayModel(recorded, swap={"kernels/toy/torch_other.py": HONEST})


def test_the_committed_recording_is_what_its_script_composes() -> None:
    composed = runpy.run_path(str(ROOT / "tests" / "data" / "kda_run" / "record.py"))["compose"]()
    assert RECORDING.read_text(encoding="utf-8") == composed


def test_the_committed_recording_tries_three_kernels_and_submits_the_last() -> None:
    header, *entries = read_journal(RECORDING)
    assert isinstance(header, Header)
    assert header.contract == "kda_prefill"
    calls = [c for entry in entries if isinstance(entry, Turn) for c in entry.calls]
    assert [c.name for c in calls if c.name not in {"read", "journal"}] == [
        *["write", "check"] * 3,
        "submit",
    ]
    paths = {c.arguments["path"] for c in calls if c.name not in {"read", "journal"}}
    assert paths == {"kernels/kda_prefill/torch_chunked.py"}
    assert len({c.arguments["source"] for c in calls if c.name == "write"}) == 3
