"""`proctor contract …` as its author meets it: mistakes with their paths, limits written, a starter that works."""

import shutil
from pathlib import Path

import pytest

from bot import cli
from bot.contract.appraisal import Calibrated, Order, Step
from bot.contract.load import load_contract, parse_yaml
from bot.contract.rewrite import with_limits
from bot.contract.schema import Limit
from bot.errors import UsageError
from bot.handlers.contract import Options, Watch, check, chosen, create, write_limits
from bot.handlers.project import Project
from bot.report.contract import bars
from tests.verify.conftest import CENTER

needs_sandbox = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with the small contract alone, and us inside it."""
    shutil.copytree(CENTER, tmp_path / "contracts" / "center", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return Project.find(tmp_path)


def spoil(project: Project, *changes: tuple[str, str]) -> None:
    path = project.contracts / "center" / "contract.yaml"
    text = path.read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")


def unreachable(order: Order, watch: Watch | None = None) -> Calibrated:
    raise AssertionError(f"{order.contract} has mistakes, and is run all the same")


def read(project: Project) -> list[tuple[str, str]]:
    """Problems that reading the file shows."""
    (report,) = check(project, ["center"], unreachable, lambda _: None, Options())
    assert report.checked is None
    return [(problem.path, problem.reason) for problem in report.problems]


MISTAKES = {
    "an unknown key": (("summary:", "sumary:"), "sumary", "Extra inputs"),
    "a missing key": (("version: 1\n", ""), "version", "Field required"),
    "an unknown dtype": (
        ("dtype: float32, optional", "dtype: fp8, optional"),
        "inputs.offset.dtype",
        "Input should be",
    ),
    "no workloads": (("workloads:\n", "workloads: []\nunread:\n"), "workloads", "List should have at least 1 item"),
    "another name": (("name: center", "name: centre"), "name", "is 'centre', but the folder is 'center'"),
    "an axis of nothing": (("{total_of: lengths}", "{total_of: length}"), "axes.T", "refers to 'length'"),
    "an axis the wrong way round": (("{min: 1, max: 8}", "{min: 9, max: 8}"), "axes.H", "min 9 exceeds max 8"),
    "lengths the wrong way round": (("min_length: 0", "min_length: 5000"), "axes.lengths", "min_length 5000 exceeds"),
    "a shape of nothing": (("shape: [N, D]", "shape: [N, E]"), "inputs.offset.shape[1]", "no axis 'E'"),
    "a shape of a ragged axis": (
        ("shape: [N, D]", "shape: [lengths, D]"),
        "inputs.offset.shape[0]",
        "no axis 'lengths'",
    ),
    "offsets of another shape": (("shape: [N+1]", "shape: [N]"), "inputs.cu_seqlens.shape", "offsets of 'lengths'"),
    "offsets of another dtype": (("dtype: int64", "dtype: int32"), "inputs.cu_seqlens.dtype", "offsets are int64"),
    "a group that is no axis": (("groups: [H]", "groups: [N]"), "outputs.y.groups", "'N' is not one of its axes"),
    "a value outside its domain": (
        ("value: 1.0, low: 0.5", "value: 1.0, low: 1.5"),
        "inputs.scale.value",
        "1 is outside",
    ),
    "an empty domain": (("low: 0.5, high: 2.0", "low: 3.0, high: 2.0"), "inputs.scale", "low 3 exceeds high 2"),
    "a regime outside the domain": (
        ("values: {scale: {between: [0.5, 2.0]}}", "values: {scale: {between: [0.5, 8.0]}}"),
        "regimes.shifted.values.scale",
        "0.5 to 8 is outside 0.5..2",
    ),
    "an input never drawn": (
        ("  offset: {kind: normal, std: 0.5}\n", ""),
        "regimes.plain.draws",
        "input 'offset' is never",
    ),
    "a draw of nothing": (("  offset: {kind", "  ofset: {kind"), "draws.ofset", "not an input that is drawn"),
    "absent but not optional": (
        ("absent: [offset]", "absent: [x]"),
        "probes[0].absent",
        "'x' is not an optional input",
    ),
    "drawn and absent at once": (
        ("absent: [offset]", "absent: [offset]\n    draws: {offset: {kind: constant, value: 1.0}}"),
        "probes[0].absent",
        "'offset' is drawn and absent at once",
    ),
    "a negative size": (("shape: [N, D]", "shape: [N, -3]"), "inputs.offset.shape[1]", "Input should be greater"),
    "a size beyond any memory": (
        ("shape: [N, D]", "shape: [N, 99999999999]"),
        "inputs.offset.shape[1]",
        "Input should be less than 2147483648",
    ),
    "work of a negative number": (("[2, T, H, D]", "[-2, T, H, D]"), "work.operations[0]", "Input should be greater"),
    "infinite integers": (
        ("offsets_of: lengths", "offsets_of: lengths, infinite: true"),
        "inputs.cu_seqlens.infinite",
        "int64 has no infinities",
    ),
    "offsets that may be absent": (
        ("offsets_of: lengths", "offsets_of: lengths, optional: true"),
        "inputs.cu_seqlens.optional",
        "offsets are never absent",
    ),
    "offsets with a bound of their own": (
        ("offsets_of: lengths", "offsets_of: lengths, below: 9"),
        "inputs.cu_seqlens.below",
        "offsets are bounded by 'lengths'",
    ),
    "a negative deviation": (
        ("x: {kind: normal, std: 1.0}", "x: {kind: normal, std: {between: [-1.0, 1.0]}}"),
        "draws.x",
        "a standard deviation of -1 is less than none",
    ),
    "an interval that a draw may turn round": (
        ("x: {kind: normal, std: 1.0}", "x: {kind: uniform, low: {between: [0.0, 2.0]}, high: 1.0}"),
        "draws.x",
        "low, up to 2, may exceed high, from 1 on",
    ),
    "a minimum that is no version": (
        ("file: baselines/torch_loop.py", "file: baselines/torch_loop.py, requires: {module: torch, minimum: newest}"),
        "baselines[0].requires.minimum",
        "String should match pattern",
    ),
    "an unknown distribution": (("{kind: normal, std: 1.0}", "{kind: gauss}"), "draws.x", "Input tag 'gauss'"),
    "a parameter that is none": (
        ("x: {kind: normal, std: 1.0}", "x: {kind: normal, std: wide}"),
        "draws.x.std",
        "Input",
    ),
    "no limit": (("limits:\n  y:", "limits:\n  z:"), "limits", "output 'y' has no limit"),
    "limits out of order": (("p99: 6.0", "p99: 60.0"), "limits.y", "wants median <= p99 <= maximum"),
    "a size outside its axis": (
        ("{H: 4, lengths: [512]}", "{H: 9, lengths: [512]}"),
        "workloads[1].axes.H",
        "9 is outside",
    ),
    "a size left out": (("{H: 4, lengths: [512]}", "{lengths: [512]}"), "workloads[1].axes", "axis 'H' has no value"),
    "a size for no axis": (
        ("{H: 4, lengths: [512]}", "{H: 4, lengths: [512], T: 512}"),
        "workloads[1].axes.T",
        "not an axis that a workload sets",
    ),
    "a number for lengths": (
        ("lengths: [512]", "lengths: 512"),
        "workloads[1].axes.lengths",
        "wants a list of lengths",
    ),
    "two anchors": (
        ("lengths: [512]}", "lengths: [512]}, anchor: true"),
        "workloads",
        "only one can be the anchor on cpu",
    ),
    "nothing scored": (
        ("device: [cpu], axes: {H: 4", "device: [cpu], scored: false, axes: {H: 4"),
        "workloads",
        "no wo",
    ),
    "a hidden size outside": (
        ("{choice: [1, 3]}", "{choice: [1, 30]}"),
        "hidden[0].axes.H.choice[1]",
        "30 is outside 1..8",
    ),
    "hidden totals reversed": (
        ("total: [20, 90]", "total: [90, 20]"),
        "hidden[0].axes.lengths.total",
        "wants two numbers",
    ),
    "a probe of no regime": (
        ("regime: plain\n    absent", "regime: plan\n    absent"),
        "probes[0].regime",
        "no regime 'plan'",
    ),
    "two probes of a name": (("name: large", "name: no_offset"), "probes", "'no_offset' stands twice"),
    "a missing file": (
        ("faithful/float32.py", "faithful/float16.py"),
        "faithful[0]",
        "the file faithful/float16.py is",
    ),
    "a control that fails nowhere": (
        ("fails: [plain]", "fails: [plain, big]"),
        "controls[1].fails",
        "no probe, regime or",
    ),
    "work of no axis": (("[2, T, H, D]", "[2, T, Q]"), "work.operations[2]", "no axis 'Q' that could be a dimension"),
    "a key twice": (("version: 1", "version: 1\nversion: 2"), "", "duplicate key 'version'"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_with_its_path(project: Project, name: str) -> None:
    change, path, reason = MISTAKES[name]
    spoil(project, change)
    told = read(project)
    assert [found for found in told if found[0] == path and reason in found[1]], told


def test_one_mistake_is_told_once_and_blames_nothing_that_follows_from_it(project: Project) -> None:
    # The axis, the input and the probe are each used elsewhere.
    spoil(
        project,
        ("D: {const: 64}", "D: {const: none}"),
        ("dtype: float, value: 1.0", "dtype: real, value: 1.0"),
        ("name: large", "name: large\n    breaking: it"),
        ("y: {shape: [T, H, D], dtype: bfloat16", "y: {shape: [T, H, D], dtype: bf16"),
    )
    assert [path for path, _ in read(project)] == [
        "axes.D.const",
        "inputs.scale.dtype",
        "outputs.y.dtype",
        "probes[1].breaking",
    ]


def test_mistakes_of_type_and_of_reference_are_told_together(project: Project) -> None:
    spoil(
        project,
        ("dtype: float32, optional", "dtype: fp8, optional"),
        ("{H: 4, lengths: [300, 100, 112]}", "{H: four, lengths: [300, 100, 112]}"),
        ("{H: 4, lengths: [512]}", "{H: 40, lengths: [512]}"),
        ("fails: [plain]", "fails: [nowhere]"),
        ("baselines/torch_loop.py", "baselines/lost.py"),
    )
    assert {path for path, _ in read(project)} == {
        "inputs.offset.dtype",
        "workloads[0].axes.H",
        "workloads[1].axes.H",
        "controls[1].fails",
        "baselines[0].file",
    }


@pytest.mark.parametrize("text", ["", "- just\n- a list\n", "name: center\n", "name: [unclosed", "\x00"])
def test_what_is_no_contract_at_all_is_told_without_a_traceback(project: Project, text: str) -> None:
    (project.contracts / "center" / "contract.yaml").write_text(text, encoding="utf-8")
    assert read(project)


def test_bytes_that_are_no_text_are_told(project: Project) -> None:
    (project.contracts / "center" / "contract.yaml").write_bytes(b"name: \xff\xfe\n")
    assert read(project) == [("", "not UTF-8 text")]


@pytest.mark.parametrize(
    ("name", "everything", "reason"),
    [(None, False, "name one contract"), ("center", True, "name one contract"), ("centre", False, "known: center")],
)
def test_a_choice_that_is_none_is_a_usage_error(
    project: Project, name: str | None, everything: bool, reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        chosen(project, name, everything=everything)


def test_the_command_says_what_is_wrong_and_ends_with_one(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    spoil(project, ("fails: [plain]", "fails: [nowhere]"), ("baselines/torch_loop.py", "baselines/lost.py"))
    assert cli.run(["contract", "check", "--all"]) == 1
    out = capsys.readouterr().out
    assert "center: 2 problems" in out
    assert "controls[1].fails: no probe, regime or hidden draw 'nowhere'" in out


def test_an_unknown_contract_ends_with_two(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["contract", "check", "centre"]) == 2
    assert "unknown contract 'centre'; known: center" in capsys.readouterr().err


@needs_sandbox
@pytest.mark.sandbox
def test_a_created_contract_passes_its_check(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["contract", "new", "row_center"]) == 0
    assert cli.run(["contract", "check", "row_center"]) == 0
    out = capsys.readouterr().out
    assert "✓ row_center" in out
    assert "2 controls, weakest" in out
    assert "1 faithful, worst at" in out


@pytest.mark.parametrize("name", ["Softmax", "2d", "a/b", "..", "", "x" * 65])
def test_a_bad_name_begins_nothing(project: Project, name: str) -> None:
    with pytest.raises(UsageError, match="no name for a contract"):
        create(project, name)
    assert [folder.name for folder in project.contracts.iterdir()] == ["center"]


def test_an_existing_folder_is_left_alone(project: Project) -> None:
    before = (project.contracts / "center" / "contract.yaml").read_bytes()
    with pytest.raises(UsageError, match="exists already"):
        create(project, "center")
    assert (project.contracts / "center" / "contract.yaml").read_bytes() == before


def test_show_tells_what_a_contract_declares_and_draws_its_regimes(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["contract", "show", "center"]) == 0
    out = capsys.readouterr().out
    assert "run(x, offset, scale, cu_seqlens, y)" in out
    assert "regime shifted on packed" in out
    assert "a mean taken in low precision" in out
    row = next(line for line in out.splitlines() if line.startswith("x ") and "█" in line)
    assert "▁" in row
    # 512 tokens x 4 heads x 64 channels, in and out in bfloat16, and offsets: bytes and operations of a workload.
    packed = next(line for line in out.splitlines() if line.startswith("packed"))
    assert "525 k" in packed
    assert "262 k" in packed


def test_bars_leave_a_bin_empty_only_when_it_is() -> None:
    assert bars([0, 1, 500, 1000]) == " ▁▄█"
    assert bars([0, 0]) == "  "


MEASURED = Limit(median=0.9, p99=1.7, maximum=1.9, floor_ulps=0.5, source="measured: a, b; more of it " * 8 + "end")


def test_limits_are_written_and_all_else_left_as_it_was(project: Project) -> None:
    path = project.contracts / "center" / "contract.yaml"
    before = path.read_text(encoding="utf-8")
    found = Calibrated(
        problems=[], draws=1, cases=8, measured=[], proposed={"limits.y": MEASURED}, controls=[], seconds=1.0, salt=""
    )
    write_limits(project, "center", found)
    after = path.read_text(encoding="utf-8")
    assert load_contract(project.contracts, "center").contract.limits["y"] == MEASURED
    assert [line for line in after.splitlines() if "y: {median" not in line] == [
        line for line in before.splitlines() if "y: {median" not in line
    ]


BLOCK = """\
limits:
  # why it is so
  out:
    median: 2.5  # sharp
    p99: 12
    maximum: 24.0
    source: >-
      sixteen draws,
      folded

# after
probes:
  - name: a
    limits:
      out: {median: 1.0, p99: 2.0, maximum: 3.0, source: by hand}
"""


def test_limits_in_blocks_keep_their_comments_and_probes_have_their_own() -> None:
    text = with_limits(BLOCK, {"limits.out": MEASURED, "probes[0].limits.out": MEASURED})
    assert "    median: 0.9  # sharp\n" in text
    assert "  # why it is so\n" in text
    assert "\n\n# after\nprobes:" in text
    document = parse_yaml(text, "test")
    wanted = {"median": 0.9, "p99": 1.7, "maximum": 1.9, "source": MEASURED.source}
    assert document["limits"]["out"] == wanted
    assert document["probes"][0]["limits"]["out"] == wanted
    assert max(map(len, text.splitlines()[:12])) <= 110


@pytest.mark.parametrize(
    "text",
    [
        "limits: {out: &same {median: 1.0, p99: 2.0, maximum: 3.0, source: x}, state: *same}\n",
        "limits: {out: {median: 1.0, p99: 2.0, maximum: 3.0}}\n",
        "limits: {}\n",
    ],
)
def test_limits_that_do_not_stand_alone_are_left_to_their_author(text: str) -> None:
    with pytest.raises(UsageError, match="by hand"):
        with_limits(text, {"limits.out": MEASURED})


@needs_sandbox
@pytest.mark.sandbox
def test_a_check_tells_its_steps_and_can_be_repeated(project: Project) -> None:
    from bot.launch import appraise

    steps: list[Step] = []
    options = Options(salt="07" * 32)
    (first,) = check(project, ["center"], appraise, steps.append, options)
    (second,) = check(project, ["center"], appraise, lambda _: None, options)
    assert first.problems == second.problems == []
    assert first.checked is not None
    assert second.checked is not None
    assert first.checked.controls == second.checked.controls
    assert [step.text for step in steps] == [
        "oracle",
        "faithful/float32.py",
        "controls/no_mean.py",
        "controls/offset_ignored.py",
    ]


def test_what_is_to_be_decided_is_all_that_is_said_of_what_holds_it(project: Project):
    spoil(
        project,
        ("mean: {between: [4.0, 8.0]}", 'mean: {between: [4.0, !decide "how far"]}'),
        ("  x: {kind: normal, std: 1.0}", '  x: {kind: !decide "which family", std: 1.0}'),
        ("max: 8}", 'max: !decide "how many heads"}'),
    )
    assert read(project) == [
        ("axes.H.max", "to be decided: how many heads"),
        ("draws.x.kind", "to be decided: which family"),
        ("regimes.shifted.draws.x.mean.between[1]", "to be decided: how far"),
    ]


def test_what_a_document_holds_a_million_times_is_looked_into_once(project: Project):
    nine = "".join(f", &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 30))
    path = project.contracts / "center" / "contract.yaml"
    path.write_text(path.read_text(encoding="utf-8") + f"x: [&l0 [a]{nine}]\n", encoding="utf-8")
    assert read(project) == [("x", "Extra inputs are not permitted")]
