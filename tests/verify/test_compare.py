"""Judging numbers: classes first, noise units, groups, and conditions that NaN cannot pass."""

import math
from pathlib import Path

import pytest
import torch

from bot.contract.load import load_contract
from bot.contract.schema import Contract
from bot.verify.compare import Setting, against_bar, groups_of, judge, noise_level, row_errors
from bot.verify.oracle import Expected, noise_units

CONTRACTS = Path(__file__).parents[1] / "data" / "contracts"
AXES: dict[str, int | list[int]] = {"H": 2, "lengths": [40, 0, 24]}


@pytest.fixture(scope="module")
def contract() -> Contract:
    return load_contract(CONTRACTS, "center").contract


def expected_of(contract: Contract, exact: torch.Tensor) -> Expected:
    spread = exact.square().mean(-1).sqrt() * 2**-9
    return Expected({"y": exact}, {"y": noise_units(exact, spread, "bfloat16", contract.limits["y"].floor_ulps)})


def judged(contract: Contract, exact: torch.Tensor, got: torch.Tensor):
    return judge(contract, expected_of(contract, exact), {"y": got}, Setting("here", AXES, contract.limits))


@pytest.fixture
def exact() -> torch.Tensor:
    return torch.randn(64, 2, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_the_rounded_reference_passes_with_room(contract: Contract, exact: torch.Tensor) -> None:
    judgement = judged(contract, exact, exact.bfloat16())
    assert judgement.counterexample is None
    assert 0.05 < judgement.margin < 0.6


def test_one_wrong_head_of_one_sequence_is_named(contract: Contract, exact: torch.Tensor) -> None:
    got = exact.clone()
    got[40:, 1] *= 1.05
    example = judged(contract, exact, got.bfloat16()).counterexample
    assert example is not None
    assert example.group == "sequence 2, H=1"
    assert example.index[0] >= 40
    assert example.index[1] == 1


def test_a_single_wrong_element_is_found(contract: Contract, exact: torch.Tensor) -> None:
    got = exact.clone()
    got[7, 0, 5] += 8.0
    example = judged(contract, exact, got.bfloat16()).counterexample
    assert example is not None
    assert example.index == [7, 0, 5]
    assert example.statistic == "maximum"


@pytest.mark.parametrize(
    ("value", "wanted"), [(math.nan, 1.0), (math.inf, 1.0), (1.0, math.nan), (math.inf, -math.inf)]
)
def test_value_classes_are_compared_before_anything_else(
    contract: Contract, exact: torch.Tensor, value: float, wanted: float
) -> None:
    right, got = exact.clone(), exact.clone()
    right[3, 1, 2], got[3, 1, 2] = wanted, value
    judgement = judged(contract, right, got.bfloat16())
    assert judgement.counterexample is not None
    assert judgement.counterexample.statistic == "class"
    assert not judgement.margin <= 1


def test_equal_infinities_and_nans_pass(contract: Contract, exact: torch.Tensor) -> None:
    exact[0, 0, 0], exact[1, 1, 1] = math.inf, math.nan
    assert judged(contract, exact, exact.bfloat16()).counterexample is None


def test_negative_zero_is_zero(contract: Contract) -> None:
    zero = torch.zeros(64, 2, 64, dtype=torch.float64)
    assert judged(contract, zero, -zero.bfloat16()).margin == 0


def test_an_exact_zero_must_be_met(contract: Contract) -> None:
    zero = torch.zeros(64, 2, 64, dtype=torch.float64)
    got = zero.clone()
    got[0, 0, 0] = 1e-20
    assert judged(contract, zero, got.bfloat16()).counterexample is not None


def test_no_unit_at_all_never_passes(contract: Contract, exact: torch.Tensor) -> None:
    units = torch.zeros(64, 2, dtype=torch.float64)
    judgement = judge(
        contract, Expected({"y": exact}, {"y": units}), {"y": exact}, Setting("here", AXES, contract.limits)
    )
    assert judgement.counterexample is not None


def test_empty_outputs_pass(contract: Contract) -> None:
    empty = torch.zeros(0, 2, 64, dtype=torch.float64)
    axes: dict[str, int | list[int]] = {"H": 2, "lengths": [0]}
    judgement = judge(contract, expected_of(contract, empty), {"y": empty}, Setting("here", axes, contract.limits))
    assert judgement.margin == 0


def test_groups_partition_the_rows(contract: Contract) -> None:
    names, group = groups_of(contract, contract.outputs["y"], AXES)
    assert names == [f"sequence {n}, H={h}" for n in range(3) for h in range(2)]
    assert torch.bincount(group.flatten(), minlength=6).tolist() == [40, 40, 0, 0, 24, 24]
    assert names[int(group[45, 1])] == "sequence 2, H=1"


def test_denormals_have_a_unit(contract: Contract) -> None:
    tiny = torch.full((64, 2, 64), 1e-39, dtype=torch.float64)
    units = noise_units(tiny, torch.zeros(64, 2, dtype=torch.float64), "bfloat16", 0.5)
    flushed = row_errors(tiny, torch.zeros_like(tiny), units)
    assert float(flushed.max()) < 1
    assert float(flushed.min()) > 0


def test_against_the_bar_rounding_passes_and_a_stale_output_does_not(contract: Contract, exact: torch.Tensor) -> None:
    level = noise_level(contract, expected_of(contract, exact))
    bar = {"y": exact.bfloat16()}
    assert against_bar(contract, {"y": (exact * (1 + 2**-9)).bfloat16()}, bar, level, where="t", axes=AXES) is None
    stale = against_bar(contract, {"y": exact.roll(1, 0).bfloat16()}, bar, level, where="t", axes=AXES)
    assert stale is not None
    assert stale.statistic == "bar"


def test_against_the_bar_one_head_left_out_is_seen(contract: Contract, exact: torch.Tensor) -> None:
    level = noise_level(contract, expected_of(contract, exact))
    got = exact.clone()
    got[:, 0] = 0
    found = against_bar(contract, {"y": got.bfloat16()}, {"y": exact.bfloat16()}, level, where="t", axes=AXES)
    assert found is not None
    assert found.group.endswith("H=0")


def test_a_row_whose_noisy_runs_agree_by_chance_keeps_a_usual_unit(exact: torch.Tensor) -> None:
    spread = exact.square().mean(-1).sqrt() * 2**-8
    usual = noise_units(exact, spread, "bfloat16", 0.25)[5, 0].item()
    spread[5, 0] = 0.0
    lucky = noise_units(exact, spread, "bfloat16", 0.0)[5, 0].item()
    assert 0.1 * usual < lucky < 0.5 * usual
