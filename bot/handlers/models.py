"""Which model drives the agent, from its name on the command line."""

from collections.abc import Mapping
from pathlib import Path

from bot import agent
from bot.agent.broker import ADDRESS, KEY, WORD
from bot.agent.claude import ClaudeModel
from bot.agent.model import Model
from bot.agent.replay import ReplayModel
from bot.errors import UsageError


def choose_model(name: str, contract: str, environment: Mapping[str, str]) -> Model:
    """`anthropic:NAME`, `replay:JOURNAL`, or `replay` for the run recorded for this contract.

    Raises:
        UsageError: no such model, no key for it, or no such recording.
    """
    kind, _, rest = name.partition(":")
    if kind == "anthropic" and rest:
        if ADDRESS not in environment:
            raise UsageError(f"{name} needs {KEY} in the environment")
        return ClaudeModel(rest, environment[WORD], base_url=environment[ADDRESS])
    if kind == "replay":
        journal = Path(rest) if rest else recording(contract)
        if not journal.is_file():
            raise UsageError(f"there is no recorded run for {contract}" if not rest else f"no journal {rest}")
        return ReplayModel(journal)
    raise UsageError(f"unknown model {name!r}: anthropic:NAME, replay, or replay:JOURNAL")


def recording(contract: str) -> Path:
    """The run that comes with Proctor for a contract; it may not exist."""
    return Path(agent.__path__[0]) / "recordings" / f"{contract}.jsonl"
