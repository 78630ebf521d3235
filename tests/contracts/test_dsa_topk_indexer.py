import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from bot.contract.load import load_contract
from bot.contract.schema import Control, Sizes
from bot.verify import cut
from bot.verify.ground import e4m3, float32, spread
from bot.verify.oracle import load_oracle
from tests.contracts.judging import CONTRACTS, Judge, load_kernel

FOLDER = CONTRACTS / "dsa_topk_indexer"
CONTROLS = load_contract(CONTRACTS, "dsa_topk_indexer").contract.controls
HONEST = [*sorted(FOLDER.glob("faithful/*.py")), *sorted(FOLDER.glob("baselines/torch_*.py"))]
AXES: Sizes = {"B": 2, "P": 50, "MAXP": 44}


@pytest.fixture(scope="module")
def dsa() -> Judge:
    return Judge(load_contract(CONTRACTS, "dsa_topk_indexer"), {})


def inputs(lengths, table, *, pages=5, heads=3, width=8):
    """Pages of 4 keys; as the oracle gets them, and keys and scales apart."""
    generator = torch.Generator().manual_seed(0)
    keys = torch.randn(pages, 4, width, generator=generator).to(torch.float8_e4m3fn)
    scales = 0.01 + torch.rand(pages, 4, generator=generator)
    stored = b"".join(
        keys[page].view(torch.uint8).numpy().tobytes() + struct.pack("<4f", *scales[page].tolist())
        for page in range(pages)
    )
    given = {
        "q_index_fp8": torch.randn(len(lengths), heads, width, generator=generator).double(),
        "k_index_cache_fp8": torch.from_numpy(np.frombuffer(stored, dtype=np.int8).astype(np.int64)).view(
            pages, 4, 1, width + 4
        ),
        "weights": torch.randn(len(lengths), heads, generator=generator).double(),
        "seq_lens": torch.tensor(lengths),
        "block_table": torch.tensor(table),
    }
    return given, keys.double(), scales.double()


def exact(given):
    return load_oracle(FOLDER)(**given, noise=lambda x: x)["topk_indices"]


def by_definition(given, keys, scales):
    """Token by token and head by head."""
    scores = torch.full((len(given["seq_lens"]), keys.shape[0] * 4), -torch.inf, dtype=torch.float64)
    for row, length in enumerate(given["seq_lens"].tolist()):
        for token in range(length):
            page, place = int(given["block_table"][row, token // 4]), token % 4
            key = keys[page, place] * scales[page, place]
            products = [max(float(query @ key), 0.0) for query in given["q_index_fp8"][row]]
            scores[row, page * 4 + place] = sum(
                float(w) * p for w, p in zip(given["weights"][row], products, strict=True)
            )
    return scores


@pytest.mark.parametrize("lengths", [[20, 7], [1, 0], [4, 5], [0, 0]])
def test_the_oracle_is_the_definition_token_by_token(lengths):
    given, keys, scales = inputs(lengths, [[3, 1, 4, 0, 2], [2, 4, 0, 1, 3]])
    found, wanted = exact(given), by_definition(given, keys, scales)
    assert torch.equal(found == -torch.inf, wanted == -torch.inf)
    assert [(row > -torch.inf).sum().item() for row in found] == lengths
    assert torch.allclose(found.nan_to_num(neginf=0), wanted.nan_to_num(neginf=0), rtol=1e-12, atol=1e-14)


def test_scores_are_the_same_however_many_pages_are_taken_together():
    given, *_ = inputs([18], [[3, 1, 4, 0, 2]])
    oracle = load_oracle(FOLDER)
    whole = oracle(**given, noise=lambda x: x)["topk_indices"]
    oracle.__globals__["PAGES"] = 2
    assert torch.equal(oracle(**given, noise=lambda x: x)["topk_indices"], whole)


def test_entries_of_a_table_and_bytes_of_a_page_beyond_the_end_do_not_matter():
    given, *_ = inputs([6], [[3, 1, -1, -1]])
    clean = exact(given)
    # The keys of the last two places of page 1, and their scales.
    given["k_index_cache_fp8"].view(5, 48)[1, [*range(16, 32), *range(40, 48)]] = -1
    given["block_table"][0, 2:] = 4
    assert torch.equal(exact(given), clean)


def test_bytes_are_read_as_torch_and_struct_read_them():
    stored = torch.arange(256)
    wanted = stored.to(torch.uint8).view(torch.float8_e4m3fn).double()
    assert torch.equal(e4m3(stored).nan_to_num(-1.0), wanted.nan_to_num(-1.0))
    assert torch.equal(e4m3(stored - 256).nan_to_num(-1.0), wanted.nan_to_num(-1.0))
    values = [1.5, -3.25e-5, 7e20]
    packed = torch.tensor(list(struct.pack("<3f", *values)))
    assert float32(packed).tolist() == [struct.unpack("<f", struct.pack("<f", value))[0] for value in values]
    assert float32(packed - 256).tolist() == float32(packed).tolist()


def test_scales_of_blocks_are_spread_over_the_last_axes_the_last_block_cut_short():
    scales = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert spread(scales, (2, 5), 3).tolist() == [[1, 1, 1, 2, 2], [3, 3, 3, 4, 4]]
    assert spread(scales, (5, 4), 3).tolist() == [[1, 1, 1, 2]] * 3 + [[3, 3, 3, 4]] * 2
    assert spread(scales, (4,), 2).tolist() == [[1, 1, 2, 2], [3, 3, 4, 4]]


def test_a_draw_has_a_table_of_different_pages_and_finite_keys(dsa: Judge):
    drawn = dsa.cell("trace", {"B": 3, "P": 60, "MAXP": 48})
    given = drawn.case.inputs
    assert all(len(set(row.tolist())) == 48 for row in given["block_table"])  # type: ignore[union-attr]
    assert given["block_table"].max() < 60  # type: ignore[union-attr]
    assert 0 < given["seq_lens"].min() <= given["seq_lens"].max() <= 48 * 64  # type: ignore[union-attr]
    assert not drawn.expected.exact["topk_indices"].isnan().any()
    assert cut.best(drawn.expected.exact["topk_indices"], 2048).min() >= -1


@pytest.mark.parametrize("path", HONEST, ids=lambda path: path.stem)
def test_honest_kernels_stay_inside_the_limits_everywhere(dsa: Judge, path: Path):
    run = load_kernel(path)
    margins = {regime: dsa.cell(regime, AXES).margin(run) for regime in dsa.loaded.contract.regimes}
    margins |= {probe.name: dsa.probe(probe.name).margin(run) for probe in dsa.loaded.contract.probes}
    assert {name: margin for name, margin in margins.items() if not margin <= 1} == {}


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: Path(control.file).stem)
def test_a_control_is_refused_wherever_the_contract_says_and_by_far_in_one_place(dsa: Judge, control: Control):
    margins = dsa.failures(control, load_kernel(FOLDER / control.file), AXES)
    assert {name: margin for name, margin in margins.items() if margin <= 1} == {}
    assert not max(margins.values()) <= 3


@pytest.mark.parametrize("control", ["scores_bf16", "length_rounded_up", "zero_scores_left_out"])
def test_subtle_controls_look_right_in_some_place(dsa: Judge, control: str):
    run = load_kernel(FOLDER / f"controls/{control}.py")
    assert min(dsa.probe(name).margin(run) for name in ("all_empty", "pages_shared", "one_head")) <= 1
