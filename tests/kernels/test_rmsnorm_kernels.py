"""The merged rmsnorm kernels without a GPU: right under Triton's interpreter, and machine code as it should be."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.inspecting import ROOT, Look, looking

KERNELS = ROOT / "kernels" / "rmsnorm"
INTERPRETED = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from triton_row import run
torch.manual_seed(0)
for rows, width in [(0, 64), (1, 1), (3, 3), (17, 129), (2, 1000), (300, 128), (3, 4097), (270, 7)]:
    x = torch.randn(rows, width).mul(torch.randint(-4, 4, (rows, 1)).exp2()).bfloat16()
    weight, out = torch.randn(width).bfloat16(), torch.full((rows, width), torch.nan).bfloat16()
    run(x, weight, out)
    exact = x.double() * torch.rsqrt(x.double().pow(2).mean(-1, keepdim=True) + 1e-6) * weight.double()
    # The interpreter cuts where the hardware rounds: a whole ulp of bfloat16 instead of half of one.
    torch.testing.assert_close(out.double(), exact, rtol=2**-7, atol=1e-30)
"""


@pytest.fixture(scope="module")
def look() -> Iterator[Look]:
    with looking() as found:
        yield found


def test_the_triton_kernel_is_right_under_the_interpreter():
    pytest.importorskip("triton")
    done = subprocess.run(
        [sys.executable, "-c", INTERPRETED, str(KERNELS)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.sandbox
@pytest.mark.parametrize("kernel", ["triton_row.py", "cute_row.py"])
def test_it_compiles_for_both_architectures_without_spills(look, kernel):
    found = look((KERNELS / kernel).read_text(encoding="utf-8"), "sm_90a", "sm_100a")
    assert not found.refusals
    assert not found.differences
    assert [b.architecture for b in found.builds] == ["sm_90a", "sm_100a"]
    for build in found.builds:
        assert build.spill_bytes == build.stack_bytes == 0
        assert build.instructions == {"ldg.128": 8, "stg.128": 4}  # 16 bytes each, of row and weight


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("kernel", "rows", "width", "bits"),
    [
        ("triton_row.py", 520128, 128, 128),
        ("triton_row.py", 8192, 7168, 128),
        ("triton_row.py", 63, 4097, 16),
        ("cute_row.py", 520128, 128, 128),
        ("cute_row.py", 8192, 7168, 128),
        ("cute_row.py", 1, 16383, 16),
    ],
)
def test_loads_are_as_wide_as_the_rows_allow(look, kernel, rows, width, bits):
    found = look((KERNELS / kernel).read_text(encoding="utf-8"), axes={"B": rows, "H": width})
    assert not found.refusals
    (build,) = found.builds
    assert build.spill_bytes == 0
    assert f"ldg.{bits}" in build.instructions
    assert {kind for kind in build.instructions if kind.startswith("stg")} == {f"stg.{bits}"}
