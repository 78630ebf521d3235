"""A soak counts what many exams make of a contract's own kernels; what it misses it tells with the exam's salt."""

import json
import re
import shutil
from pathlib import Path

import pytest

from bot import cli
from bot.contract.appraisal import Missed, Order, Soaked, Step, Tally
from bot.contract.load import load_contract
from bot.evaluation import ControlResult
from bot.launch import appraise
from bot.report.soak import added, missed, render_soak, rows, severity
from bot.verify.philox import Stream
from bot.verify.soak import counted
from bot.verify.variants import draw_variants
from tests.verify.conftest import CENTER, CONTRACTS, HONEST

needs_sandbox = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
SALT = "0c" * 32
ORDER = Order(contracts_dir=str(CONTRACTS), contract="center", task="soak", draws=2, salt=SALT)
CONTROLS = ["controls/no_mean.py", "controls/offset_ignored.py"]


def soaked(order: Order, steps: list[Step] | None = None) -> Soaked:
    found = appraise(order, (steps if steps is not None else []).append)
    assert isinstance(found, Soaked)
    return found


@pytest.fixture(scope="module")
def steps() -> list[Step]:
    return []


@pytest.fixture(scope="module")
def twice(steps: list[Step]) -> Soaked:
    """Two exams of the small contract."""
    return soaked(ORDER, steps)


def blunted(folder: Path) -> Path:
    """A project whose small contract has a control that cheats no more."""
    shutil.copytree(CENTER, folder / "contracts" / "center", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "contracts" / "center" / "controls" / "no_mean.py").write_text(HONEST, encoding="utf-8")
    return folder


@needs_sandbox
@pytest.mark.sandbox
def test_every_form_of_every_control_is_asked_in_each_exam_and_none_is_missed(twice: Soaked, steps: list[Step]) -> None:
    tallies = {(tally.kernel, tally.kind): tally for tally in twice.tallies}
    forms = draw_variants(load_contract(CONTRACTS, "center"), Stream.from_salt(b"x" * 32), 1.0)
    for file in CONTROLS:
        assert tallies[file, "plain"].asked == 2
        for kind in ("gated", "graded"):
            one_exam = sum(form.file == file and form.kind == kind for form in forms)
            assert tallies[file, kind].asked == 2 * one_exam > 0
    assert tallies["faithful/float32.py", "faithful"].asked == 2
    assert len(tallies) == 2 * 3 + 1
    for tally in twice.tallies:
        wanted = 0 if tally.kind == "faithful" else tally.asked
        if tally.kind == "graded":
            assert tally.refused + len(tally.missed) == tally.asked
        else:
            assert (tally.refused, tally.missed) == (wanted, [])
    assert missed(twice) == []
    assert (twice.exams, twice.salts) == (2, [SALT])
    assert [(step.done, step.total) for step in steps] == [(0, 2), (1, 2)]


@needs_sandbox
@pytest.mark.sandbox
def test_margins_are_those_of_the_weakest(twice: Soaked) -> None:
    for tally in twice.tallies:
        if tally.kind == "faithful":
            assert tally.weakest is not None
            assert 0 < tally.weakest < 1
        elif tally.weakest is not None:
            assert tally.weakest > 1


@needs_sandbox
@pytest.mark.sandbox
def test_the_same_salt_gives_the_same_counts(twice: Soaked) -> None:
    again = soaked(ORDER)
    assert again.model_copy(update={"seconds": 0.0}) == twice.model_copy(update={"seconds": 0.0})


@needs_sandbox
@pytest.mark.sandbox
def test_a_control_that_is_honest_is_missed_with_the_salt_of_each_exam(tmp_path: Path) -> None:
    project = blunted(tmp_path)
    found = soaked(ORDER.model_copy(update={"contracts_dir": str(project / "contracts")}))
    plain = next(t for t in found.tallies if (t.kernel, t.kind) == (CONTROLS[0], "plain"))
    assert (plain.asked, plain.refused) == (2, 0)
    salts = [one.salt for one in plain.missed]
    assert len(set(salts)) == 2
    assert all(re.fullmatch("[0-9a-f]{64}", salt) and salt != SALT for salt in salts)
    kinds = {t.kind for t in found.tallies for one in t.missed if t.kernel == CONTROLS[0] and one.salt in salts}
    assert kinds == {"plain", "gated", "graded"}
    assert {kernel for kernel, _ in missed(found)} == {CONTROLS[0]}
    text = render_soak("center", found)
    assert all(f"salt `{salt}`" in text for salt in salts)
    assert "Plain 2/4 refused" in text


@needs_sandbox
@pytest.mark.sandbox
def test_the_command_keeps_its_counts_and_ends_with_zero_when_nothing_was_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(CENTER, tmp_path / "contracts" / "center", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(tmp_path)
    assert cli.run(["contract", "soak", "center", "--exams", "1", "--salt", SALT, "--write"]) == 0
    said = capsys.readouterr().out
    folder = tmp_path / "reports" / "center"
    assert (folder / "soak.md").read_text(encoding="utf-8") in said
    kept = Soaked.model_validate_json((folder / "soak.json").read_text(encoding="utf-8"))
    assert (kept.exams, kept.salts, missed(kept)) == (1, [SALT], [])


@needs_sandbox
@pytest.mark.sandbox
def test_the_command_ends_with_one_when_a_control_was_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(blunted(tmp_path))
    assert cli.run(["contract", "soak", "--all", "--exams", "1", "--salt", SALT]) == 1
    assert "`controls/no_mean.py`" in capsys.readouterr().out.partition("Missed")[2]
    assert not (tmp_path / "reports").exists()


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["nothing"], "unknown contract 'nothing'; known: center"),
        ([], "name one contract"),
        (["center", "--exams", "0"], "'--exams': Input should be greater than or equal to 1"),
        (["center", "--salt", "12"], "64 hexadecimal digits"),
    ],
)
def test_a_wrong_soak_is_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], part: str
) -> None:
    shutil.copytree(CENTER, tmp_path / "contracts" / "center", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(tmp_path)
    assert cli.run(["contract", "soak", *arguments]) == 2
    said = capsys.readouterr()
    assert part in said.err + said.out
    assert "Traceback" not in said.err + said.out


def result(*, refused: bool, margin: float | None, **more: object) -> ControlResult:
    return ControlResult.model_validate({"file": "k.py", "refused": refused, "where": "here", "margin": margin, **more})


def test_a_tally_keeps_the_least_margin_of_what_was_caught_and_the_most_of_what_was_accepted() -> None:
    tally = None
    for margin in (7.0, None, 3.0, 9.0):
        tally = counted(tally, "plain", result(refused=True, margin=margin), "aa")
    tally = counted(tally, "plain", result(refused=False, margin=0.5), "bb")
    assert (tally.asked, tally.refused, tally.weakest) == (5, 4, 3.0)
    assert [(one.salt, one.margin) for one in tally.missed] == [("bb", 0.5)]
    honest = None
    for refused, margin in ((False, 0.2), (False, 0.6), (False, 0.4), (True, 2.0)):
        honest = counted(honest, "faithful", result(refused=refused, margin=margin), "cc")
    assert honest is not None
    assert (honest.asked, honest.refused, honest.weakest) == (4, 1, 0.6)
    assert [(one.where, one.margin) for one in honest.missed] == [("here", 2.0)]


HOSTILE = "controls/`|<img src=x onerror=alert(1)>|\n# heading [x](http://evil) @everyone.py"


def made() -> Soaked:
    """Numbers of which no two are equal."""
    miss = Missed(salt="ab" * 32, variant=f"gated: {HOSTILE}", severity=None, where="a | b", margin=None)
    mild = Missed(salt="cd" * 32, variant="graded: by 0.011", severity=0.011, where="", margin=0.4)
    milder = mild.model_copy(update={"severity": 0.004})
    tallies = [
        Tally(kernel=HOSTILE, kind="plain", asked=11, refused=11, weakest=4.5),
        Tally(kernel=HOSTILE, kind="gated", asked=53, refused=52, weakest=1.5, missed=[miss]),
        Tally(kernel=HOSTILE, kind="graded", asked=13, refused=11, weakest=1.1, missed=[milder, mild]),
        Tally(kernel="controls/b.py", kind="plain", asked=17, refused=17, weakest=None),
        Tally(kernel="controls/b.py", kind="graded", asked=19, refused=19, weakest=1.2),
        Tally(kernel="a_faithful.py", kind="faithful", asked=23, refused=0, weakest=0.75),
    ]
    return Soaked(
        judge_digest="1" * 64, contract_digest="2" * 64, exams=11, tallies=tallies, seconds=1.0, salts=["ef" * 32]
    )


def test_totals_of_the_table_equal_the_tallies() -> None:
    text = render_soak("center", made())
    total = next(line for line in text.splitlines() if line.startswith("Plain "))
    for kind, label in (("plain", "Plain"), ("gated", "gated"), ("graded", "graded"), ("faithful", "honest")):
        tallies = [tally for tally in made().tallies if tally.kind == kind]
        assert f"{label} {sum(t.refused for t in tallies)}/{sum(t.asked for t in tallies)}" in total
    assert severity(made()) == 0.011
    assert "none passed above severity 0.011" in total
    assert [row.kernel for row in rows(made())] == [
        "controls/`|<img src" + HOSTILE[19:],
        "controls/b.py",
        "a_faithful.py",
    ]
    cells = [line for line in text.splitlines() if line.startswith("| `controls/b.py`")]
    assert len(cells) == 1
    assert "17/17" in cells[0]
    assert "19/19" in cells[0]
    assert re.search(r"–.*19/19", cells[0])


def test_nothing_of_a_name_is_markup_on_the_page() -> None:
    text = render_soak("center", made())
    outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text)
    for word in ("<img", "onerror", "evil", "@everyone"):
        assert word in text.replace("‹", "<") or word == "<img"
        assert word not in outside
    assert not any(line.startswith("# heading") for line in text.splitlines())
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 2 + 3
    # A bar inside a name would begin another cell.
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {6}
    assert text.startswith("# center: 11 exams")


def test_only_graded_controls_may_pass() -> None:
    found = missed(made())
    assert [(kernel, one.salt) for kernel, one in found] == [(HOSTILE, "ab" * 32)]
    clean = made().model_copy(update={"tallies": [t for t in made().tallies if t.kind != "gated"]})
    assert missed(clean) == []
    assert "Missed" not in render_soak("center", clean)


def test_a_soaked_contract_survives_being_written_and_read() -> None:
    assert Soaked.model_validate(json.loads(made().model_dump_json())) == made()


def test_counts_of_one_judge_add_up_and_those_of_another_are_replaced() -> None:
    one = Tally(kernel="controls/a.py", kind="plain", asked=3, refused=3, weakest=4.0)
    two = one.model_copy(update={"asked": 2, "refused": 1, "weakest": 3.5})
    honest = Tally(kernel="faithful/b.py", kind="faithful", asked=2, refused=0, weakest=0.5)
    looser = honest.model_copy(update={"weakest": 0.9})
    first = Soaked(
        judge_digest="1" * 64, contract_digest="2" * 64, exams=3, tallies=[one, honest], seconds=1.0, salts=["aa" * 32]
    )
    second = first.model_copy(update={"exams": 2, "tallies": [two, looser], "salts": ["bb" * 32]})
    both = added(first, second)
    assert (both.exams, both.salts) == (5, ["aa" * 32, "bb" * 32])
    assert {(t.kernel, t.asked, t.refused, t.weakest) for t in both.tallies} == {
        ("controls/a.py", 5, 4, 3.5),
        ("faithful/b.py", 4, 0, 0.9),
    }
    assert added(None, second) == second
    for name in ("judge_digest", "contract_digest"):
        changed = second.model_copy(update={name: "3" * 64})
        assert added(first, changed) == changed
