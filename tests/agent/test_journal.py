"""The record of a run on disk."""

from pathlib import Path

import pytest

from bot.agent.journal import End, Entry, Header, create_journal, header_of, read_journal
from bot.agent.model import ToolCall, Turn
from bot.agent.task import ModelStopped
from bot.errors import DataError, UsageError
from tests.agent.conftest import task_with

HEADER = header_of(task_with(), "scripted")
TURN = Turn(text="sure", calls=[ToolCall(id="1", name="read", arguments={"path": "é\n", "deep": [1, {"a": None}]})])


def test_entries_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    entries: list[Entry] = [HEADER, TURN, End(stop=ModelStopped(text="done"))]
    with create_journal(tmp_path / "j.jsonl") as journal:
        for entry in entries:
            journal.write(entry)
    assert read_journal(tmp_path / "j.jsonl") == entries


def test_each_entry_is_on_disk_before_the_next_step(tmp_path: Path) -> None:
    with create_journal(tmp_path / "j.jsonl") as journal:
        journal.write(HEADER)
        assert read_journal(tmp_path / "j.jsonl") == [HEADER]


def test_what_a_service_wants_echoed_is_not_recorded(tmp_path: Path) -> None:
    with create_journal(tmp_path / "j.jsonl") as journal:
        journal.write(HEADER)
        journal.write(TURN.model_copy(update={"echo": [{"type": "thinking", "signature": "s" * 99}]}))
    assert read_journal(tmp_path / "j.jsonl")[1] == TURN


def test_a_last_line_that_a_crash_cut_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    path.write_text(HEADER.model_dump_json() + "\n" + TURN.model_dump_json()[:30])
    assert read_journal(path) == [HEADER]


def test_all_bad_lines_are_named(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    path.write_text("{}\nnonsense\n" + HEADER.model_dump_json() + '\n{"kind":"turn"}\n')
    with pytest.raises(DataError) as caught:
        read_journal(path)
    assert [p.path.split(":")[0] for p in caught.value.problems] == ["line 1", "line 2", "line 4"]


def test_a_journal_begins_with_its_header(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    path.write_text(TURN.model_dump_json() + "\n")
    with pytest.raises(DataError, match="header"):
        read_journal(path)


def test_a_missing_journal_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.jsonl"):
        read_journal(tmp_path / "none.jsonl")


def test_the_header_names_versions_and_budget() -> None:
    assert isinstance(HEADER, Header)
    assert HEADER.proctor.count(".") == 2
    assert HEADER.python.startswith("3.")
    assert HEADER.budget == task_with().budget
