"""How calls are read."""

import json

import pytest

from bot.agent.tools import Check, Read, parse_call, specs
from bot.errors import DataError
from tests.agent.conftest import KERNEL, call


def test_the_model_is_offered_the_six_tools_with_closed_schemas() -> None:
    offered = {spec.name: spec.parameters for spec in specs()}
    assert list(offered) == ["read", "write", "check", "time", "journal", "submit"]
    assert all(schema["additionalProperties"] is False for schema in offered.values())
    assert offered["write"]["required"] == ["path", "source"]
    assert all(spec.description.strip() for spec in specs())
    json.dumps(offered)


def test_calls_become_tools_with_defaults() -> None:
    assert parse_call(call("read", path="contract.md")) == Read(path="contract.md", start=0)
    assert parse_call(call("check", path=KERNEL)) == Check(path=KERNEL)


def test_all_problems_of_the_arguments_are_told_with_their_names() -> None:
    with pytest.raises(DataError) as caught:
        parse_call(call("write", path=7, mode="fast"))
    assert {p.path for p in caught.value.problems} == {"path", "source", "mode"}


def test_a_number_as_text_is_not_guessed_at() -> None:
    with pytest.raises(DataError):
        parse_call(call("read", path=".", start="0"))
