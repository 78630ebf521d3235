"""Refusals: each has a code of its own, a reason, a remedy and a test, and the documentation lists them all."""

import re
from pathlib import Path

import pytest

from bot.errors import UsageError
from bot.github import refusals
from bot.github.commands import help_text
from bot.github.refusals import REFUSALS, Refusal, RefusedError, refusals_table

ROOT = Path(__file__).parents[2]
README = (ROOT / "bot" / "github" / "README.md").read_text(encoding="utf-8")


def test_codes_are_unique_and_named_as_in_the_module():
    assert len({refusal.code for refusal in REFUSALS}) == len(REFUSALS) > 25
    for name, value in vars(refusals).items():
        if isinstance(value, Refusal):
            assert value.code == f"E_{name}"


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.code)
def test_each_has_a_reason_a_remedy_and_a_test(refusal: Refusal):
    assert refusal.reason.strip()
    assert refusal.remedy.strip()
    files = [*(ROOT / "tests" / "github").glob("test_*.py"), *(ROOT / "tests" / "handlers").glob("test_*.py")]
    tests = "".join(path.read_text(encoding="utf-8") for path in files if path != Path(__file__))
    assert refusal.code in tests, f"no test names {refusal.code}"


def test_no_other_module_defines_one():
    for path in (ROOT / "bot").rglob("*.py"):
        if path.name != "refusals.py":
            assert not re.findall(r"\bE_[A-Z_]{3,}", path.read_text(encoding="utf-8")), path


def test_a_refusal_says_code_reason_and_remedy():
    error = Refusal("E_X", "no {what}", "bring {what}").error(what="{braces}")
    assert isinstance(error, RefusedError | UsageError)
    assert str(error) == "`E_X`: no {braces}. bring {braces}."
    assert error.line == "E_X: no {braces}"


def test_the_documentation_has_the_tables_as_the_code_gives_them():
    for name, table in (("refusals", refusals_table()), ("commands", help_text())):
        found = re.search(rf"<!-- {name} -->\n(.*?)\n<!-- /{name} -->", README, re.DOTALL)
        assert found is not None
        assert found[1] == table
