"""A model that repeats the turns of a recorded run. What its tools answer is not recorded but happens anew, so
verification and timings are live; a run that diverges from the record is not corrected.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from typing_extensions import override

from bot.agent.journal import Header, read_journal
from bot.agent.model import Message, Model, ToolSpec, Turn
from bot.errors import UsageError


class ReplayModel(Model):
    """Plays a journal; then answers without a call, which ends the run. A replayed turn costs no tokens."""

    def __init__(self, journal: Path, swap: Mapping[str, str] | None = None) -> None:
        """Read the journal. `swap`: for a path, the source its last recorded write puts there instead.

        Raises:
            UsageError: it is not a journal (DataError: one with mistakes), or never writes a path to swap.
        """
        entries = read_journal(journal)
        self._recorded_model = next(entry.model for entry in entries if isinstance(entry, Header))
        turns = [entry for entry in entries if isinstance(entry, Turn)]
        self._turns = [turn.model_copy(update={"input_tokens": 0, "output_tokens": 0}) for turn in turns]
        for path, source in (swap or {}).items():
            self._turns = _swapped(self._turns, path, source)

    @property
    @override
    def name(self) -> str:
        return f"replay of {self._recorded_model}"

    @override
    def respond(self, system: str, transcript: Sequence[Message], tools: Sequence[ToolSpec]) -> Turn:
        played = sum(isinstance(message, Turn) for message in transcript)
        return self._turns[played] if played < len(self._turns) else Turn(text="The recording ends here.")


def _swapped(turns: list[Turn], path: str, source: str) -> list[Turn]:
    for at in reversed(range(len(turns))):
        writes = [call for call in turns[at].calls if call.name == "write" and call.arguments.get("path") == path]
        if writes:
            last = writes[-1]
            swapped = last.model_copy(update={"arguments": {**last.arguments, "source": source}})
            calls = [swapped if call is last else call for call in turns[at].calls]
            return [*turns[:at], turns[at].model_copy(update={"calls": calls}), *turns[at + 1 :]]
    raise UsageError(f"the recording never writes {path}")
