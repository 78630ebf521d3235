"""Kernel files of the museum that need a GPU, compiled without one: a typo must not cost minutes of a device."""

import re
from collections.abc import Iterator

import pytest

from tests.inspecting import Look, looking
from tests.museum import Exhibit, exhibits

COMPILED = re.compile(r"^import (?:triton|cutlass)", re.MULTILINE)
FILES = [
    exhibit
    for exhibit in (*exhibits("exploits", "class"), *exhibits("honest", "hazard"))
    if exhibit.device == "cuda" and COMPILED.search(exhibit.file.read_text(encoding="utf-8"))
]


@pytest.fixture(scope="module")
def look() -> Iterator[Look]:
    with looking() as found:
        yield found


@pytest.mark.sandbox
@pytest.mark.parametrize("exhibit", [pytest.param(exhibit, id=exhibit.file.stem) for exhibit in FILES])
def test_a_gpu_file_of_the_museum_compiles(look: Look, exhibit: Exhibit) -> None:
    """Each of its kernels that a call reaches before it asks the driver for something."""
    found = look(exhibit.file.read_text(encoding="utf-8"), axes={"B": 512, "H": 4096})
    assert found.refusals == []
    assert found.builds
    reasons = [note for note in found.notes if "DynamicLibNotFoundError" not in note]
    assert reasons == []
