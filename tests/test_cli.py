"""The command line as a person meets it: exit codes, one clear message, never a traceback."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.verify.conftest import CENTER

ROOT = Path(__file__).parents[1]
PROJECT = ROOT / "tests" / "data"


def proctor(*arguments: str, cwd: Path = PROJECT, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bot", *arguments]
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": str(ROOT), "COLUMNS": "120", **environment}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=120)


def test_the_version_is_told_without_torch() -> None:
    code = (
        "import sys; sys.argv = ['proctor', '--version']\n"
        "import bot.__main__ as m; m.main(); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("proctor 0.")
    assert done.stdout.endswith("False\n")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (
            ["verify", "contracts/center/faithful/float32.py", "--contract", "nothing"],
            "unknown contract 'nothing'; known:",
        ),
        (["verify", "no_such_file.py", "--contract", "center"], "no_such_file.py: No such file or directory"),
        (["verify", "contracts", "--contract", "center"], "contracts: Is a directory"),
        (["verify"], "Missing argument"),
        (["verify", "contracts/center/faithful/float32.py"], "Missing option '--contract'"),
        (["frobnicate"], "No such command"),
        (["gate"], "not set: GITHUB_EVENT_NAME"),
        (["examine", "--run", "nowhere"], "holds no order"),
        (["agent", "--run", "nowhere", "--model", "replay"], "holds no order"),
        (["verify", "contracts/center/faithful/float32.py", "--contract", "center", "--device", "cuda"], "CUDA"),
    ],
)
def test_a_wrong_command_is_one_message_and_exit_code_2(arguments: list[str], part: str) -> None:
    done = proctor(*arguments)
    assert done.returncode == 2
    assert part in done.stderr + done.stdout
    assert "Traceback" not in done.stderr + done.stdout


def test_outside_a_project_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("", encoding="utf-8")
    done = proctor("verify", "x.py", "--contract", "center", cwd=tmp_path)
    assert done.returncode == 2
    assert "no folder `contracts/`" in done.stderr


@pytest.mark.sandbox
def test_verify_tells_the_verdict_and_writes_the_evaluation(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "evaluation.json"
    file = str(CENTER / "faithful" / "float32.py")
    done = proctor("verify", file, "--contract", "center", "--mode", "quick", "--json", str(out))
    assert done.returncode == 0, done.stderr
    assert "correctness" in done.stdout
    assert json.loads(out.read_text(encoding="utf-8"))["refusal"] is None


@pytest.mark.sandbox
def test_a_refused_kernel_is_exit_code_1_with_its_counterexample() -> None:
    done = proctor("verify", str(CENTER / "controls" / "no_mean.py"), "--contract", "center", "--mode", "quick")
    assert done.returncode == 1
    assert "incorrect" in done.stdout
    assert "oracle" in done.stdout


@pytest.mark.sandbox
def test_without_a_sandbox_nothing_is_accepted() -> None:
    file = str(CENTER / "faithful" / "float32.py")
    done = proctor("verify", file, "--contract", "center", "--mode", "quick", "--sandbox", "none")
    assert done.returncode == 2
    assert "sandbox" in done.stdout


def test_a_missing_sandbox_is_said_and_refused(tmp_path: Path) -> None:
    file = str(CENTER / "faithful" / "float32.py")
    done = proctor("verify", file, "--contract", "center", "--mode", "quick", PATH=str(tmp_path))
    assert done.returncode == 2
    assert "bubblewrap is missing" in done.stderr
    assert "Traceback" not in done.stderr


def test_every_mistake_of_a_contract_is_told_with_its_path(tmp_path: Path) -> None:
    folder = tmp_path / "contracts" / "broken"
    folder.mkdir(parents=True)
    text = (CENTER / "contract.yaml").read_text(encoding="utf-8")
    text = text.replace("name: center", "name: brokn").replace("anchor: true}", "anchor: true, colour: red}")
    text = text.replace("dtype: float32, optional", "dtype: float31, optional").replace(
        "{H: 1, lengths: [64]}", "{H: 99}"
    )
    (folder / "contract.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "x.py").write_text("", encoding="utf-8")
    done = proctor("verify", "x.py", "--contract", "broken", cwd=tmp_path)
    assert done.returncode == 2
    for path in ("workloads[0].colour", "inputs.offset"):
        assert path in done.stderr
