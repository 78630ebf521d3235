"""Honest kernels that a strict judge would refuse by mistake, each in a whole exam: all are accepted."""

import pytest

from tests.museum import Exhibit, Record, examine, exhibits, holds

FILES = exhibits("honest", "hazard")


@pytest.mark.museum
@pytest.mark.sandbox
@pytest.mark.parametrize("exhibit", FILES, ids=lambda exhibit: exhibit.file.stem)
def test_no_honest_kernel_is_refused(exhibit: Exhibit, record_property: Record) -> None:
    evaluation, verdict = examine(exhibit, record_property)
    assert verdict.accepted, (verdict.kind, verdict.reasons)
    assert holds(exhibit, evaluation, verdict), (verdict.kind, verdict.reasons)


def test_each_file_is_named_after_its_hazard() -> None:
    assert {exhibit.name.replace("-", "_") for exhibit in FILES} == {exhibit.file.stem for exhibit in FILES}
