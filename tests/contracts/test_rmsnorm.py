import math
from pathlib import Path

import pytest
import torch

from bot.contract.schema import Sizes
from bot.verify.oracle import load_oracle
from tests.contracts.judging import CONTRACTS, Judge, load_kernel

FOLDER = CONTRACTS / "rmsnorm"
HONEST = [*sorted(FOLDER.glob("faithful/*.py")), *sorted(FOLDER.glob("baselines/*.py"))]
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


@pytest.mark.parametrize(
    ("control", "probe"),
    [
        ("eps_outside_root", "rows_near_epsilon"),
        ("eps_outside_root", "rows_tiny"),
        ("mean_of_prefix", "element_large"),
    ],
)
def test_a_control_misses_by_far_where_the_contract_says(rmsnorm: Judge, control: str, probe: str):
    declared = {c.file: c.fails for c in rmsnorm.loaded.contract.controls}
    assert probe in declared[f"controls/{control}.py"]
    assert not rmsnorm.probe(probe).margin(load_kernel(FOLDER / f"controls/{control}.py")) <= 3


def test_a_constant_norm_misses_in_the_regime_it_was_made_for(rmsnorm: Judge):
    assert not rmsnorm.cell("gaussian", SMALL).margin(load_kernel(FOLDER / "controls/constant_norm.py")) <= 3


def test_an_epsilon_outside_the_root_looks_right_on_ordinary_rows(rmsnorm: Judge):
    assert rmsnorm.cell("gaussian", SMALL).margin(load_kernel(FOLDER / "controls/eps_outside_root.py")) <= 1
