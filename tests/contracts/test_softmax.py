import math
from pathlib import Path

import pytest
import torch

from bot.contract.load import load_contract
from bot.contract.schema import Control, Sizes
from bot.verify.oracle import load_oracle
from tests.contracts.judging import CONTRACTS, Judge, load_kernel

FOLDER = CONTRACTS / "softmax"
CONTROLS = load_contract(CONTRACTS, "softmax").contract.controls
HONEST = [*sorted(FOLDER.glob("faithful/*.py")), *sorted(FOLDER.glob("baselines/torch_[en]*.py"))]
SMALL: Sizes = {"B": 65, "N": 300}


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge(load_contract(CONTRACTS, "softmax"), {})


def test_the_oracle_is_the_formula_element_by_element():
    rows = torch.tensor([[0.5, -1.0, 2.0], [-3000.0, -3001.0, -2999.5], [7.0, 7.0, 7.0]], dtype=torch.float64)
    found = load_oracle(FOLDER)(x=rows, noise=lambda x: x)["output"]
    for i, row in enumerate(rows.tolist()):
        # Without a maximum: an element's share is one over the sum of what the others are to it.
        assert found[i].tolist() == pytest.approx([1 / math.fsum(math.exp(y - x) for y in row) for x in row])


def test_minus_infinity_comes_out_as_zero_and_a_row_of_it_as_no_number():
    low = -math.inf
    rows = torch.tensor([[low, 1.0, low], [low, low, low]], dtype=torch.float64)
    found = load_oracle(FOLDER)(x=rows, noise=lambda x: x)["output"]
    assert found[0].tolist() == [0.0, 1.0, 0.0]
    assert found[1].isnan().all()


def test_masked_rows_are_drawn_with_infinities(judge: Judge):
    expected = judge.probe("rows_masked").expected.exact["output"]
    empty = expected.isnan().all(-1)
    assert 0 < int(empty.sum()) < len(empty)
    assert not expected[~empty].isnan().any()


@pytest.mark.parametrize("path", HONEST, ids=lambda path: path.stem)
def test_honest_kernels_stay_inside_the_limits(judge: Judge, path: Path):
    run = load_kernel(path)
    contract = judge.loaded.contract
    margins = {regime: judge.cell(regime, SMALL).margin(run) for regime in contract.regimes}
    margins |= {probe.name: judge.probe(probe.name).margin(run) for probe in contract.probes}
    assert {name: margin for name, margin in margins.items() if not margin <= 1} == {}


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: Path(control.file).stem)
def test_a_control_is_refused_wherever_the_contract_says_and_by_far_in_one_place(judge: Judge, control: Control):
    margins = judge.failures(control, load_kernel(FOLDER / control.file), {"B": 96, "N": 1024})
    assert {name: margin for name, margin in margins.items() if margin <= 1} == {}
    assert not max(margins.values()) <= 3


@pytest.mark.parametrize(
    "control", ["maximum_not_subtracted", "maximum_of_all_rows", "maximum_starts_at_zero", "tail_columns_dropped"]
)
def test_subtle_controls_look_right_on_ordinary_rows(judge: Judge, control: str):
    # Too few rows for needles.
    assert judge.cell("gaussian", {"B": 40, "N": 304}).margin(load_kernel(FOLDER / f"controls/{control}.py")) <= 1
