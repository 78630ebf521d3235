import math
from pathlib import Path

import pytest
import torch

from bot.contract.load import load_contract
from bot.contract.schema import Control, Sizes
from bot.verify.oracle import load_oracle
from tests.contracts.judging import CONTRACTS, Judge, load_kernel

FOLDER = CONTRACTS / "rmsnorm"
CONTROLS = load_contract(CONTRACTS, "rmsnorm").contract.controls
HONEST = [*sorted(FOLDER.glob("faithful/*.py")), *sorted(FOLDER.glob("baselines/torch_[ef]*.py"))]
SMALL: Sizes = {"B": 33, "H": 300}


def test_the_oracle_is_the_formula_element_by_element():
    rows = torch.tensor([[3.0, -4.0, 0.0], [0.0, 0.0, 0.0], [1e-3, 1e-3, 1e-3]], dtype=torch.float64)
    weight = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    found = load_oracle(FOLDER)(hidden_states=rows, weight=weight, noise=lambda x: x)["output"]
    for i, row in enumerate(rows.tolist()):
        root = math.sqrt(sum(x * x for x in row) / 3 + 1e-6)
        assert found[i].tolist() == pytest.approx([x / root * w for x, w in zip(row, weight.tolist(), strict=True)])


def test_the_epsilon_halves_the_square_of_a_row_of_its_own_size():
    rows = torch.full((1, 8), 1e-3, dtype=torch.float64)
    found = load_oracle(FOLDER)(hidden_states=rows, weight=torch.ones(8, dtype=torch.float64), noise=lambda x: x)
    assert found["output"].tolist()[0] == pytest.approx([math.sqrt(0.5)] * 8)


@pytest.mark.parametrize("path", HONEST, ids=lambda path: path.stem)
@pytest.mark.parametrize("regime", ["gaussian", "offset", "heavy"])
def test_honest_kernels_stay_inside_the_limits_in_every_regime(rmsnorm: Judge, path: Path, regime: str):
    assert rmsnorm.cell(regime, SMALL).margin(load_kernel(path)) <= 1


@pytest.mark.parametrize("path", HONEST, ids=lambda path: path.stem)
def test_honest_kernels_pass_every_probe(rmsnorm: Judge, path: Path):
    run = load_kernel(path)
    margins = {probe.name: rmsnorm.probe(probe.name).margin(run) for probe in rmsnorm.loaded.contract.probes}
    assert {name: margin for name, margin in margins.items() if not margin <= 1} == {}


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: Path(control.file).stem)
def test_a_control_is_refused_wherever_the_contract_says_and_by_far_in_one_place(rmsnorm: Judge, control: Control):
    margins = rmsnorm.failures(control, load_kernel(FOLDER / control.file), {"B": 96, "H": 1024})
    assert {name: margin for name, margin in margins.items() if margin <= 1} == {}
    assert not max(margins.values()) <= 3


@pytest.mark.parametrize("control", ["eps_outside_root", "eps_missing", "squares_fp16", "tail_columns_dropped"])
def test_subtle_controls_look_right_on_ordinary_rows(rmsnorm: Judge, control: str):
    assert rmsnorm.cell("gaussian", {"B": 33, "H": 304}).margin(load_kernel(FOLDER / f"controls/{control}.py")) <= 1
