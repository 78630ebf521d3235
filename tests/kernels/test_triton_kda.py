"""KDA's Triton kernel without a GPU: interpreted against the oracle, and its machine code as it should be. What every
kernel must do is tried beside."""

import json
import os
import subprocess
import sys

import pytest

from tests.inspecting import ROOT

pytest.importorskip("triton", reason="kernels in Triton need the package")

KERNEL = ROOT / "kernels" / "kda_prefill" / "triton_two_phase.py"


@pytest.mark.parametrize("case", ["ragged", "stateless", "empty", "hard", "isolated"])
def test_errs_as_an_honest_bf16_kernel_does(case):
    errors = interpreted(case)
    changed = errors.pop("changed", [0, 0])
    for ours, faithful in errors.values():
        assert ours <= 1.5 * faithful + 1e-5
    assert changed == [0, 0], "another sequence's NaN was seen"


def test_is_right_as_it_stands_under_the_interpreter():
    """In fp32, with the interpreter's own bf16: only `out` is rounded, by cutting off, and log-decays in fp16."""
    errors = interpreted("exact")
    assert errors["out"][0] < 4e-3
    assert errors["final_state"][0] < 1e-4


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("architecture", "phase", "product"),
    [
        ("sm_90a", "prepare", "mma"),
        ("sm_90a", "chain", "wgmma"),
        ("sm_100a", "prepare", "mma"),
        ("sm_100a", "chain", "tcgen05"),
    ],
)
def test_programs_share_a_multiprocessor_and_use_its_matrix_units(compiled, architecture, phase, product):
    found = compiled(KERNEL)
    (build,) = [b for b in found.builds if (b.architecture, b.kernel) == (architecture, phase)]
    assert build.registers <= 208
    assert build.shared_bytes <= 113 * 1024, "two programs no longer fit an SM"
    assert {"mma", "wgmma", "tcgen05"} & set(build.instructions) == {product}


def interpreted(case):
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.kernels.interpreted", case]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)
