"""What a refusal tells besides its first reason, through real exams: failed probes, influence, the smallest input; that
it ends in time whatever the candidate does, and that a replay finds the same.
"""

import time
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from bot.contract.load import load_contract
from bot.evaluation import Evaluation, Job
from bot.handlers.bundle import read_bundle, replay, write_bundle
from bot.launch import launch, recheck
from bot.verify.counterexample import FILE
from tests.verify.conftest import CENTER, CONTRACTS, HONEST, Examine

pytestmark = pytest.mark.sandbox
CHEAT = (CENTER / "controls" / "no_mean.py").read_text(encoding="utf-8")
CONTRACT = load_contract(CONTRACTS, "center").contract


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a candidate that takes the mean for zero."""
    folder = tmp_path_factory.mktemp("diagnosis") / "bundle"
    job = Job(
        contracts_dir=str(CONTRACTS),
        contract="center",
        candidate_name="x",
        source=CHEAT,
        mode="quick",
        keep=str(folder),
    )
    write_bundle(folder, launch(job), CHEAT, CENTER)
    return folder


@pytest.fixture(scope="module")
def told(bundle: Path) -> Evaluation:
    return read_bundle(bundle).evaluation


def refusal_of(evaluation: Evaluation):
    assert evaluation.refusal is not None
    return evaluation.refusal


def test_a_wrong_candidate_is_told_the_probes_it_fails_worst_first(told: Evaluation) -> None:
    found = refusal_of(told).diagnosis
    assert "large" in [probe.name for probe in found]
    declared = {probe.name: probe.breaks for probe in CONTRACT.probes}
    assert all(declared[probe.name] == probe.breaks for probe in found)
    margins = [probe.margin for probe in found]
    assert all(margin is not None and margin > 1 for margin in margins)
    assert margins == sorted(margins, reverse=True)


def test_a_wrong_candidate_has_a_map_of_what_it_reads(told: Evaluation) -> None:
    refusal = refusal_of(told)
    assert [row.input for row in refusal.influence] == ["offset", "x"]
    assert refusal.influence_where in {f"packed/{regime}" for regime in CONTRACT.regimes}
    offset, x = refusal.influence
    heard = [share for row in offset.shares for share in row if share is not None]
    # An offset it adds as it must; of x it answers with the mean as well, in the rows that changed.
    assert heard
    assert all(abs(share - 1) < 0.1 for share in heard)
    assert not any(map(any, x.leaks))


def test_the_smallest_input_is_one_row_and_fails_in_the_same_output(told: Evaluation) -> None:
    smallest = refusal_of(told).smallest
    assert smallest is not None
    assert smallest.counterexample.output == "y"
    assert smallest.counterexample.axes == {"H": 1, "lengths": [1]}
    assert smallest.tried > 3
    assert set(smallest.inputs) == {"x", "offset", "cu_seqlens"}


def test_a_replay_agrees_in_everything_and_judges_the_smallest_case_too(bundle: Path) -> None:
    findings = replay(read_bundle(bundle), recheck)
    assert [finding for finding in findings if not finding.agrees] == []
    whats = [finding.what for finding in findings]
    assert {"the stored bytes judged again", "the smallest case's bytes judged again"} <= set(whats)
    assert "smallest.oracle.y computed again" in whats


@pytest.mark.parametrize(
    ("tensor", "what"),
    [
        ("smallest.candidate.y", "the smallest case's bytes judged again"),
        ("smallest.oracle.y", "smallest.oracle.y computed again"),
        ("candidate.y", "the stored bytes judged again"),
    ],
)
def test_a_changed_tensor_of_the_smallest_case_is_noticed(bundle: Path, tmp_path: Path, tensor: str, what: str) -> None:
    import shutil

    folder = Path(shutil.copytree(bundle, tmp_path / "copy"))
    tensors = load_file(folder / FILE)
    # By far: the counterexample must be another one whichever element is the worst.
    tensors[tensor] += 1000
    save_file(tensors, folder / FILE)
    assert what in {finding.what for finding in replay(read_bundle(folder), recheck) if not finding.agrees}


def after(calls: int, action: str) -> str:
    """Wrong from the first call on; after so many calls something else."""
    cheat = CHEAT.replace("def run(", "def cheat(")
    return (
        f"{cheat}\nimport os\ncalls = []\n\n\ndef run(x, offset, scale, cu_seqlens, y):\n    calls.append(1)\n"
        f"    if len(calls) > {calls}:\n        {action}\n    cheat(x, offset, scale, cu_seqlens, y)\n"
    )


ENDINGS = {"crashes": "os._exit(1)", "hangs": "while True: pass", "raises": "raise ValueError('no more')"}


@pytest.mark.parametrize("calls", [4, 9])
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_candidate_that_breaks_in_later_calls_is_refused_soon_with_what_was_found(
    examine: Examine, ending: str, calls: int
) -> None:
    begun = time.monotonic()
    evaluation = examine(CHEAT if calls < 0 else after(calls, ENDINGS[ending]))
    taken = time.monotonic() - begun
    refusal = refusal_of(evaluation)
    # What it did first is what it is refused for, unless that came before its first wrong answer.
    assert refusal.kind in {"incorrect", "timed_out"}
    if refusal.counterexample is not None:
        assert refusal.counterexample.output == "y"
        # A call that does not end may take the three seconds of patience; the rest is the exam itself.
        assert taken < 18
    assert all(probe.name in {p.name for p in CONTRACT.probes} for probe in refusal.diagnosis)


def test_a_hang_in_the_first_probe_of_a_diagnosis_costs_no_more_than_patience(examine: Examine) -> None:
    """Wrong in every cell, so that the refusal comes first; the probe without an offset never returns."""
    hang = after(10**6, "pass").replace("    calls.append(1)\n", "    while offset is None: pass\n")
    begun = time.monotonic()
    refusal = refusal_of(examine(hang))
    assert (refusal.kind, refusal.stage) == ("incorrect", "smoke")
    assert refusal.counterexample is not None
    assert time.monotonic() - begun < 15
    # A late answer need not be a wrong one; after it nothing else is asked.
    assert "no_offset" not in [probe.name for probe in refusal.diagnosis]
    assert (refusal.influence, refusal.smallest) == ([], None)


UNWRITTEN = {
    "nothing": ("pass", [0, 0, 0]),
    "all but one row": (
        "z = torch.empty(y.shape)\n    honest(x, offset, scale, cu_seqlens, z)\n    y[:77], y[78:] = z[:77], z[78:]",
        [77, 0, 0],
    ),
}


@pytest.mark.parametrize("name", UNWRITTEN)
def test_what_is_left_unwritten_is_called_so(examine: Examine, name: str) -> None:
    body, place = UNWRITTEN[name]
    source = HONEST.replace("def run(", "def honest(")
    refusal = refusal_of(examine(f"{source}\n\ndef run(x, offset, scale, cu_seqlens, y):\n    {body}\n"))
    assert (refusal.kind, refusal.stage) == ("incorrect", "smoke")
    assert refusal.reason.startswith("`y` is left unwritten")
    assert refusal.counterexample is not None
    assert (refusal.counterexample.index, refusal.counterexample.candidate) == (place, "nan")
