"""What contracts say of ids, packed bytes, sizes made of others and least reads, and what is refused of it."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bot.contract.appraisal import Order
from bot.contract.distribution import Constant
from bot.contract.load import dump_yaml, load_contract, parse_yaml
from bot.contract.schema import Hidden, HiddenRange, Sizes
from bot.errors import DataError
from bot.floor import least_work
from bot.verify.appraise import draw_all
from bot.verify.cases import cell_recipe, hidden_axes, hidden_recipes, make_case
from bot.verify.philox import Stream
from bot.verify.shrink import Cut, trial, whole
from bot.verify.trials import Findings
from tests.contracts.judging import CONTRACTS

Document = dict[str, Any]
LOADED = {name: load_contract(CONTRACTS, name) for name in ("dsa_topk_indexer", "moe_fp8_block_scale")}


def refusals(tmp_path: Path, name: str, change: Callable[[Document], object]) -> str:
    """What is said of a contract with one change."""
    shutil.copytree(CONTRACTS / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    file = tmp_path / name / "contract.yaml"
    document = parse_yaml(file.read_text(encoding="utf-8"), "x")
    change(document)
    file.write_text(dump_yaml(document), encoding="utf-8")
    with pytest.raises(DataError) as refused:
        load_contract(tmp_path, name)
    return "\n".join(f"{problem.path}: {problem.reason}" for problem in refused.value.problems)


def put(value: object, *path: str | int) -> Callable[[Document], None]:
    def change(document: Document) -> None:
        held: Any = document
        for part in path[:-1]:
            held = held[part]
        held[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (put("Q", "inputs", "block_table", "below"), "inputs.block_table.below: no axis 'Q'"),
        (put("P", "inputs", "weights", "below"), "inputs.weights.below: bounds integers, not float32"),
        (put({"kind": "ids"}, "draws", "weights"), "draws.weights: ids needs an input with a bound"),
        (put({"kind": "ids", "below": 3}, "draws", "block_table"), "draws.block_table.below: stands with the input"),
        (put("int8", "outputs", "topk_indices", "dtype"), "outputs.topk_indices.dtype: int8 has no value that"),
        (put("MAXP+1", "axes", "LONGEST", "of"), "axes.LONGEST"),
        (put({"of": "LONGEST"}, "axes", "D2"), "axes.D2.of: 'LONGEST' is itself made of another axis"),
        (put(["Q"], "work", "reads", "weights"), "work.reads.weights[0]: no axis 'Q'"),
        (put([1], "work", "reads", "topk_indices"), "work.reads.topk_indices: not a tensor input"),
        (
            put([{"shape": [64], "dtype": "float32", "of": {"kind": "constant", "value": 1.0}}],
                "regimes", "trace", "draws", "k_index_cache_fp8", "parts"),
            "regimes.trace.draws.k_index_cache_fp8: its parts take 256 bytes, a step of the input has 8448",
        ),
        (put("bfloat16", "inputs", "k_index_cache_fp8", "dtype"), "packed records are bytes (int8 or uint8)"),
        (put("float8_e5m2", "inputs", "q_index_fp8", "dtype"), "inputs.q_index_fp8.dtype"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_its_path(tmp_path: Path, change: Callable[[Document], None], wanted: str):
    assert wanted in refusals(tmp_path, "dsa_topk_indexer", change)


def test_a_size_that_is_no_multiple_is_refused_wherever_it_stands(tmp_path: Path):
    def change(document: Document) -> None:
        document["workloads"][0]["axes"]["HID"] = 200
        document["hidden"][0]["axes"]["I"]["choice"].append(129)

    said = refusals(tmp_path, "moe_fp8_block_scale", change)
    assert "workloads[0].axes.HID: 200 is no multiple of 128" in said
    assert "hidden[0].axes.I.choice[3]: 129 is no multiple of 128" in said


def test_inputs_that_keep_their_value_are_drawn_once_and_shared():
    contract = LOADED["moe_fp8_block_scale"].contract
    recipe = cell_recipe(contract, contract.anchor("cpu"), "contest")
    root = Stream.from_salt(b"s" * 32)
    one, two, other = (
        make_case(contract, recipe, root.child(i), static=root.child(of)).inputs
        for i, of in enumerate(("static", "static", "other"))
    )
    assert one["gemm1_weights"] is two["gemm1_weights"]
    assert not np.array_equal(one["gemm1_weights"], other["gemm1_weights"])  # type: ignore[arg-type]
    assert not np.array_equal(one["hidden_states"], two["hidden_states"])  # type: ignore[arg-type]


def test_integers_beyond_their_bound_are_told_where_they_are_drawn():
    loaded = LOADED["dsa_topk_indexer"]
    contract = loaded.contract.model_copy(
        update={"draws": {**loaded.contract.draws, "seq_lens": Constant(kind="constant", value=40_000.0)}}
    )
    found, order = Findings(), Order(contracts_dir=str(CONTRACTS), contract=contract.name, task="check")
    workload = contract.anchor("cpu").model_copy(update={"axes": {"B": 1, "P": 9, "MAXP": 3}})
    small = contract.model_copy(update={"workloads": [workload], "hidden": [], "probes": []})
    draw_all(replace(loaded, contract=small), order, lambda **_: {}, Stream.from_salt(b"s" * 32), found)
    said = {problem.path: problem.reason for problem in found.problems()}
    assert said["draws.seq_lens"].startswith("draws integers outside -1..192")


def test_a_key_that_stands_twice_is_refused_but_one_that_replaces_a_merged_one_is_not():
    text = "a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}\n"
    assert parse_yaml(text, "x")["b"] == {"x": 3, "y": 2}
    with pytest.raises(DataError, match="duplicate key"):
        parse_yaml("b: {x: 1, x: 3}", "x")


def test_sizes_made_of_others_are_rounded_up():
    contract = LOADED["moe_fp8_block_scale"].contract
    axes: Sizes = {"T": 3, "HID": 384, "I": 128}
    known = contract.sizes(axes)
    assert (known["GUP"], known["HB"], known["IB"], known["GB"]) == (256, 3, 1, 2)
    assert contract.sizes({**axes, "HID": 385})["HB"] == 4


def test_of_inputs_that_need_not_be_read_whole_the_floor_counts_a_part():
    contract = LOADED["dsa_topk_indexer"].contract
    small, large = (least_work(contract, {"B": 2, "P": pages, "MAXP": 40}) for pages in (100, 11923))
    assert small == large
    # Never more than there is.
    assert least_work(contract, {"B": 2, "P": 1, "MAXP": 40}).bytes < small.bytes


def test_shrinking_leaves_out_rows_but_nothing_that_ids_refer_to_or_sizes_are_made_of():
    loaded = LOADED["dsa_topk_indexer"]
    workload = loaded.contract.anchor("cpu").model_copy(update={"axes": {"B": 3, "P": 50, "MAXP": 40}})
    stream = Stream.from_salt(b"s" * 32)
    case = make_case(loaded.contract, cell_recipe(loaded.contract, workload, "contest"), stream, static=stream)
    cut = whole(loaded.contract, case)
    assert set(cut.kept) == {"B"}
    small = trial(loaded.contract, case, Cut({"B": (2,)}))
    assert small.axes == {"B": 1, "P": 50, "MAXP": 40}
    for name in ("block_table", "seq_lens", "q_index_fp8"):
        assert np.array_equal(small.inputs[name], case.inputs[name][2:])  # type: ignore[arg-type,index]
    assert LOADED["moe_fp8_block_scale"].contract.fixed_axes() == {"I", "HID"}


def test_eight_draws_of_a_range_meet_every_tail_and_each_power_of_two_is_as_likely():
    contract = load_contract(CONTRACTS, "softmax").contract
    hidden = Hidden(name="h", device=["cpu"], draws=8, axes={"N": HiddenRange(between=[1, 5000])})
    widths = []
    for salt in range(20):
        stream = Stream.from_salt(bytes([salt]) * 32)
        found = [hidden_axes(contract, hidden, stream.child(n), turns=(stream, n))["N"] for n in range(8)]
        assert sorted(n % 8 for n in found) == list(range(8))  # type: ignore[operator] # sizes, not lengths
        widths += found
    assert all(1 <= n <= 5000 for n in widths)  # type: ignore[operator]
    assert sum(n < 64 for n in widths) > 40 < sum(n > 512 for n in widths)  # type: ignore[operator]


def test_sizes_from_a_range_are_multiples_where_an_axis_wants_them():
    contract = LOADED["moe_fp8_block_scale"].contract
    hidden = Hidden(name="h", device=["cpu"], draws=8, axes={"HID": HiddenRange(between=[128, 384])})
    streams = (Stream.from_salt(bytes([salt]) * 32) for salt in range(40))
    assert {hidden_axes(contract, hidden, stream)["HID"] for stream in streams} == {128, 256, 384}


@pytest.mark.parametrize(
    ("between", "wanted"),
    [([0, 9], "wants two sizes from 1 on"), ([9, 8], "wants two sizes from 1 on"), ([1, 999], "999 is outside 1..256")],
)
def test_a_range_is_of_legal_sizes(tmp_path, between, wanted):
    change = put([{"name": "h", "device": ["cpu"], "draws": 2, "axes": {"B": {"between": between}}}], "hidden")
    assert wanted in refusals(tmp_path, "dsa_topk_indexer", change)


def test_optional_inputs_are_absent_from_some_hidden_draws():
    contract = load_contract(CONTRACTS, "gdn_prefill").contract
    draws = [r for salt in range(8) for r in hidden_recipes(contract, "cpu", Stream.from_salt(bytes([salt]) * 32))]
    absent = [recipe for recipe in draws if recipe.absent]
    assert len(draws) / 6 < len(absent) < len(draws) / 2
    assert all(recipe.absent == {"state"} for recipe in absent)
    assert any(0 in recipe.axes["lengths"] for recipe in absent)  # type: ignore[operator] # lengths, not a size
