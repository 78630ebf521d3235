"""Reading a definition of flashinfer-bench: what is understood of it, and that nothing else gets through."""

import json
from typing import Any

import pytest

from bot.contract.interchange.flashinfer_bench import (
    DEFINITION_LIMIT,
    LINES_LIMIT,
    WORKLOADS_LIMIT,
    Const,
    Definition,
    read_definition,
    read_workloads,
)
from bot.contract.load import dump_yaml, parse_yaml
from bot.contract.mistakes import Undecided
from bot.errors import DataError
from tests.contracts.definitions import RAGGED, Json, changed, line, text


def problems(document: Json | str) -> list[tuple[str, str]]:
    """Paths and reasons of a refusal."""
    with pytest.raises(DataError) as caught:
        read_definition(document if isinstance(document, str) else text(document), "definition.json")
    return [(each.path, each.reason) for each in caught.value.problems]


@pytest.fixture
def definition() -> Definition:
    return read_definition(text(RAGGED), "definition.json")


def test_a_definition_is_read_whatever_its_order_and_spacing(definition: Definition):
    assert (definition.name, definition.axes["width"]) == ("ragged_scale_d64", Const(type="const", value=64))
    assert definition.inputs["bias"].optional
    assert definition.inputs["scale"].shape is None
    assert list(definition.inputs) == ["x", "bias", "offsets", "scale"], "the order is the kernel's interface"
    again = json.dumps(dict(reversed(RAGGED.items()))).encode()
    assert read_definition(again, "x").digest == definition.digest
    other = changed(RAGGED, ("axes.width.description", "not ours, and part of the digest"))
    assert read_definition(text(other), "x").digest != definition.digest


WRONG: dict[str, tuple[tuple[str, Any], str, str]] = {
    "a dtype of nobody": (("inputs.x.dtype", "bf16"), "inputs.x.dtype", "'bf16' is no type that a contract can hold"),
    "a dtype of theirs alone": (("inputs.x.dtype", "float8_e5m2"), "inputs.x.dtype", "is no type that a contract"),
    "no dtype": (("outputs.y.dtype", ...), "outputs.y.dtype", "Field required"),
    "a shape of nothing": (("inputs.x.shape", ["rows", "width"]), "inputs.x.shape[0]", "no axis of the definition"),
    "a number as a dimension": (("inputs.x.shape", ["tokens", 64]), "inputs.x.shape[1]", "valid string"),
    "a path as a dimension": (("outputs.y.shape", ["../../x"]), "outputs.y.shape[0]", "no axis of the definition"),
    "no dimension": (("inputs.x.shape", []), "inputs.x.shape", "at least 1 item"),
    "too many dimensions": (("inputs.x.shape", ["tokens"] * 9), "inputs.x.shape", "at most 8 items"),
    "a shape as a text": (("inputs.x.shape", "tokens"), "inputs.x.shape", "valid list"),
    "an output by value": (("outputs.y.shape", None), "outputs.y.shape", "valid list"),
    "no outputs": (("outputs", {}), "outputs", "at least 1 item"),
    "an input and an output": (("outputs.x", {"shape": ["width"], "dtype": "float32"}), "outputs.x", "the same name"),
    "a kind of axis of nobody": (("axes.seqs", {"type": "expr", "expression": "1"}), "axes.seqs", "expected tags"),
    "an axis of nothing": (("axes.width.value", 0), "axes.width.value", "greater than or equal to 1"),
    "a huge axis": (("axes.width.value", 2**31), "axes.width.value", "less than 2147483648"),
    "an axis of true": (("axes.width.value", True), "axes.width.value", "valid integer"),
    "a huge number": (("axes.width.value", 10**30), "axes.width.value", "is no number that everybody reads alike"),
    "a name as a path": (("name", "../../etc/passwd"), "name", "should match pattern"),
    "a name of two lines": (("name", "x\n"), "name", "should match pattern"),
    "an operator without a type": (("op_type", ...), "op_type", "Field required"),
    "a keyword as an input": (("inputs.lambda", {"shape": None, "dtype": "float32"}), "inputs.lambda", "parameter"),
    "the oracle's own parameter": (("inputs.noise", {"shape": None, "dtype": "float32"}), "inputs.noise", "parameter"),
    "no reference": (("reference", "x = 1"), "reference", "no function `run`"),
    "a method as a reference": (("reference", "class A:\n  def run(x): ..."), "reference", "no function `run`"),
    "a long reference": (("reference", "def run(): ...\n" + "#" * 100_000), "reference", "at most 100000 characters"),
    "a long constraint": (("constraints", ["x" * 401]), "constraints[0]", "at most 400 characters"),
    "too many inputs": (
        ("inputs", {f"x{n}": {"shape": None, "dtype": "float32"} for n in range(65)}),
        "inputs",
        "at most 64 items",
    ),
    "half of a letter": (("description", "\ud800"), "description", "holds half of a letter"),
}


@pytest.mark.parametrize(("change", "path", "reason"), WRONG.values(), ids=WRONG)
def test_what_no_contract_can_follow_is_refused_with_its_path(change: tuple[str, Any], path: str, reason: str):
    found = problems(changed(RAGGED, change))
    assert any(where == path and reason in why for where, why in found), found


def test_all_problems_are_told_at_once():
    found = problems(
        changed(
            RAGGED,
            ("inputs.x.dtype", "bool"),
            ("inputs.bias.shape", ["nowhere", "width"]),
            ("axes.width.value", -1),
            ("reference", ...),
        )
    )
    assert {path for path, _ in found} == {"inputs.x.dtype", "inputs.bias.shape[0]", "axes.width.value", "reference"}


def nested(depth: int) -> str:
    return '{"name": ' + "[" * depth + "]" * depth + "}"


@pytest.mark.parametrize(
    ("document", "path", "reason"),
    [
        ("", "", "not JSON: Expecting value in line 1, column 1"),
        ("[]", "", "valid dictionary"),
        ("def run(): ...", "", "not JSON"),
        ('{"name": "a", "name": "b"}', "name", "stands twice"),
        ('{"inputs": {"q": {"shape": null}, "q": {}}}', "inputs.q", "stands twice"),
        ('{"name": NaN}', "name", "is no number that everybody reads alike"),
        ('{"tags": [-Infinity]}', "tags[0]", "is no number that everybody reads alike"),
        ('{"unknown": 1e999}', "unknown", "is no number that everybody reads alike"),
        ('{"unknown": ' + "9" * 100_000 + "}", "unknown", "is no number that everybody reads alike"),
        (nested(11), "name", "valid string"),
        (nested(50), "name[0][0][0]", "nested too deeply"),
        (nested(100_000), "", "nested too deeply"),
        ('{"\\ud800": 1}', "", "has a key that is no text"),
        (" " * DEFINITION_LIMIT + "{}", "", f"at most {DEFINITION_LIMIT} are read"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else None,
)
def test_what_is_no_honest_document_is_refused(document: str, path: str, reason: str):
    found = problems(document)
    assert any(where == path and reason in why for where, why in found), found


def test_bytes_that_are_no_text_are_refused():
    with pytest.raises(DataError, match="not UTF-8 text"):
        read_definition(b"\xff\xfe{}", "definition.json")


def test_thousands_of_mistakes_stay_readable():
    found = problems('{"inputs": {' + ",".join(f'"x{n}": {{"dtype": 1}}' for n in range(10_000)) + "}}")
    twice = problems('{"axes": {' + ",".join('"T": 1' for _ in range(20_000)) + "}}")
    assert len(found) == 51
    assert found[-1][1].startswith("and ")
    assert ("axes.T", "stands twice") in twice


def test_workloads_are_read_with_their_sizes_and_no_paths(definition: Definition):
    given = {
        "offsets": {"type": "safetensors", "path": "../../secret", "tensor_key": "k"},
        "scale": {"type": "scalar", "value": 2},
    }
    lines = line(tokens=7, seqs=1, len_offsets=2) + "\n\n" + line(inputs=given, tokens=9, seqs=2, len_offsets=3)
    first, second = read_workloads(lines.encode(), definition, "w.jsonl")
    assert first.axes == {"tokens": 7, "seqs": 1, "len_offsets": 2}
    assert second.inputs["scale"].value == 2
    assert "secret" not in repr(second)


@pytest.mark.parametrize(
    ("row", "path", "reason"),
    [
        (line(tokens=7, seqs=1), "workload.axes", "axis 'len_offsets' has no size"),
        (line(tokens=7, seqs=1, len_offsets=2, width=64), "workload.axes.width", "no variable axis"),
        (line(tokens=7, seqs=1, len_offsets=9), "workload.axes.len_offsets", "is 9, and not seqs + 1 = 2"),
        (line(tokens=-7, seqs=1, len_offsets=2), "workload.axes.tokens", "greater than or equal to 0"),
        (line("other", tokens=7, seqs=1, len_offsets=2), "definition", "is not ragged_scale_d64"),
        (line(inputs={"z": {"type": "random"}}, tokens=7, seqs=1, len_offsets=2), "workload.inputs.z", "no input"),
        (line(inputs={"x": {"type": "pickle"}}, tokens=7, seqs=1, len_offsets=2), "workload.inputs.x.type", "random"),
        ('{"workload": {"axes": {}}, "definition": "a", "definition": "b"}', "definition", "stands twice"),
        ("{", "", "not JSON"),
        ('{"definition": "ragged_scale_d64"}', "workload", "Field required"),
    ],
)
def test_a_workload_of_something_else_is_refused_with_its_line(
    definition: Definition, row: str, path: str, reason: str
):
    with pytest.raises(DataError) as caught:
        read_workloads(f"{line(tokens=7, seqs=1, len_offsets=2)}\n{row}\n".encode(), definition, "w.jsonl")
    found = [(each.path, each.reason) for each in caught.value.problems]
    assert any(where == f"line 2: {path}".removesuffix(": ") and reason in why for where, why in found), found


@pytest.mark.parametrize("data", [b"", b"\n\n", b"{}\n" * (LINES_LIMIT + 1), b" " * (WORKLOADS_LIMIT + 1)])
def test_no_workloads_and_too_many_are_refused(definition: Definition, data: bytes):
    with pytest.raises(DataError, match="are read"):
        read_workloads(data, definition, "w.jsonl")


def test_what_is_to_be_decided_survives_yaml():
    document = {
        "regimes": Undecided('two: "a" and b'),
        "axes": {"on": {"max": Undecided("no: {x}")}, "T": {"const": 4}},
    }
    written = dump_yaml(document, flow=True)
    assert parse_yaml(written, "x") == document
    assert "T: {const: 4}" in written
