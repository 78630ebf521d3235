"""`proctor doctor`: each fault is found, shown, and has somebody who must act; what cannot be seen is never well."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from bot.forge.server import Forge
from bot.forge.state import ForgeState
from bot.github.settings import connect_settings
from bot.handlers.checks import Check, exit_code, lines
from bot.handlers.doctor import KEY, look_at_checkout, look_at_github, repository_of
from bot.handlers.install import Wanted, install
from bot.handlers.setup import Wanted as Settings
from bot.handlers.setup import carry_out, make_plan
from tests.github.test_client import first_commit

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made") / "target"
    subprocess.run(["git", "init", "--quiet", str(root)], check=True)
    install(root, Wanted(owner="@acme/kernels", contract="center"))
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "target")


def faults(root: Path) -> list[Check]:
    return [check for check in look_at_checkout(root) if check.state != "well"]


def append(path: str, text: str) -> Callable[[Path], object]:
    def change(root: Path) -> None:
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text((file.read_text(encoding="utf-8") if file.exists() else "") + text, encoding="utf-8")

    return change


@pytest.mark.parametrize(
    ("change", "what", "detail"),
    [
        (lambda root: (root / ".github/workflows/approve.yml").unlink(), "approve.yml is missing", ""),
        (append(".github/workflows/optimize.yml", "# mine\n"), "optimize.yml differs", "+# mine"),
        (append(".github/ISSUE_TEMPLATE/optimize.yml", "labels: [optimize]\n"), "differs", "+labels: [optimize]"),
        (lambda root: (root / ".github/CODEOWNERS").unlink(), "no CODEOWNERS", ""),
        (append(".github/CODEOWNERS", "/contracts/\n"), "no owner for /contracts/", ""),
        (append(".github/CODEOWNERS", "/contracts/ @maintainers\n"), "names @maintainers", ""),
        (lambda root: (root / ".github/proctor/requirements.txt").unlink(), "no lock", "neither"),
        (lambda root: shutil.rmtree(root / "contracts/center"), "no contract", ""),
        (append("contracts/center/contract.yaml", "colour: red\n"), "contract center", "colour"),
        (append("kernels/center/index.yaml", "incumbents: {cpu: torch_gone.py}\n"), "incumbents of", "torch_gone.py"),
        (append("kernels/center/index.yaml", "incumbents: {cpu: ../x}\n"), "incumbents of center", "incumbents.cpu"),
        (append(".github/proctor/approval.yaml", "needed: 0\n"), "rule of approvals", "needed"),
        (append("kernels/other/index.yaml", "{}\n"), "kernels/other has an index and no contract", ""),
    ],
)
def test_each_fault_is_found_with_its_remedy(root: Path, change: Callable[[Path], object], what: str, detail: str):
    assert faults(root) == []
    change(root)
    (found,) = faults(root)
    assert found.state == "mend"
    assert what in found.what
    assert detail in found.detail
    assert found.remedy.startswith(("whoever", "Whoever"))
    assert exit_code([found]) == 1


def test_a_long_difference_is_cut(root: Path):
    (root / ".github/workflows/commands.yml").write_text("x\n", encoding="utf-8")
    (found,) = faults(root)
    assert "lines more" in found.detail
    assert len(found.detail.splitlines()) < 16


def test_this_repository_lacks_nothing_but_owners():
    """Our own CODEOWNERS names a placeholder, which whoever uses the repository as a template replaces."""
    found = [check for check in faults(ROOT) if not check.what.startswith("contract ")]
    assert [check.what for check in found] == [".github/CODEOWNERS names @maintainers, which is nobody"]


def test_settings_on_github_are_looked_at_and_never_changed(tmp_path: Path):
    state = ForgeState.create(tmp_path)
    state.add_user("alice", "admin", "ghp_alice")
    state.add_user("github-actions[bot]", "write", "ghs_actions", actions_bot=True)
    first_commit(state.repository.path)
    with Forge.serving(state) as forge:

        def look(token: str) -> list[Check]:
            return list(look_at_github(lambda: connect_settings(forge.api_url, token, "acme/kernels"), token))

        before = look("ghp_alice")
        assert exit_code(before) == 1
        assert all("administrator" in check.remedy for check in before if check.state == "mend")
        assert state.settings.writes == 0
        carry_out(make_plan(connect_settings(forge.api_url, "ghp_alice", "acme/kernels"), Settings()), lambda _: None)
        (key,) = [check for check in look("ghp_alice") if check.state == "mend"]
        assert key.remedy == "an administrator: `gh secret set ANTHROPIC_API_KEY --env proctor-agent`"
        state.settings.secrets["proctor-agent"] = [KEY]
        assert exit_code(look("ghp_alice")) == 0
        state.settings.secrets = {"": [KEY]}
        assert exit_code(look("ghp_alice")) == 0
        state.settings.variables["PROCTOR_SHARDS"] = "99"
        (number,) = [check for check in look("ghp_alice") if check.state == "mend"]
        assert number.what == "PROCTOR_SHARDS is 99"
        assert number.remedy == "an administrator: `proctor setup --shards N`, N from 1 to 16"
        state.settings.variables["PROCTOR_SHARDS"] = "2"
        state.settings.runners = {"one": ["b200"]}
        (few,) = [check for check in look("ghp_alice") if check.state == "mend"]
        assert few.what == "PROCTOR_SHARDS is 2, and of the repository's own runners 1 carry the label b200"
        state.settings.runners["two"] = ["b200"]
        assert exit_code(look("ghp_alice")) == 0
        state.settings.secrets["proctor-bot"] = ["PROCTOR_APP_KEY"]
        (half,) = [check for check in look("ghp_alice") if check.state == "mend"]
        assert half.what == "there is a secret PROCTOR_APP_KEY, and PROCTOR_APP_ID is not set"
        state.settings.variables |= {"PROCTOR_APP_ID": "77", "PROCTOR_BOT_LOGIN": "kernels[bot]"}
        assert "the bot is kernels[bot], by the App 77" in [check.what for check in look("ghp_alice")]
        assert exit_code(look("ghp_alice")) == 0
        seen = look("ghs_actions")
        assert exit_code(seen) == 2
        assert {check.what for check in seen if check.state == "unseen"} == {
            "variables",
            "what workflows may do",
            "the model's key",
        }
        (lost,) = [check for check in look("ghp_nobody") if check.state == "unseen"]
        assert "401" in lost.detail
    assert exit_code(look("ghp_alice")) == 2, "nobody answers"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://github.com/acme/kernels.git", "acme/kernels"),
        ("git@github.com:acme/kernels.git", "acme/kernels"),
        ("ssh://git@github.example.org:22/acme/k.k", "acme/k.k"),
        ("https://github.com/acme/kernels/", "acme/kernels"),
    ],
)
def test_the_remote_names_the_repository(tmp_path: Path, url: str, name: str):
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    assert repository_of(tmp_path) is None
    subprocess.run(["git", "-C", str(tmp_path), "remote", "add", "origin", url], check=True)
    assert repository_of(tmp_path) == name


def test_checks_are_told_with_who_must_act_and_counted():
    checks = [Check("well", "a"), Check("mend", "b", "one\ntwo", "somebody: do"), Check("unseen", "c")]
    assert list(lines(checks)) == [
        "well    a",
        "MEND    b: one",
        "          two",
        "        > somebody: do",
        "unseen  c",
        "1 well, 1 to mend, 1 could not be looked at, 0 to know",
    ]
    assert [exit_code(checks), exit_code(checks[::2]), exit_code(checks[:1])] == [1, 2, 0]
