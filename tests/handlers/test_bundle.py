"""Bundles: what agrees when nothing was changed, and that a changed bit anywhere is noticed."""

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from bot.errors import UsageError
from bot.evaluation import Evaluation, Job
from bot.handlers.bundle import read_bundle, replay, reproduce, write_bundle
from bot.launch import Watch, launch, recheck
from tests.report import builders
from tests.verify.conftest import CENTER, CONTRACTS, HONEST

pytestmark = pytest.mark.sandbox
CHEAT = (CENTER / "controls" / "no_mean.py").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle") / "refused"
    write(folder, CHEAT)
    return folder


def write(folder: Path, source: str) -> Evaluation:
    job = Job(
        contracts_dir=str(CONTRACTS),
        contract="center",
        candidate_name="x",
        source=source,
        mode="quick",
        keep=str(folder),
    )
    evaluation = launch(job)
    write_bundle(folder, evaluation, source, CENTER)
    return evaluation


def copy(folder: Path, target: Path) -> Path:
    import shutil

    return Path(shutil.copytree(folder, target / "copy"))


def test_an_untouched_bundle_agrees_in_everything(refused: Path) -> None:
    findings = replay(read_bundle(refused), recheck)
    assert [f.what for f in findings if not f.agrees] == []
    told = {f.what for f in findings}
    assert {
        "x drawn again",
        "oracle.y computed again",
        "the stored bytes judged again",
        "verdict decided again",
    } <= told


def test_an_accepted_candidate_has_no_counterexample(tmp_path: Path) -> None:
    write(tmp_path / "b", HONEST)
    findings = replay(read_bundle(tmp_path / "b"), recheck)
    assert all(f.agrees for f in findings)
    assert findings[-1].detail == "none to look at"


def test_the_picture_of_a_refusal_is_in_the_bundle_and_in_its_manifest(tmp_path: Path) -> None:
    write_bundle(tmp_path / "with", builders.evaluation("quick", refusal=builders.taught()), HONEST, CENTER)
    write_bundle(tmp_path / "without", builders.evaluation("quick", refusal=builders.refusal()), HONEST, CENTER)
    assert (tmp_path / "with" / "influence.svg").read_text(encoding="utf-8").startswith("<svg ")
    assert "influence.svg" in read_bundle(tmp_path / "with").manifest.files
    assert "influence.svg" not in read_bundle(tmp_path / "without").manifest.files


@pytest.mark.parametrize(("architecture", "device"), [("x86_64", "cpu"), ("sm_100", "cuda")])
def test_it_is_reproduced_on_the_kind_of_device_that_it_was_examined_on(
    tmp_path: Path, architecture: str, device: str
) -> None:
    made = builders.evaluation("quick")
    made = made.model_copy(update={"environment": made.environment.model_copy(update={"architecture": architecture})})
    write_bundle(tmp_path / "b", made, HONEST, CENTER)
    jobs: list[Job] = []

    def launched(job: Job, watch: Watch = lambda _: None) -> Evaluation:
        jobs.append(job)
        return made

    found, _ = reproduce(read_bundle(tmp_path / "b"), launched, lambda _: None)
    assert [job.device for job in jobs] == [device]
    assert all(one.agrees for one in found)


def test_changed_tensors_are_noticed(refused: Path, tmp_path: Path) -> None:
    folder = copy(refused, tmp_path)
    tensors = load_file(folder / "counterexample.safetensors")
    tensors["candidate.y"][0, 0, 0] += 1
    tensors["input.x"][1, 1, 1] += 1
    save_file(tensors, folder / "counterexample.safetensors")
    differing = {f.what for f in replay(read_bundle(folder), recheck) if not f.agrees}
    assert {"files are the manifest's", "x drawn again"} <= differing


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda e: e["refusal"]["counterexample"].update(error_units=1.0), "the stored bytes judged again"),
        (lambda e: e.update(salt="00" * 32), "salt is the one committed to"),
        (lambda e: e.update(refusal=None), "verdict decided again"),
    ],
)
def test_a_changed_evaluation_is_noticed(refused: Path, tmp_path: Path, change, what: str) -> None:
    folder = copy(refused, tmp_path)
    place = folder / "evaluation.json"
    document = json.loads(place.read_text(encoding="utf-8"))
    change(document)
    place.write_text(json.dumps(document), encoding="utf-8")
    differing = {f.what for f in replay(read_bundle(folder), recheck) if not f.agrees}
    assert what in differing


def test_a_changed_candidate_or_contract_is_noticed(refused: Path, tmp_path: Path) -> None:
    folder = copy(refused, tmp_path)
    (folder / "candidate.py").write_text(HONEST, encoding="utf-8")
    contract = folder / "contracts" / "center" / "contract.yaml"
    contract.write_text(contract.read_text(encoding="utf-8").replace("median: 2.0", "median: 2.5"), encoding="utf-8")
    differing = {f.what for f in replay(read_bundle(folder), recheck) if not f.agrees}
    assert {"candidate's digest", "contract's digest"} <= differing


def test_what_is_no_bundle_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a bundle"):
        read_bundle(tmp_path)
