"""A verifier that stays: the same answers as one that ends, sooner; a real process on the small contract."""

import contextlib
import os
import shutil
import signal
from pathlib import Path

import psutil
import pytest

from bot.errors import InfrastructureError, UsageError
from bot.evaluation import Evaluation, Job, Mode, Preparation, Progress
from bot.handlers.bundle import read_bundle, replay, write_bundle
from bot.handlers.watch import watch_file
from bot.launch import Resident, Watch, recheck
from bot.verdict import decide
from tests.verify.conftest import CONTRACTS, HONEST

pytestmark = pytest.mark.sandbox
WRONG = HONEST.replace("def run(", "def right(") + "\n\ndef run(*given):\n    right(*given)\n    given[-1][0] += 1\n"


def job_of(source: str, mode: Mode = "quick", contracts: Path = CONTRACTS, **fields) -> Job:
    return Job(
        contracts_dir=str(contracts),
        contract=fields.pop("contract", "center"),
        candidate_name="torch_x.py",
        source=source,
        mode=mode,
        **fields,
    )


@pytest.fixture(scope="module")
def resident():
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    with Resident(Preparation(contracts_dir=str(CONTRACTS), contract="center")) as launcher:
        launcher.start()
        yield launcher


def test_every_job_gets_a_salt_of_its_own_and_says_that_it_was_prepared(resident: Resident) -> None:
    first, second = resident(job_of(HONEST)), resident(job_of(HONEST))
    assert decide([first]).accepted
    assert decide([second]).accepted
    assert first.salt != second.salt
    assert first.prepared
    assert second.prepared


def test_what_is_wrong_is_refused_and_the_next_job_meets_nothing_of_it(resident: Resident) -> None:
    refused = resident(job_of(WRONG))
    assert refused.refusal is not None
    assert refused.refusal.kind == "incorrect"
    dead = resident(job_of("import os\n\n\ndef run(*given):\n    os._exit(0)\n"))
    assert dead.refusal is not None
    assert resident(job_of(HONEST)).refusal is None


def test_an_exam_for_the_record_is_never_prepared(resident: Resident) -> None:
    full = resident(job_of(HONEST, "full"))
    assert full.refusal is None
    assert not full.prepared
    assert full.cells


def test_a_replay_draws_a_prepared_exam_again(resident: Resident, tmp_path: Path) -> None:
    evaluation = resident(job_of(WRONG, keep=str(tmp_path / "bundle")))
    write_bundle(tmp_path / "bundle", evaluation, WRONG, CONTRACTS / "center")
    findings = replay(read_bundle(tmp_path / "bundle"), recheck)
    assert len(findings) > 8
    assert [finding.what for finding in findings if not finding.agrees] == []


def test_a_job_it_is_not_ready_for_gets_a_verifier_of_its_own(resident: Resident) -> None:
    with pytest.raises(UsageError, match="unknown contract 'nothing'"):
        resident(job_of(HONEST, contract="nothing"))
    assert resident(job_of(HONEST)).prepared


def test_a_contract_that_changes_is_prepared_anew(tmp_path: Path) -> None:
    contracts = tmp_path / "contracts"
    shutil.copytree(CONTRACTS, contracts)
    with Resident(Preparation(contracts_dir=str(contracts), contract="center")) as launcher:
        before = launcher(job_of(HONEST, contracts=contracts))
        file = contracts / "center" / "contract.yaml"
        sound = file.read_text(encoding="utf-8")
        file.write_text(sound.replace("std: 1.0", "std: 1.25", 1), encoding="utf-8")
        after = launcher(job_of(HONEST, contracts=contracts))
        assert before.contract_digest != after.contract_digest
        file.write_text(sound.replace("shape:", "shade:"), encoding="utf-8")
        with pytest.raises(UsageError, match="shade"):
            launcher(job_of(HONEST, contracts=contracts))
        file.write_text(sound, encoding="utf-8")
        assert launcher(job_of(HONEST, contracts=contracts)).contract_digest == before.contract_digest


def test_one_that_died_is_ours_to_mend_and_starts_again() -> None:
    with Resident(Preparation(contracts_dir=str(CONTRACTS), contract="center")) as launcher:
        assert launcher(job_of(HONEST)).refusal is None
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):  # Workers come and go meanwhile.
                if "bot.verify.resident" in process.cmdline():
                    os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(InfrastructureError):
            launcher(job_of(HONEST))
        assert launcher(job_of(HONEST)).refusal is None


def test_a_file_is_examined_when_it_is_written_and_a_bad_one_is_waited_for(tmp_path: Path) -> None:
    file, told = tmp_path / "torch_x.py", list[str]()
    file.write_text(HONEST, encoding="utf-8")

    def examined(job: Job, watch: Watch = lambda _: None) -> Evaluation:
        watch(Progress(stage="build", done=0, total=1, text=job.candidate_name))
        if "fresh" in file.read_text(encoding="utf-8"):
            raise KeyboardInterrupt
        raise UsageError("not today")

    def wrong(text: str) -> None:
        told.append(text)
        file.write_text(HONEST + "# fresh\n", encoding="utf-8")

    with pytest.raises(KeyboardInterrupt):
        watch_file(file, lambda: job_of(HONEST), examined, lambda *_: None, wrong)
    assert told == ["not today"]
