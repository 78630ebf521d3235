"""What `proctor contract show` makes of a draw: parts of records, ids, integers, spread over decades."""

import io

import pytest
from rich.console import Console

from bot.contract.appraisal import Order, Sketch, Sketched
from bot.contract.load import LoadedContract, load_contract
from bot.report.contract import print_contract
from bot.verify.sketch import BINS, sketch
from tests.contracts.judging import CONTRACTS

SALT = "5a" * 32


def drawn(name: str, salt: str = SALT) -> tuple[LoadedContract, Sketched]:
    loaded = load_contract(CONTRACTS, name)
    return loaded, sketch(loaded, Order(contracts_dir=str(CONTRACTS), contract=name, task="sketch"), salt)


@pytest.fixture(scope="module")
def indexer() -> tuple[LoadedContract, Sketched]:
    return drawn("dsa_topk_indexer")


def of(sketched: Sketched, regime: str, name: str) -> list[Sketch]:
    return [one for one in sketched.sketches if (one.regime, one.input) == (regime, name)]


def test_records_are_shown_part_by_part(indexer: tuple[LoadedContract, Sketched]) -> None:
    keys, scales = of(indexer[1], "contest", "k_index_cache_fp8")
    assert (keys.part, scales.part) == ("[64, 128] float8_e4m3fn", "[64] float32")
    assert -448 <= keys.minimum < 0 < keys.maximum <= 448
    assert 0.004 <= scales.minimum < scales.maximum <= 0.01
    # All pages of the anchor, but for the outer percent.
    assert sum(keys.bins) == pytest.approx(90 * 64 * 128, rel=0.05)


def test_ids_that_are_none_are_counted_apart() -> None:
    # How many are none is drawn anew; a contract's own draws change with its text.
    seen = [of(drawn("dsa_sparse_attention", f"{i:064x}")[1], "contest", "sparse_indices")[0] for i in range(6)]
    assert all(ids.whole and ids.minimum >= 0 for ids in seen)
    assert any(0 < ids.none < 1 for ids in seen)
    assert all(max(ids.bins) < 2 * sum(ids.bins) / BINS for ids in seen)


def test_what_spreads_over_decades_is_shown_by_its_logarithm() -> None:
    _, experts = drawn("moe_fp8_block_scale")
    (scales,) = of(experts, "trace", "hidden_states_scale")
    assert scales.logarithmic
    assert max(scales.bins) < sum(scales.bins) / 3
    _, kda = drawn("kda_prefill")
    # Uniform from zero, a value near it or not.
    assert not of(kda, "fast", "dt_bias")[0].logarithmic


@pytest.mark.parametrize("width", [80, 120])
def test_plots_are_whole_at_any_width_and_integers_in_full(
    indexer: tuple[LoadedContract, Sketched], width: int
) -> None:
    loaded, sketched = indexer
    page = io.StringIO()
    print_contract(loaded.contract, sketched, Console(file=page, width=width))
    lines = page.getvalue().splitlines()
    assert max(len(line) for line in lines if not line.startswith("run(")) <= width
    assert sum("block_table" in line and sum(c in "▁▂▃▄▅▆▇█" for c in line) == BINS for line in lines) == 3
    lengths = next(line for line in lines if line.startswith("seq_lens") and "█" in line)
    assert "e+" not in lengths
    text = page.getvalue()
    assert "batch_permuted" in text  # a relation
    assert "from -1 up" in text
