"""Each job after the gate has contract, judge and lock of the commit that the gate saw, or does nothing."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bot import cli, digest
from bot.contract.load import load_contract
from bot.errors import UsageError
from bot.github.refusals import OTHER_BASE, RefusedError
from bot.handlers.demo import REPOSITORY
from bot.handlers.digests import digests_of, held_order
from bot.handlers.lock import CONSTRAINTS, REQUIREMENTS
from bot.handlers.project import Project
from bot.handlers.run import RunFolder
from tests.handlers.street import Street


def installed(root: Path, version: str = "1.0") -> None:
    """A lock, as `proctor init` leaves one."""
    (root / CONSTRAINTS).parent.mkdir(parents=True, exist_ok=True)
    (root / CONSTRAINTS).write_text(f"rfc8785=={version}\n", encoding="utf-8")
    (root / REQUIREMENTS).write_text("kernel-proctor==0.1.0\n", encoding="utf-8")


def another_contract(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    with (project.contracts / "center" / "oracle.py").open("a", encoding="utf-8") as file:
        file.write("# another\n")


def no_contract(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(project.contracts / "center")


def another_lock(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(project.root, "2.0")


def no_lock(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    (project.root / REQUIREMENTS).unlink()


def another_judge(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest, "of_judge", lambda: "0" * 64)


def test_the_order_names_what_the_gate_saw_and_the_gate_the_commit(street: Street) -> None:
    installed(street.town.project.root)
    issue = street.town.open_issue()
    passed, run = street.town.label(issue)
    order, project = run.order(), street.town.project
    assert passed.base == order.base_sha
    assert order.digests == digests_of(project, "center")
    assert order.digests.contract == load_contract(project.contracts, "center").digest
    assert order.digests.judge == digest.of_judge()
    assert len(order.digests.lock) == 64
    assert held_order(run, project) == order


def test_a_rerun_names_what_its_own_gate_saw(street: Street) -> None:
    number = street.bots()
    installed(street.town.project.root)
    passed, run = street.town.comment(number, "/rerun-bench")
    assert (passed.base, run.order().digests) == (run.order().base_sha, digests_of(street.town.project, "center"))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (another_contract, "contract"),
        (no_contract, "contract"),
        (another_judge, "judge"),
        (another_lock, "lock"),
        (no_lock, "lock"),
    ],
)
def test_a_job_that_has_something_else_does_nothing(
    street: Street,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[Project, pytest.MonkeyPatch], None],
    what: str,
) -> None:
    town = street.town
    installed(town.project.root)
    _, run = town.label(town.open_issue())
    before = (sorted(run.path.rglob("*")), town.said(1))
    change(town.project, monkeypatch)
    with pytest.raises(RefusedError, match=f"The {what} of this job is not the one of commit") as refused:
        held_order(run, town.project)
    assert refused.value.code == OTHER_BASE.code == "E_OTHER_BASE"
    monkeypatch.chdir(town.project.root)
    told = town.folder / "event.json"
    told.write_text("{}", encoding="utf-8")
    environment = {"EVENT_NAME": "issues", "EVENT_PATH": str(told), "REPOSITORY": REPOSITORY, "TOKEN": "bot-token"}
    for name, value in {**environment, "API_URL": town.forge.api_url, "SERVER_URL": town.forge.url}.items():
        monkeypatch.setenv(f"GITHUB_{name}", value)
    for job in (["agent", "--model", "replay"], ["examine"], ["publish"]):
        assert cli.run([*job, "--run", str(run.path)]) == 2
        assert "`E_OTHER_BASE`" in capsys.readouterr().err
    assert (sorted(run.path.rglob("*")), town.said(1)) == before


def test_without_an_order_there_is_nothing_to_hold(tmp_path: Path, project: Project) -> None:
    with pytest.raises(UsageError, match="holds no order"):
        held_order(RunFolder(tmp_path / "empty"), project)
