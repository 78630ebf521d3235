from pathlib import Path

import pytest
import torch

from bot.contract.load import load_contract
from bot.contract.schema import Control, Sizes
from bot.verify.oracle import load_oracle
from tests.contracts.judging import CONTRACTS, Judge, load_kernel

FOLDER = CONTRACTS / "rope"
CONTROLS = load_contract(CONTRACTS, "rope").contract.controls
HONEST = [*sorted(FOLDER.glob("faithful/*.py")), FOLDER / "baselines/torch_eager.py"]
SMALL: Sizes = {"T": 70, "Q": 5, "K": 2}


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge(load_contract(CONTRACTS, "rope"), {})


def test_the_oracle_is_a_complex_product():
    generator = torch.Generator().manual_seed(5)
    q, k, table = (
        torch.randn(*shape, dtype=torch.float64, generator=generator) for shape in ((4, 3, 8), (4, 1, 8), (10, 8))
    )
    positions = torch.tensor([9, 0, 3, 3])
    found = load_oracle(FOLDER)(q=q, k=k, cos_sin=table, positions=positions, noise=lambda x: x)
    for heads, turned in ((q, found["q_out"]), (k, found["k_out"])):
        for token, position in enumerate(positions.tolist()):
            for pair in range(4):
                turn = complex(table[position, pair], table[position, pair + 4])
                for head in range(heads.shape[1]):
                    wanted = complex(heads[token, head, pair], heads[token, head, pair + 4]) * turn
                    assert turned[token, head, pair].item() == pytest.approx(wanted.real)
                    assert turned[token, head, pair + 4].item() == pytest.approx(wanted.imag)


def test_a_true_table_leaves_lengths_alone_and_scores_a_function_of_the_distance():
    half, generator = 4, torch.Generator().manual_seed(6)
    angles = torch.arange(50, dtype=torch.float64)[:, None] * 100.0 ** (-torch.arange(half) / half)
    table = torch.cat([angles.cos(), angles.sin()], dim=-1)
    heads = torch.randn(1, 1, 8, dtype=torch.float64, generator=generator).expand(3, 1, 8)
    found = load_oracle(FOLDER)(
        q=heads, k=heads, cos_sin=table, positions=torch.tensor([2, 12, 49]), noise=lambda x: x
    )["q_out"].squeeze(1)
    later = load_oracle(FOLDER)(
        q=heads, k=heads, cos_sin=table, positions=torch.tensor([0, 10, 47]), noise=lambda x: x
    )["k_out"].squeeze(1)
    assert found.norm(dim=-1).tolist() == pytest.approx(heads.norm(dim=-1).flatten().tolist())
    assert (found @ found.T).flatten().tolist() == pytest.approx((later @ later.T).flatten().tolist())


@pytest.mark.parametrize("path", HONEST, ids=lambda path: path.stem)
def test_honest_kernels_stay_inside_the_limits(judge: Judge, path: Path):
    run = load_kernel(path)
    contract = judge.loaded.contract
    margins = {regime: judge.cell(regime, SMALL).margin(run) for regime in contract.regimes}
    margins |= {probe.name: judge.probe(probe.name).margin(run) for probe in contract.probes}
    assert {name: margin for name, margin in margins.items() if not margin <= 1} == {}


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: Path(control.file).stem)
def test_a_control_is_refused_wherever_the_contract_says_and_by_far_in_one_place(judge: Judge, control: Control):
    margins = judge.failures(control, load_kernel(FOLDER / control.file), {"T": 150, "Q": 12, "K": 10})
    assert {name: margin for name, margin in margins.items() if margin <= 1} == {}
    assert not max(margins.values()) <= 3


@pytest.mark.parametrize("control", ["values_fp16", "tail_tokens_dropped"])
def test_subtle_controls_look_right_on_ordinary_rows(judge: Judge, control: str):
    # Too few rows for needles.
    assert judge.cell("decode", {"T": 32, "Q": 5, "K": 2}).margin(load_kernel(FOLDER / f"controls/{control}.py")) <= 1
