"""`proctor init`: what it writes is what this repository has, once, and nothing of anybody's is overwritten."""

import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from bot.contract.load import load_contract, parse_yaml
from bot.errors import UsageError
from bot.handlers.doctor import look_at_checkout
from bot.handlers.install import OWN_INSTALL, PINNED_INSTALL, SHIPPED, Wanted, install, shipped_workflows, told
from bot.handlers.lock import Lock

ROOT = Path(__file__).parents[2]
TEAM = "@acme/kernels"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    root = tmp_path / "target"
    root.mkdir()
    subprocess.run(["git", "init", "--quiet", str(root)], check=True)
    return root


def contents(root: Path) -> dict[str, bytes]:
    files = (path for path in sorted(root.rglob("*")) if path.is_file() and ".git" not in path.relative_to(root).parts)
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def test_what_is_shipped_is_what_this_repository_has() -> None:
    """One source: the links in the checkout, which a wheel carries as copies."""
    workflows = {path.name for path in (ROOT / ".github" / "workflows").glob("*.yml")} - {"ci.yml"}
    pairs = {f"workflows/{name}": f".github/workflows/{name}" for name in workflows} | {
        "form.yml": ".github/ISSUE_TEMPLATE/optimize.yml",
        "CODEOWNERS": ".github/CODEOWNERS",
        "constraints.txt": "constraints.txt",
        "contracts.md": "contracts/README.md",
        "kernels.md": "kernels/README.md",
    }
    shipped = {str(path.relative_to(SHIPPED)) for path in SHIPPED.rglob("*") if path.is_file()}
    assert shipped == set(pairs)
    for name, original in pairs.items():
        assert (SHIPPED / name).read_bytes() == (ROOT / original).read_bytes(), name
        assert (SHIPPED / name).is_symlink(), name


def test_the_wheel_carries_everything_that_is_shipped() -> None:
    tomllib = pytest.importorskip("tomllib")
    data = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "handlers/shipped/**/*" in data["tool"]["setuptools"]["package-data"]["bot"]


def test_installed_workflows_take_the_pinned_wheel_and_runners_check_theirs() -> None:
    own = shipped_workflows(source=True)
    for name, text in shipped_workflows().items():
        assert OWN_INSTALL not in text
        assert text.count(PINNED_INSTALL) == own[name].count(OWN_INSTALL)
        workflow: Any = parse_yaml(text, name)
        for job in workflow["jobs"].values():
            lines = [step["run"] for step in job.get("steps", []) if "run" in step]
            if "self-hosted" in job.get("runs-on", ""):
                assert not any("install" in line for line in lines)
                position = next(i for i, line in enumerate(lines) if line.startswith("proctor "))
                assert lines[position] == "proctor runner check"
            else:
                assert "proctor runner check" not in lines


def test_a_repository_is_complete_after_init_but_for_what_people_write(target: Path) -> None:
    wanted = Wanted(owner=TEAM, contract="center")
    done = install(target, wanted)
    assert ".github/workflows/optimize.yml" in done.written
    assert load_contract(target / "contracts", "center").contract.name == "center"
    assert Lock.read(target).versions["kernel-proctor"] == version("kernel-proctor")
    assert {check.state for check in look_at_checkout(target)} == {"well"}
    lines = "\n".join(told(done, wanted))
    for part in ("proctor setup --dry-run", "ANTHROPIC_API_KEY", "runner doctor", "package index"):
        assert part in lines


def test_a_second_run_changes_nothing(target: Path) -> None:
    install(target, Wanted(owner=TEAM, contract="center"))
    before = contents(target)
    again = install(target, Wanted(owner=TEAM, contract="center"))
    assert again.written == []
    assert contents(target) == before
    assert "nothing to do: everything was there" in told(again, Wanted(owner=TEAM))


def test_nothing_is_written_where_a_file_differs_until_forced(target: Path) -> None:
    theirs = target / ".github" / "workflows" / "optimize.yml"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("name: theirs\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"optimize\.yml.*\n.*--force"):
        install(target, Wanted(owner=TEAM))
    assert list(contents(target)) == [".github/workflows/optimize.yml"]
    assert ".github/workflows/optimize.yml" in install(target, Wanted(owner=TEAM, force=True)).written
    assert theirs.read_text(encoding="utf-8") == shipped_workflows()["optimize.yml"]


def test_even_forced_what_people_wrote_stays(target: Path) -> None:
    (target / "contracts" / "center").mkdir(parents=True)
    (target / "contracts" / "center" / "contract.yaml").write_text("name: center\n", encoding="utf-8")
    (target / "contracts" / "README.md").write_text("ours\n", encoding="utf-8")
    (target / "CODEOWNERS").write_text("* @alice\n/contracts/ @bob\n", encoding="utf-8")
    done = install(target, Wanted(owner=TEAM, contract="center", force=True))
    assert done.kept == ["contracts/README.md", "contracts/center/"]
    assert (target / "contracts" / "README.md").read_text(encoding="utf-8") == "ours\n"
    assert (target / "CODEOWNERS").read_text(encoding="utf-8").splitlines() == [
        "* @alice",
        "/contracts/ @bob",
        "",
        "# The contracts and the workflows are people's, never an agent's.",
        f"/.github/ {TEAM}",
    ]
    assert not (target / ".github" / "CODEOWNERS").exists()


def test_a_wheel_is_kept_in_the_repository(target: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "kernel_proctor-9.9.9-py3-none-any.whl"
    wheel.write_bytes(b"PK")
    install(target, Wanted(str(wheel), TEAM))
    requirements = (target / ".github" / "proctor" / "requirements.txt").read_text(encoding="utf-8")
    assert requirements.splitlines()[-1] == "./.github/proctor/kernel_proctor-9.9.9-py3-none-any.whl"
    before = Lock.read(target)
    assert before.versions["kernel-proctor"] == "9.9.9"
    assert install(target, Wanted(owner=TEAM)).written == [], "without --proctor the pin stays"
    (target / ".github" / "proctor" / wheel.name).write_bytes(b"PK!")
    assert Lock.read(target).digest != before.digest


@pytest.mark.parametrize(
    ("wanted", "part"),
    [
        (Wanted("kernel-proctor", TEAM), "pins nothing"),
        (Wanted("kernel-proctor>=1", TEAM), "pins nothing"),
        (Wanted("nowhere.whl", TEAM), "No such file"),
        (Wanted("kernel-proctor==1\nevil", TEAM), "one requirement"),
        (Wanted(owner="acme"), "no owner"),
        (Wanted(owner="@acme\n* @x"), "no owner"),
        (Wanted(owner=TEAM, contract="../x"), "no name for a contract"),
    ],
)
def test_answers_that_make_no_sense_write_nothing(target: Path, wanted: Wanted, part: str) -> None:
    with pytest.raises(UsageError, match=part):
        install(target, wanted)
    assert contents(target) == {}


def test_only_the_top_of_a_repository_is_written_to(target: Path) -> None:
    (target / "sub").mkdir()
    with pytest.raises(UsageError, match="not the top folder of a git repository"):
        install(target / "sub", Wanted(owner=TEAM))


def test_proctor_s_own_repository_needs_nothing() -> None:
    with pytest.raises(UsageError, match="Proctor's own repository"):
        install(ROOT, Wanted(owner=TEAM))


def test_a_link_leads_nowhere(target: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (target / ".github").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="symbolic link"):
        install(target, Wanted(owner=TEAM))
    assert contents(tmp_path / "elsewhere") == {}
