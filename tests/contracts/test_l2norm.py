import math
from pathlib import Path

import pytest
import torch

from bot.contract.load import load_contract
from bot.contract.schema import Control, Sizes
from bot.verify.oracle import load_oracle
from tests.contracts.judging import CONTRACTS, Judge, load_kernel

FOLDER = CONTRACTS / "l2norm"
CONTROLS = load_contract(CONTRACTS, "l2norm").contract.controls
HONEST = [*sorted(FOLDER.glob("faithful/*.py")), FOLDER / "baselines/torch_eager.py"]
SMALL: Sizes = {"B": 300, "D": 120}


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge(load_contract(CONTRACTS, "l2norm"), {})


def test_the_oracle_is_the_formula_element_by_element():
    rows = torch.tensor([[3.0, -4.0, 0.0], [0.0, 0.0, 0.0], [1e-3, 1e-4, 0.0]], dtype=torch.float64)
    found = load_oracle(FOLDER)(x=rows, noise=lambda x: x)["output"]
    for i, row in enumerate(rows.tolist()):
        assert found[i].tolist() == pytest.approx([x / math.sqrt(math.fsum(y * y for y in row) + 1e-6) for x in row])


def test_the_epsilon_halves_the_square_of_a_row_of_its_own_size_whatever_its_width():
    rows = torch.full((1, 100), 1e-4, dtype=torch.float64)
    found = load_oracle(FOLDER)(x=rows, noise=lambda x: x)["output"]
    assert float(found.square().sum()) == pytest.approx(0.5)


@pytest.mark.parametrize("path", HONEST, ids=lambda path: path.stem)
def test_honest_kernels_stay_inside_the_limits(judge: Judge, path: Path):
    run = load_kernel(path)
    contract = judge.loaded.contract
    margins = {regime: judge.cell(regime, SMALL).margin(run) for regime in contract.regimes}
    margins |= {probe.name: judge.probe(probe.name).margin(run) for probe in contract.probes}
    assert {name: margin for name, margin in margins.items() if not margin <= 1} == {}


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: Path(control.file).stem)
def test_a_control_is_refused_wherever_the_contract_says_and_by_far_in_one_place(judge: Judge, control: Control):
    margins = judge.failures(control, load_kernel(FOLDER / control.file), {"B": 600, "D": 128})
    assert {name: margin for name, margin in margins.items() if margin <= 1} == {}
    assert not max(margins.values()) <= 3


@pytest.mark.parametrize(
    "control",
    ["mean_for_sum", "norm_clamped", "eps_outside_root", "eps_missing", "squares_fp16", "tail_columns_dropped"],
)
def test_subtle_controls_look_right_on_ordinary_rows(judge: Judge, control: str):
    # Too few rows for needles.
    assert judge.cell("gaussian", {"B": 40, "D": 120}).margin(load_kernel(FOLDER / f"controls/{control}.py")) <= 1
