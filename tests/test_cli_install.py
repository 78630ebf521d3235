"""The commands of an installation as a person meets them; they start fast, and never with a traceback."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot import cli
from bot.evaluation import SHARDS
from bot.forge.server import Forge
from bot.forge.state import ForgeState
from bot.handlers.environment import TORCH
from tests.github.test_client import first_commit

ROOT = Path(__file__).parents[1]
HEAVY = ("github", "anthropic", "torch", "numpy", "yaml", "jinja2", "flask", "bot.evaluation", "bot.contract")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "target"
    subprocess.run(["git", "init", "--quiet", str(root)], check=True)
    monkeypatch.chdir(root)
    for name in ("GITHUB_TOKEN", "GITHUB_REPOSITORY", "GITHUB_API_URL"):
        monkeypatch.delenv(name, raising=False)
    return root


@pytest.fixture
def forge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Forge]:
    state = ForgeState.create(tmp_path / "forge")
    state.add_user("alice", "admin", "ghp_alice")
    state.add_user("rachel", "write", "ghp_rachel")
    first_commit(state.repository.path)
    with Forge.serving(state) as forge:
        yield forge


def point(monkeypatch: pytest.MonkeyPatch, forge: Forge, token: str) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", token)
    monkeypatch.setenv("GITHUB_API_URL", forge.api_url)
    monkeypatch.setenv("GITHUB_REPOSITORY", "acme/kernels")


@pytest.mark.parametrize("arguments", [["doctor", "--help"], ["runner", "check", "--help"], ["--help"]])
def test_a_command_starts_without_what_takes_time(arguments: list[str]) -> None:
    """PyGithub, torch and our records stay out until a command needs them: that is what keeps it below 0.6 s."""
    code = (
        f"import sys; from bot import cli; code = cli.run({arguments!r}); "
        f"print(code, [name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 []"


def test_from_an_empty_repository_to_one_that_is_well(
    repository: Path, forge: Forge, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["doctor"]) == 2, "no project yet"
    assert cli.run(["init", "--owner", "@acme/kernels", "--contract", "center"]) == 0
    assert cli.run(["doctor", "--offline"]) == 0
    assert cli.run(["doctor"]) == 2, "no token: GitHub was not looked at"
    point(monkeypatch, forge, "ghp_alice")
    assert cli.run(["doctor"]) == 1
    assert cli.run(["setup", "--dry-run"]) == 0
    assert forge.state.settings.writes == 0
    assert cli.run(["setup", "--runner", "h200"]) == 0
    assert forge.state.settings.variables["PROCTOR_RUNNER"] == "h200"
    writes = forge.state.settings.writes
    assert cli.run(["setup", "--runner", "h200"]) == 0
    assert forge.state.settings.writes == writes
    forge.state.settings.secrets["proctor-agent"] = ["ANTHROPIC_API_KEY"]
    monkeypatch.chdir(repository / "contracts" / "center")
    assert cli.run(["doctor"]) == 0
    said = capsys.readouterr()
    assert "to do  create the label `optimize`" in said.out
    assert "done: create the label `optimize`" in said.out
    assert "Traceback" not in said.err


def test_shards_are_set_within_what_an_exam_can_be_spread_over(
    repository: Path, forge: Forge, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    point(monkeypatch, forge, "ghp_alice")
    forge.state.settings.runners = {f"runner-{number}": ["b200"] for number in range(SHARDS)}
    assert cli.run(["setup", "--dry-run", "--shards", str(SHARDS)]) == 0
    assert f"to do  set the variable PROCTOR_SHARDS to {SHARDS}" in capsys.readouterr().out
    assert forge.state.settings.writes == 0
    for wrong in (0, SHARDS + 1, -1):
        assert cli.run(["setup", "--shards", str(wrong)]) == 2
    assert cli.run(["setup", "--shards", str(SHARDS)]) == 0
    assert forge.state.settings.variables["PROCTOR_SHARDS"] == str(SHARDS)
    del forge.state.settings.runners["runner-0"]
    assert cli.run(["setup", "--shards", str(SHARDS)]) == 1
    assert (
        f"WRONG  PROCTOR_SHARDS is {SHARDS}, and of the repository's own runners {SHARDS - 1}"
        in capsys.readouterr().out
    )


def test_what_a_token_may_not_do_is_named(
    repository: Path, forge: Forge, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    point(monkeypatch, forge, "ghp_rachel")
    assert cli.run(["setup"]) == 1
    said = capsys.readouterr().out
    assert "give the token Administration: write" in said
    assert "a classic personal token" in said


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["setup"], "GITHUB_TOKEN is not set: an administrator"),
        (["init", "nowhere"], "not the top folder of a git repository"),
        (["runner", "check"], "no lock in"),
        (["runner", "prepare"], "no lock in"),
        (["doctor"], "no folder `contracts/`"),
    ],
)
def test_what_cannot_be_done_is_one_message(
    repository: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], part: str
) -> None:
    assert cli.run(arguments) == 2
    assert part in capsys.readouterr().err


def test_setup_needs_to_know_the_repository(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "ghp_x")
    assert cli.run(["setup"]) == 2
    assert "which repository?" in capsys.readouterr().err


def test_the_default_torch_is_the_recipe_s(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["runner", "prepare", "--help"]) == 0
    assert TORCH in capsys.readouterr().out
