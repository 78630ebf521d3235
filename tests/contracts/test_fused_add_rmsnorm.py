import math
from pathlib import Path

import pytest
import torch

from bot.contract.load import load_contract
from bot.contract.schema import Control, Sizes
from bot.verify.oracle import load_oracle
from tests.contracts.judging import CONTRACTS, Judge, load_kernel

FOLDER = CONTRACTS / "fused_add_rmsnorm"
CONTROLS = load_contract(CONTRACTS, "fused_add_rmsnorm").contract.controls
HONEST = [
    *sorted(FOLDER.glob("faithful/*.py")),
    FOLDER / "baselines/torch_eager.py",
    FOLDER / "baselines/torch_fused.py",
]
SMALL: Sizes = {"B": 65, "H": 300}


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge(load_contract(CONTRACTS, "fused_add_rmsnorm"), {})


def test_the_oracle_is_the_formula_element_by_element():
    rows = torch.tensor([[3.0, -4.0, 0.0], [1.0, 2.0, 3.0], [5e-4, 1e-3, 0.0]], dtype=torch.float64)
    residual = torch.tensor([[0.5, 4.0, -2.0], [-1.0, -2.0, -3.0], [5e-4, 0.0, 1e-3]], dtype=torch.float64)
    weight = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    found = load_oracle(FOLDER)(hidden_states=rows, residual=residual, weight=weight, noise=lambda x: x)
    for i, (row, held) in enumerate(zip(rows.tolist(), residual.tolist(), strict=True)):
        total = [a + b for a, b in zip(row, held, strict=True)]
        root = math.sqrt(sum(x * x for x in total) / 3 + 1e-6)
        assert found["updated_residual"][i].tolist() == pytest.approx(total)
        assert found["output"][i].tolist() == pytest.approx(
            [x / root * w for x, w in zip(total, weight.tolist(), strict=True)]
        )


@pytest.mark.parametrize("path", HONEST, ids=lambda path: path.stem)
def test_honest_kernels_stay_inside_the_limits(judge: Judge, path: Path):
    run = load_kernel(path)
    contract = judge.loaded.contract
    margins = {regime: judge.cell(regime, SMALL).margin(run) for regime in contract.regimes}
    margins |= {probe.name: judge.probe(probe.name).margin(run) for probe in contract.probes}
    assert {name: margin for name, margin in margins.items() if not margin <= 1} == {}


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: Path(control.file).stem)
def test_a_control_is_refused_wherever_the_contract_says_and_by_far_in_one_place(judge: Judge, control: Control):
    margins = judge.failures(control, load_kernel(FOLDER / control.file), {"B": 96, "H": 1024})
    assert {name: margin for name, margin in margins.items() if margin <= 1} == {}
    assert not max(margins.values()) <= 3


@pytest.mark.parametrize(
    "control",
    ["eps_outside_root", "eps_missing", "sum_fp16", "tail_columns_dropped", "residual_skipped_where_small"],
)
def test_subtle_controls_look_right_on_ordinary_rows(judge: Judge, control: str):
    # Too few rows for needles.
    assert judge.cell("gaussian", {"B": 40, "H": 304}).margin(load_kernel(FOLDER / f"controls/{control}.py")) <= 1
