"""Every merged kernel for a GPU, without one: compiled for both architectures, and interpreted before its contract's
judge. They are found by name, so that a new one is tried too."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.inspecting import ROOT
from tests.kernels.conftest import Compiled

FILES = sorted((ROOT / "kernels").glob("*/*.py"))
KERNELS = [file for file in FILES if file.name.startswith(("triton_", "cute_"))]
INTERPRETED = [file for file in KERNELS if file.name.startswith("triton_")]


def each(files: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("file", [pytest.param(file, id=f"{file.parent.name}-{file.stem}") for file in files])


def test_no_kernel_is_left_out() -> None:
    assert {file.parent.name for file in INTERPRETED} == {"kda_prefill", "rmsnorm"}
    assert [file.name for file in FILES if file not in KERNELS and not file.name.startswith("torch_")] == []


@pytest.mark.sandbox
@each(KERNELS)
def test_it_compiles_twice_alike_for_both_architectures_and_spills_nothing(compiled: Compiled, file: Path) -> None:
    found = compiled(file)
    assert (found.refusals, found.notes) == ([], [])
    assert found.differences == [], "two builds differ"
    kernels = [[b.kernel for b in found.builds if b.architecture == name] for name in ("sm_90a", "sm_100a")]
    assert kernels[0] == kernels[1] != []
    assert [(b.kernel, b.spill_bytes, b.stack_bytes) for b in found.builds if b.spill_bytes or b.stack_bytes] == []


@each(INTERPRETED)
def test_its_contracts_judge_accepts_it_interpreted(file: Path) -> None:
    """On the smallest questions that an exam puts to a GPU."""
    pytest.importorskip("triton")
    margins = judged(file)
    assert len(margins) == 16
    assert [(name, margin) for name, margin in margins if not margin <= 1.0] == []


def test_the_judge_refuses_a_wrong_one(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    right = (ROOT / "kernels" / "rmsnorm" / "triton_row.py").read_text(encoding="utf-8")
    wrong = right.replace("EPS = 1e-6", "EPS = 2e-6")
    assert wrong != right
    (tmp_path / "rmsnorm").mkdir()
    (tmp_path / "rmsnorm" / "triton_row.py").write_text(wrong, encoding="utf-8")
    refused = {name for name, margin in judged(tmp_path / "rmsnorm" / "triton_row.py") if margin > 1.0}
    assert {"rows_near_epsilon", "rows_tiny"} <= refused <= {"rows_near_epsilon", "rows_tiny", "scales_mixed"}


def judged(file: Path) -> list[tuple[str, float]]:
    """By how much of its limit a kernel errs in each of the questions."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.judged", str(file)],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [(name, float(margin)) for name, margin in json.loads(done.stdout)]
