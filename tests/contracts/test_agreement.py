"""A contract covers a definition where each call of it is a call of the contract; else what differs has its path."""

from pathlib import Path
from typing import Any

import pytest

from bot.contract.interchange.agreement import differences, following, public_names
from bot.contract.interchange.flashinfer_bench import read_definition
from bot.contract.load import contract_names, load_contract
from tests.contracts.definitions import GDN, MOE, PUBLIC, Json, changed, text
from tests.contracts.judging import CONTRACTS


def lacking(document: Json, contract: str) -> list[tuple[str, str]]:
    definition = read_definition(text(document), "definition.json")
    found = differences(definition, load_contract(CONTRACTS, contract).contract)
    return [(each.path, each.reason) for each in found]


@pytest.mark.parametrize(("document", "name"), PUBLIC, ids=[name for _, name in PUBLIC])
def test_a_contract_covers_the_public_definition_that_it_follows(document: Json, name: str):
    assert following(CONTRACTS, document["name"]) == [name]
    assert lacking(document, name) == []


def test_each_public_name_is_one_contracts():
    summaries = {name: load_contract(CONTRACTS, name).contract.summary for name in contract_names(CONTRACTS)}
    public = {name: found for name, text in summaries.items() if (found := public_names(text))}
    assert set(public) == {name for _, name in PUBLIC}
    for name, found in public.items():
        assert following(CONTRACTS, found[0]) == [name]
    assert following(CONTRACTS, "qk4_v8_d128_k_last") == [], "half a name is none"


def test_names_of_axes_and_the_order_of_tensors_do_not_count():
    document = changed(GDN, ("inputs", dict(reversed(GDN["inputs"].items()))))
    renamed = text(document).replace('"total"', '"rows"').replace('"size"', '"D"')
    definition = read_definition(renamed, "definition.json")
    assert differences(definition, load_contract(CONTRACTS, "gdn_prefill").contract) == []


GDN_DIFFERS: dict[str, tuple[list[tuple[str, Any]], str, str]] = {
    "another dtype": ([("inputs.q.dtype", "float16")], "inputs.q.dtype", "is float16, in the contract bfloat16"),
    "another size": ([("axes.heads_v.value", 16)], "inputs.v.shape[1]", "heads_v is 16, in the contract HV = 8"),
    "a size that varies": ([("axes.size", {"type": "var"})], "outputs.output.shape[2]", "size varies, in the contract"),
    "another rank": ([("inputs.a.shape", ["total"])], "inputs.a.shape", "has 1 dimensions, in the contract 2"),
    "another axis": (
        [("inputs.v.shape", ["sequences", "heads_v", "size"])],
        "inputs.v.shape[0]",
        "sequences varies, elsewhere total varies: both are T in the contract",
    ),
    "an input more": ([("inputs.mask", {"shape": ["total"], "dtype": "int8"})], "inputs.mask", "has none of this name"),
    "an input less": ([("inputs.scale", ...)], "inputs", "the contract has scale, which the definition has not"),
    "an output more": (
        [("outputs.lse", {"shape": ["total"], "dtype": "float32"})],
        "outputs.lse",
        "has none of this name",
    ),
    "an output less": ([("outputs.new_state", ...)], "outputs", "the contract has new_state"),
    "a number as a tensor": ([("inputs.scale.shape", ["heads_v"])], "inputs.scale.shape", "is a number by value"),
    "a tensor as a number": ([("inputs.A_log.shape", None)], "inputs.A_log.shape", "is a tensor in the contract"),
    "a whole number": ([("inputs.scale.dtype", "int32")], "inputs.scale.dtype", "is int32, in the contract float"),
    "an absent input": ([("inputs.q.optional", True)], "inputs.q.optional", "is never absent in the contract"),
    "an absent number": ([("inputs.scale.optional", True)], "inputs.scale.optional", "is never absent"),
}


@pytest.mark.parametrize(("changes", "path", "reason"), GDN_DIFFERS.values(), ids=GDN_DIFFERS)
def test_what_a_contract_does_not_cover_is_named(changes: list[tuple[str, Any]], path: str, reason: str):
    found = lacking(changed(GDN, *changes), "gdn_prefill")
    assert any(where == path and reason in why for where, why in found), found


def test_an_input_that_is_always_there_is_covered_where_it_may_be_absent():
    assert lacking(changed(GDN, ("inputs.state.optional", ...)), "gdn_prefill") == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([("axes.hidden.value", 4096), ("axes.hidden_blocks.value", 32)], []),
        ([("axes.hidden.value", 4096)], ["axes.hidden_blocks"]),
        ([("axes.hidden.value", 4000), ("axes.hidden_blocks.value", 32)], ["inputs.hidden_states.shape[1]"]),
        ([("axes.hidden.value", 2**20), ("axes.hidden_blocks.value", 8192)], ["inputs.hidden_states.shape[1]"]),
        ([("axes.hidden", {"type": "var"})], ["axes.hidden_blocks"]),
        ([("axes.both.value", 2048)], ["axes.both"]),
    ],
    ids=["smaller", "other blocks", "no multiple", "beyond", "varies alone", "not twice"],
)
def test_sizes_lie_in_the_domain_and_those_made_of_others_follow(changes: list[tuple[str, Any]], said: list[str]):
    found = lacking(changed(MOE, *changes), "moe_fp8_block_scale")
    assert sorted({path for path, _ in found} & set(said)) == said
    assert bool(found) == bool(said)


def test_a_broken_contract_still_says_what_it_follows(tmp_path: Path):
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "contract.yaml").write_bytes(b"summary: public\n  name x_y (flashinfer-bench)\n\xff: [")
    assert following(tmp_path, "x_y") == ["half"]
