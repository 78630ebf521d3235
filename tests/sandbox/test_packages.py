"""What of the installed packages a candidate can reach: what kernels are made of, and what its contract names."""

import importlib.metadata

import pytest

from bot.verify.calls import Answered, Failure, Worker
from bot.verify.packages import entries, places, site_packages, versions
from bot.verify.philox import Stream
from tests.sandbox.conftest import case, everything

pytestmark = pytest.mark.sandbox

SEEN = """
import importlib.util, os, sys

def found(name):
    return importlib.util.find_spec(name) is not None

def anywhere(name):
    places = {PLACES}
    return [p for p in (*sys.path, *places) if os.path.exists(os.path.join(p, name))]

assert found("torch") and found("numpy") and found("pydantic")
seen = found("hypothesis"), anywhere("hypothesis")
if seen != {EXPECTED}:
    raise ValueError(f"sees {seen}")
writable = [p for p in {PLACES} if os.path.isdir(p) and os.access(p, os.W_OK)]
if writable:
    raise ValueError(f"can write {writable}")

def run(x, offset, scale, cu_seqlens, y):
    y.zero_()
"""


def loaded(contract, may_use: list[str], expected: tuple[bool, list[str]]) -> Failure | Answered | None:
    allowed = contract.model_copy(update={"may_use": may_use})
    source = SEEN.replace("{PLACES}", repr([str(p) for p in places()])).replace("{EXPECTED}", repr(expected))
    with Worker(allowed, "bubblewrap", everything()) as worker:
        return worker.load(source) or worker.run(case(allowed), Stream.from_salt(b"packages"))


def test_a_package_that_is_installed_and_not_named_is_nowhere(contract) -> None:
    assert importlib.metadata.version("hypothesis")
    assert isinstance(loaded(contract, [], (False, [])), Answered)


def test_a_package_that_the_contract_names_comes_with_what_it_requires(contract) -> None:
    site = str(site_packages())
    assert isinstance(loaded(contract, ["Hypothesis"], (True, [site, site])), Answered)
    added = {place.name for place in entries(frozenset({"hypothesis"}))} - {
        place.name for place in entries(frozenset())
    }
    assert {"hypothesis", "sortedcontainers"} <= added


def test_a_name_of_nothing_that_is_installed_adds_nothing() -> None:
    assert entries(frozenset({"no-such-distribution"})) == entries(frozenset())


def test_versions_are_those_of_what_is_installed():
    found = versions(["packaging", "nothing-of-this-name"])
    assert found["packaging"] == importlib.metadata.version("packaging")
    assert found["numpy"] == importlib.metadata.version("numpy")
    assert "nothing-of-this-name" not in found
    assert "torch" not in found
