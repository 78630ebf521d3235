"""A served forge whose repository holds the small contract, and a bot that works on it: real HTTP, git and verifier."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bot.agent.journal import Entry, Header, line_of
from bot.agent.model import ToolCall, Turn
from bot.agent.replay import ReplayModel
from bot.agent.task import Budget
from bot.forge.server import Forge
from bot.github.client import connect
from bot.github.events import decode_event
from bot.github.push import Identity, Remote
from bot.handlers.agent import AgentTools, agent
from bot.handlers.demo import BOT, REPOSITORY, Person, found_forge
from bot.handlers.examine import examine
from bot.handlers.gate import Gate, Passed, gate
from bot.handlers.project import Project
from bot.handlers.publish import Published, Publisher, publish
from bot.handlers.run import RunFolder
from bot.launch import launch
from tests.forge.described import described
from tests.verify.conftest import CENTER

__all__ = ["described"]

ROOT = Path(__file__).parents[2]
PATH = "kernels/center/torch_x.py"
FORM = "### Contract\n\ncenter\n\n### What matters\n\n_No response_\n\n### Start from\n\nincumbent\n"


def recording(folder: Path, *sources: str) -> Path:
    """A run that writes and checks each source in turn and hands in the last."""
    header = Header(
        model="a test",
        contract="center",
        contract_version=1,
        contract_digest="",
        device="cpu",
        budget=Budget(),
        proctor="0.1.0",
        python="3.11",
    )
    turns: list[Entry] = [header]
    for number, source in enumerate(sources):
        calls = [("write", {"path": PATH, "source": source}), ("check", {"path": PATH})]
        turns.append(_turn(number, calls))
    turns.append(_turn(len(sources), [("submit", {"path": PATH})]))
    place = folder / "journal.jsonl"
    place.write_text("".join(line_of(turn) + "\n" for turn in turns), encoding="utf-8")
    return place


def _turn(number: int, calls: list[tuple[str, dict[str, str]]]) -> Turn:
    named = [ToolCall(id=f"{number}-{i}", name=name, arguments=dict(a)) for i, (name, a) in enumerate(calls)]
    return Turn(text=f"turn {number}", calls=named)


@dataclass
class Town:
    """The forge, its people, and the bot's four jobs as the workflow files chain them."""

    forge: Forge
    project: Project
    folder: Path
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    runs: int = 0

    def person(self, login: str) -> Person:
        return Person(login, f"{login}-token", self.forge)

    @property
    def github(self):
        return connect(self.forge.api_url, "bot-token", REPOSITORY, login=BOT)

    @property
    def remote(self) -> Remote:
        return Remote(self.forge.clone_url, "bot-token")

    def open_issue(self, body: str = FORM) -> int:
        return int(self.person("visitor").post("issues", title="optimize: center", body=body)["number"])

    def label(self, issue: int, login: str = "maintainer") -> tuple[Passed, RunFolder]:
        self.person(login).post(f"issues/{issue}/labels", labels=["optimize"])
        return self.gate()

    def comment(self, number: int, text: str, login: str = "maintainer") -> tuple[Passed, RunFolder]:
        self.person(login).post(f"issues/{number}/comments", body=text)
        return self.gate()

    def gate(self, **tools: Any) -> tuple[Passed, RunFolder]:
        """The newest event, handled in a run folder of its own; `tools` are fields of `Gate`."""
        name, payload = self.events[-1]
        self.runs += 1
        run = RunFolder(self.folder / f"run-{self.runs}")
        gated = Gate(self.github, self.remote, self.project, run, "cpu", **tools)
        return gate(decode_event(name, json.loads(json.dumps(payload))), gated), run

    def work(self, run: RunFolder, *sources: str) -> Published:
        """Agent, verifier and publisher, one after the other."""
        model = ReplayModel(recording(self.folder, *sources))
        agent(model, Budget(), AgentTools(self.project, run, launch, lambda _: None))
        return self.finish(run)

    def finish(self, run: RunFolder) -> Published:
        examine(run, self.project, launch, lambda _: None)
        author = Identity("Proctor", f"{BOT}@users.noreply.github.com")
        return publish(Publisher(self.github, self.remote, run, author))

    def said(self, number: int) -> list[str]:
        return [comment.body for comment in self.github.comments(number)]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    root = tmp_path / "project"
    shutil.copytree(CENTER, root / "contracts" / "center", ignore=shutil.ignore_patterns("__pycache__"))
    (root / ".github").mkdir()
    shutil.copytree(ROOT / ".github" / "workflows", root / ".github" / "workflows")
    return Project(root)


@pytest.fixture
def town(project: Project, tmp_path: Path) -> Iterator[Town]:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    state = found_forge(project, tmp_path / "forge")
    with Forge.serving(state) as forge:
        place = Town(forge, project, tmp_path)
        state.subscribe(lambda name, payload: place.events.append((name, payload)))
        yield place


@pytest.fixture
def street(town: Town):
    from tests.handlers.street import Examiner, Street

    return Street(town, Examiner(town))
