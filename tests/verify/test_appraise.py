"""A contract's mistakes that only running it shows: each found, with the path by which its author finds it."""

import shutil
from pathlib import Path

import pytest
import torch

from bot.contract.appraisal import Checked, Order
from bot.contract.load import load_contract
from bot.errors import DataError
from bot.verify.appraise import appraise, draw_all
from bot.verify.calibrate import calibrate, propose, rounded_up
from bot.verify.oracle import load_oracle
from bot.verify.philox import Stream
from bot.verify.sketch import sketch
from bot.verify.soundness import check_oracle
from bot.verify.trials import Findings
from tests.verify.conftest import CENTER

SALT = "5a" * 32
HONEST = (CENTER / "faithful" / "float32.py").read_text(encoding="utf-8")
ORDER = Order(contracts_dir="", contract="center", task="check")

needs_sandbox = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def contracts(tmp_path: Path) -> Path:
    """A copy of the small contract that a test may spoil."""
    shutil.copytree(CENTER, tmp_path / "center", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def spoil(contracts: Path, file: str, old: str, new: str) -> None:
    path = contracts / "center" / file
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def drawn_and_asked(contracts: Path) -> dict[str, str]:
    """Problems by path of everything that needs no kernel: draws, and the oracle's behaviour."""
    loaded, found = load_contract(contracts, "center"), Findings()
    oracle = load_oracle(loaded.folder)
    cases = draw_all(loaded, ORDER, oracle, Stream.from_salt(bytes.fromhex(SALT)), found)
    if cases:
        check_oracle(loaded.contract, oracle, cases, found)
    return {problem.path: problem.reason for problem in found.problems()}


def checked(contracts: Path) -> Checked:
    return appraise(load_contract(contracts, "center"), ORDER, SALT, lambda _: None)


def paths_and_reasons(found: Checked) -> list[tuple[str, str]]:
    return [(problem.path, problem.reason) for problem in found.problems]


RETURN = 'return {"y": scale * centred}'
ORACLES = {
    "raises": (RETURN, "raise ArithmeticError('no')", "oracle.py", "ArithmeticError: no (in packed/plain and 6 more)"),
    "is float32": (RETURN, 'return {"y": (scale * centred).float()}', "oracle.py", "`y` must be float64"),
    "has another shape": (RETURN, 'return {"y": centred[..., :3]}', "oracle.py", "`y` must be float64 (512, 4, 64)"),
    "names another output": (RETURN, 'return {"z": centred}', "oracle.py", "must return a dict of y"),
    "returns no tensor": (RETURN, 'return {"y": centred.tolist()}', "oracle.py", "`y` must be a tensor, is list"),
    "returns nothing": (RETURN, "return None", "oracle.py", "must return a dict of y"),
    "returns another layout": (RETURN, 'return {"y": centred.to("meta")}', "oracle.py", "its outputs cannot be used"),
    "ends the program": (RETURN, "raise SystemExit(3)", "oracle.py", "SystemExit: 3 (in packed/plain and 6 more)"),
    "ignores a tensor": ("if offset is not None", "if False", "inputs.offset", "the oracle ignores it"),
    "ignores the lengths": (
        "torch.repeat_interleave(offset, lengths, dim=0)[:, None, :]",
        "offset.mean(0)",
        "inputs.cu_seqlens",
        "the oracle ignores it",
    ),
    "ignores a scalar": ("scale * centred", "centred", "inputs.scale", "the oracle ignores it"),
    "rounds on the way": (
        "noise(x).mean(dim=-1, keepdim=True)",
        "noise(x).float().mean(dim=-1, keepdim=True).double()",
        "oracle.py",
        "is not float64 throughout: a relative change of 9e-13 in `x` does not reach `y`",
    ),
    "is random": (
        RETURN,
        RETURN.replace("centred", "(centred + torch.rand(1).double())"),
        "oracle.py",
        "gives another `y`",
    ),
    "lets the machine choose a device": (
        RETURN,
        RETURN.replace("centred", "(centred + torch.zeros(1).double())"),
        "oracle.py",
        "makes a tensor on the default device",
    ),
    "writes into an input": (
        RETURN,
        f"x.add_(0.001); {RETURN}",
        "oracle.py",
        "writes into its input `x`",
    ),
}


@pytest.mark.parametrize("name", ORACLES)
def test_an_oracle_not_to_be_trusted_is_told_with_its_reason(contracts: Path, name: str) -> None:
    old, new, path, reason = ORACLES[name]
    spoil(contracts, "oracle.py", old, new)
    assert drawn_and_asked(contracts)[path].startswith(reason)


def test_answers_are_not_held_against_an_oracle_that_is_wrong_in_some_places(contracts: Path) -> None:
    spoil(contracts, "oracle.py", RETURN, 'return {"y": scale * centred[:100]}')
    assert [path for path, _ in paths_and_reasons(checked(contracts))] == ["oracle.py"]


def test_an_oracle_by_definition_raises_no_doubt(contracts: Path) -> None:
    assert drawn_and_asked(contracts) == {}


DRAWS = {
    "does not fit its tensor": (
        "x: {kind: normal, std: 0.5, mean: {between: [4.0, 8.0]}}",
        "offset: {kind: activation}",
        "regimes.shifted",
        "cannot be drawn",
    ),
    "is not finite": (
        "{x: {kind: normal, std: 1.0, mean: 64.0}}",
        "{x: {kind: normal, std: 1.0, mean: 1.0e+39}}",
        "probes[1].draws.x",
        "draws values that are not finite in bfloat16",
    ),
    "never differs": (
        "offset: {kind: normal, std: 0.5}",
        "offset: {kind: constant, value: 0.5}",
        "inputs.offset",
        "is the",
    ),
}


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.parametrize("name", DRAWS)
def test_a_distribution_that_cannot_serve_is_told_where_it_is_declared(contracts: Path, name: str) -> None:
    old, new, path, reason = DRAWS[name]
    spoil(contracts, "contract.yaml", old, new)
    assert drawn_and_asked(contracts)[path].startswith(reason)


@needs_sandbox
@pytest.mark.sandbox
def test_a_sound_contract_has_no_problem_and_shows_what_its_kernels_do(contracts: Path) -> None:
    found = checked(contracts)
    assert found.problems == []
    assert found.cases == 8
    assert [trial.file for trial in found.controls] == ["controls/no_mean.py", "controls/offset_ignored.py"]
    assert all(trial.margin is not None and trial.margin > 3 for trial in found.controls)
    assert [trial.margin is not None and 0 < trial.margin < 1 for trial in found.faithful] == [True]


@needs_sandbox
@pytest.mark.sandbox
def test_kernels_that_do_not_do_their_part_are_told_all_at_once(contracts: Path) -> None:
    folder = contracts / "center"
    (folder / "controls" / "no_mean.py").write_text(HONEST, encoding="utf-8")
    (folder / "controls" / "offset_ignored.py").write_text("raise OSError('gone')\n", encoding="utf-8")
    slightly = HONEST.replace("(scale * rows)", "(1.0115 * scale * rows)")
    (folder / "controls" / "slightly.py").write_text(slightly, encoding="utf-8")
    large_wrong = HONEST.replace("rows.mean(dim=-1, keepdim=True)", "rows.mean(dim=-1, keepdim=True).clamp(max=40.0)")
    (folder / "faithful" / "clamps.py").write_text(large_wrong, encoding="utf-8")
    (folder / "faithful" / "breaks.py").write_text(
        "def run(*_):\n    raise ValueError('never mind')\n", encoding="utf-8"
    )
    (folder / "baselines" / "torch_loop.py").write_text("def walk():\n    pass\n", encoding="utf-8")
    spoil(
        contracts,
        "contract.yaml",
        "faithful:\n",
        "  - {file: controls/slightly.py, cheat: inexact, fails: [plain]}\nfaithful:\n",
    )
    spoil(contracts, "contract.yaml", "faithful:\n", "faithful:\n  - faithful/clamps.py\n  - faithful/breaks.py\n")
    problems = paths_and_reasons(checked(contracts))
    found = dict(problems)
    assert "module 'candidate' has no attribute 'run'" in found["baselines[0].file"]
    assert found["faithful[1]"].startswith("does not run: raised ValueError: never mind")
    assert found["probes[1]"].startswith("faithful/clamps.py fails it: y[")
    assert found["probes[1]"].endswith("(in large)")
    passed = [reason for path, reason in problems if path == "controls[0].fails"]
    assert [reason.partition(" (")[0] for reason in passed] == [
        "controls/no_mean.py passes in shifted",
        "controls/no_mean.py passes in large",
    ]
    assert "does not run: OSError: gone" in found["controls[1].file"]
    assert "a stronger probe is needed" in found["controls[2].fails"]
    assert "oracle.py" not in found


@needs_sandbox
@pytest.mark.sandbox
def test_limits_looser_than_a_control_and_an_exam_that_zeros_pass(contracts: Path) -> None:
    spoil(
        contracts,
        "contract.yaml",
        "median: 2.0, p99: 6.0, maximum: 12.0",
        "median: 1.0e+6, p99: 1.0e+6, maximum: 1.0e+6",
    )
    found = paths_and_reasons(checked(contracts))
    limits = [reason for path, reason in found if path == "limits.y"]
    assert any(reason.startswith("looser than controls/no_mean.py") for reason in limits)
    assert any(reason.startswith("looser than controls/offset_ignored.py") for reason in limits)
    assert ("regimes.plain", "an output `y` of zeros passes (in packed/plain and 1 more)") in found
    assert ("regimes.shifted", "an output `y` of one constant passes (in packed/shifted and 1 more)") in found


@needs_sandbox
@pytest.mark.sandbox
def test_an_oracle_at_odds_with_its_honest_variants_is_the_suspect(contracts: Path) -> None:
    spoil(contracts, "oracle.py", RETURN, 'return {"y": scale * centred * 1.1}')
    found = dict(paths_and_reasons(checked(contracts)))
    assert found["oracle.py"].startswith("disagrees with every faithful variant, faithful/float32.py among them")
    assert not any(path.startswith("faithful") for path in found)


@needs_sandbox
@pytest.mark.sandbox
def test_a_limit_below_the_rounding_of_the_output_is_named(contracts: Path) -> None:
    spoil(contracts, "contract.yaml", "median: 2.0", "median: 0.01")
    spoil(contracts, "contract.yaml", "faithful:\n  - faithful/float32.py", "faithful: []")
    path = contracts / "center" / "contract.yaml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text[: text.index("controls:\n")] + text[text.index("faithful:") :], encoding="utf-8")
    found = dict(paths_and_reasons(checked(contracts)))
    assert found["limits.y"].startswith("refuses the oracle's own value, rounded: y[")
    assert found["faithful"].startswith("no honest variant")
    assert found["controls"].startswith("no deliberately wrong kernel")


@needs_sandbox
@pytest.mark.sandbox
def test_calibration_measures_every_limit_and_proposes_room_above_it(contracts: Path) -> None:
    order = ORDER.model_copy(update={"task": "calibrate", "draws": 2})
    found = calibrate(load_contract(contracts, "center"), order, SALT, lambda _: None)
    assert found.problems == []
    assert found.cases == 16
    (entry,) = found.measured
    assert (entry.path, entry.file) == ("limits.y", "faithful/float32.py")
    assert 0 < entry.median.value <= entry.p99.value <= entry.maximum.value
    limit = found.proposed["limits.y"]
    assert entry.maximum.value * 1.5 <= limit.maximum < entry.maximum.value * 1.7
    assert limit.source.startswith("2 draws of every cpu cell, probe and hidden draw: float32 at most")
    control = next(margin for margin in found.controls if margin.file == "controls/no_mean.py")
    assert control.current is not None
    assert control.proposed is not None
    assert control.proposed > control.current > 3


def test_what_was_not_measured_keeps_its_limit(contracts: Path) -> None:
    assert propose(load_contract(contracts, "center").contract, [], ORDER) == {}


@pytest.mark.parametrize(("value", "rounded"), [(1.34, 1.4), (1.4, 1.4), (0.0331, 0.034), (134.0, 140.0), (9.99, 10.0)])
def test_limits_are_rounded_up_to_two_digits(value: float, rounded: float) -> None:
    assert rounded_up(value) == pytest.approx(rounded)


def test_calibration_without_an_honest_variant_is_refused(contracts: Path) -> None:
    spoil(contracts, "contract.yaml", "faithful:\n  - faithful/float32.py", "faithful: []")
    with pytest.raises(DataError, match="no honest variant to measure"):
        calibrate(load_contract(contracts, "center"), ORDER, SALT, lambda _: None)


def test_a_sketch_shows_a_regime_alone(contracts: Path) -> None:
    drawn = sketch(load_contract(contracts, "center"), ORDER, SALT)
    assert drawn.workload == "packed"
    shown = {(s.regime, s.input): s for s in drawn.sketches}
    assert set(shown) == {(r, i) for r in ("plain", "shifted") for i in ("x", "offset")}
    assert sum(shown["plain", "x"].bins) == pytest.approx(512 * 4 * 64, rel=0.02)
    assert shown["plain", "x"].deviation == pytest.approx(1.0, rel=0.02)
    assert 4.0 <= shown["shifted", "x"].mean <= 8.0
    # Without needles from the other regime: nothing is near zero, 5 deviations from the mean.
    assert shown["shifted", "x"].minimum > 1.0
