"""Honest kernels that a strict judge would refuse by mistake, each in a whole exam: all are accepted."""

import pytest

from tests.museum import Exhibit, Record, examine, exhibits, holds

FILES = exhibits("honest", "hazard")


def shown(exhibit: Exhibit):
    """A file as a test's parameter."""
    marks = [pytest.mark.gpu] if exhibit.device == "cuda" else []
    return pytest.param(exhibit, id=exhibit.file.stem, marks=marks)


@pytest.mark.museum
@pytest.mark.sandbox
@pytest.mark.parametrize("exhibit", [shown(exhibit) for exhibit in FILES])
def test_no_honest_kernel_is_refused(exhibit: Exhibit, record_property: Record) -> None:
    evaluation, verdict = examine(exhibit, record_property)
    assert verdict.accepted, (verdict.kind, verdict.reasons)
    assert holds(exhibit, evaluation, verdict), (verdict.kind, verdict.reasons)


def test_each_file_is_named_after_its_hazard() -> None:
    """And after the way it takes, where there are several; a GPU's twin of one has a name of its own."""
    for exhibit in FILES:
        name = exhibit.name.replace("-", "_")
        assert exhibit.file.stem == name or exhibit.file.stem.startswith(f"{name}_")
        assert exhibit.file.stem.endswith("_gpu") == (exhibit.device == "cuda")
