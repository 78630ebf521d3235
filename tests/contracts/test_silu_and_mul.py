import math
from pathlib import Path

import pytest
import torch

from bot.contract.load import load_contract
from bot.contract.schema import Control, Sizes
from bot.verify.oracle import load_oracle
from tests.contracts.judging import CONTRACTS, Judge, load_kernel

FOLDER = CONTRACTS / "silu_and_mul"
CONTROLS = load_contract(CONTRACTS, "silu_and_mul").contract.controls
HONEST = [
    *sorted(FOLDER.glob("faithful/*.py")),
    FOLDER / "baselines/torch_eager.py",
    FOLDER / "baselines/torch_native.py",
]
SMALL: Sizes = {"B": 65, "D": 300}


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge(load_contract(CONTRACTS, "silu_and_mul"), {})


def test_the_oracle_is_the_formula_element_by_element():
    gates, values = [-700.0, -20.0, -1.0, 0.0, 0.5, 40.0], [2.0, -3.0, 5.0, 7.0, -11.0, 13.0]
    x = torch.tensor([[gates, values]], dtype=torch.float64)
    found = load_oracle(FOLDER)(x=x, noise=lambda x: x)["output"]
    # Another form of the same function: half the gate times one plus tanh is exact enough but for large negative gates.
    wanted = [
        v * (0.5 * g * (1 + math.tanh(g / 2)) if g > -15 else g * math.exp(g))
        for g, v in zip(gates, values, strict=True)
    ]
    assert found[0].tolist() == pytest.approx(wanted, rel=1e-8)


@pytest.mark.parametrize("path", HONEST, ids=lambda path: path.stem)
def test_honest_kernels_stay_inside_the_limits(judge: Judge, path: Path):
    run = load_kernel(path)
    contract = judge.loaded.contract
    margins = {regime: judge.cell(regime, SMALL).margin(run) for regime in contract.regimes}
    margins |= {probe.name: judge.probe(probe.name).margin(run) for probe in contract.probes}
    assert {name: margin for name, margin in margins.items() if not margin <= 1} == {}


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: Path(control.file).stem)
def test_a_control_is_refused_wherever_the_contract_says_and_by_far_in_one_place(judge: Judge, control: Control):
    margins = judge.failures(control, load_kernel(FOLDER / control.file), {"B": 96, "D": 1024})
    assert {name: margin for name, margin in margins.items() if margin <= 1} == {}
    assert not max(margins.values()) <= 3


@pytest.mark.parametrize(
    "control", ["exp_of_positive", "sigmoid_by_tanh", "gate_clipped", "values_fp16", "tail_columns_dropped"]
)
def test_subtle_controls_look_right_on_ordinary_rows(judge: Judge, control: str):
    # Too few rows for needles.
    assert judge.cell("gaussian", {"B": 40, "D": 304}).margin(load_kernel(FOLDER / f"controls/{control}.py")) <= 1
