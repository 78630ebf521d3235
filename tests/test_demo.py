"""The story: the whole job over HTTP, played by the workflow files, once; what a person then finds on the forge."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bot.evaluation import Evaluation
from bot.forge.actions import Actions
from bot.forge.server import Forge
from bot.github.client import connect
from bot.handlers.demo import BOT, REPOSITORY, Story, found_forge, tell
from bot.handlers.project import Project
from bot.verdict import Kind

ROOT = Path(__file__).parents[1]
CHROMIUM = Path("/usr/bin/chromium")

pytestmark = [pytest.mark.sandbox, pytest.mark.alone, pytest.mark.timeout(900)]


@dataclass
class Told:
    story: Story
    forge: Forge
    actions: Actions
    lines: list[str]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    folder = tmp_path_factory.mktemp("demo")
    lines: list[str] = []
    with Forge.serving(found_forge(Project(ROOT), folder)) as forge:
        variables = {"PROCTOR_DEVICE": "cpu", "PROCTOR_MODEL": "replay"}
        actions = Actions(forge, folder / "runs", "bot-token", variables, lines.append)
        actions.listen()
        yield Told(tell(forge, actions, lines.append), forge, actions, lines)


def test_the_story_ends_as_it_should(told: Told) -> None:
    assert told.story.told, "\n".join(told.lines)
    line = told.story.line()
    assert re.fullmatch(r"demo: issue #1 -> PR #2, verdict improved, speedup \d+\.\d\d x, refused 2 candidates", line)


def test_every_job_of_the_workflows_ran(told: Told) -> None:
    ran = [(r.workflow, r.job, r.result) for r in told.actions.results]
    assert ran == [
        ("optimize", "gate", "success"),  # the label by somebody who may not
        *[("optimize", job, "skipped") for job in ("agent", "verify", "publish")],
        *[("optimize", job, "success") for job in ("gate", "agent", "verify", "publish")],
        *[("commands", job, "success") for job in ("gate", "verify", "publish")],
        *[("optimize", job, "skipped") for job in ("gate", "agent", "verify", "publish")],  # a comment that is no /go
        ("approve", "wake", "success"),
        ("approval", "approval", "success"),
    ]


def test_the_cheats_were_refused_for_what_they_are(told: Told) -> None:
    github = connect(told.forge.api_url, "bot-token", REPOSITORY, login=BOT)
    report = github.comments(2)[0].body
    assert report.count("claimed, not a speedup") == 2
    record = told.story.record
    assert record is not None
    runs = told.actions.folder
    attempts = next(iter(runs.glob("*/run/agent.json"))).read_text(encoding="utf-8")
    for probe in ("norms_differ", "state_barely_updated"):
        assert probe in attempts


def test_both_runs_measured_anew_and_the_figures_differ(told: Told) -> None:
    record = told.story.record
    assert record is not None
    first, second = record.evaluations
    assert isinstance(first, Evaluation)
    assert first.salt != second.salt
    assert first.cells[0].rounds[0].candidate_ns != second.cells[0].rounds[0].candidate_ns
    assert record.verdict.kind == Kind.IMPROVED
    assert record.verdict.runs == 2


def test_the_exam_graded_itself(told: Told) -> None:
    record = told.story.record
    assert record is not None
    first, second = record.evaluations
    assert first.grade is not None
    assert len(first.grade.controls) >= 5
    assert first.grade.survivors == []
    assert first.grade.refused_faithful == []
    assert second.grade is None, "the same judge need not grade itself again"
    assert second.judge_digest == first.judge_digest


def test_the_label_by_somebody_without_rights_was_answered(told: Told) -> None:
    github = connect(told.forge.api_url, "bot-token", REPOSITORY, login=BOT)
    assert "has no write permission" in github.comments(1)[0].body


@pytest.mark.browser
def test_the_pull_request_page_shows_the_report(told: Told, tmp_path: Path) -> None:
    if not CHROMIUM.exists():
        pytest.skip("Chromium is not installed")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 1600})
        page.goto(f"{told.forge.url}/{REPOSITORY}/pull/2")
        text = page.inner_text("body")
        page.screenshot(path=str(tmp_path / "pull.png"), full_page=True)
        browser.close()
    assert "improved" in text
    assert "proctor/approval" in text
    assert "<details>" not in text
    assert (tmp_path / "pull.png").stat().st_size > 20_000
