"""The merged rmsnorm kernels without a GPU: machine code as it should be. What every kernel must do is tried beside."""

import pytest

from tests.inspecting import ROOT

KERNELS = ROOT / "kernels" / "rmsnorm"


@pytest.mark.sandbox
@pytest.mark.parametrize("kernel", ["triton_row.py", "cute_row.py"])
def test_row_and_weight_are_moved_by_16_bytes_each(compiled, kernel):
    found = compiled(KERNELS / kernel)
    assert [build.instructions for build in found.builds] == [{"ldg.128": 8, "stg.128": 4}] * 2


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
