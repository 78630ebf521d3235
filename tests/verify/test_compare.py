"""Judging numbers: classes first, noise units, groups, and conditions that NaN cannot pass."""

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bot.contract.load import load_contract
from bot.contract.schema import Contract, DType
from bot.verify.compare import Judgement, Setting, groups_of, judge, noise_level, rounded, row_errors
from bot.verify.oracle import TORCH, Expected, finite_in, mean_square, noise_units
from bot.verify.pairs import against_bar

CONTRACTS = Path(__file__).parents[1] / "data" / "contracts"
AXES: dict[str, int | list[int]] = {"H": 2, "lengths": [40, 0, 24]}


@pytest.fixture(scope="module")
def contract() -> Contract:
    return load_contract(CONTRACTS, "center").contract


def expected_of(contract: Contract, exact: torch.Tensor) -> Expected:
    spread = mean_square(exact, finite_in(exact, "bfloat16")).sqrt() * 2**-9
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


def test_an_infinity_lends_its_row_no_room(contract: Contract, exact: torch.Tensor) -> None:
    """Seen by the properties below: as part of the row's size it made a unit in which anything was right."""
    for value in (math.inf, 1e60):  # infinite in bfloat16 only
        exact[3, 1, 2] = value
        got = exact.clone()
        got[3, 1, 3:] += 8.0
        judgement = judged(contract, exact, got.bfloat16())
        assert judgement.counterexample is not None
        assert judgement.counterexample.index[:2] == [3, 1]
        assert judgement.counterexample.index[2] > 2


def test_few_numbers_beside_infinities_are_not_diluted(contract: Contract, exact: torch.Tensor) -> None:
    exact[3, 1, 1:] = -math.inf
    got = exact.clone()
    got[3, 1, 0] *= 1 + 2**-4
    assert judged(contract, exact, got.bfloat16()).counterexample is not None


@pytest.mark.parametrize("unit", [0.0, math.nan])
def test_one_row_whose_error_is_no_number_refuses(contract: Contract, unit: float) -> None:
    """Seen by reading: the next statistic, whose value was a number, took its place."""
    exact = torch.zeros(600, 2, 64, dtype=torch.float64)
    units = torch.ones(600, 2, dtype=torch.float64)
    units[5, 1] = unit
    axes: dict[str, int | list[int]] = {"H": 2, "lengths": [600]}
    setting = Setting("here", axes, contract.limits)
    judgement = judge(contract, Expected({"y": exact}, {"y": units}), {"y": exact}, setting)
    assert math.isinf(judgement.margin)
    assert judgement.counterexample is not None
    assert judgement.counterexample.index[:2] == [5, 1]


def test_the_bars_infinities_hide_nothing_beside_them(contract: Contract, exact: torch.Tensor) -> None:
    level = noise_level(contract, expected_of(contract, exact))
    exact[50, 0, 0] = -math.inf
    got = exact.clone()
    got[40:, 0, 1:] = 0
    bar = {"y": exact.bfloat16()}
    assert against_bar(contract, bar, bar, level, where="t", axes=AXES) is None
    found = against_bar(contract, {"y": got.bfloat16()}, bar, level, where="t", axes=AXES)
    assert found is not None
    assert found.group == "sequence 2, H=0"


def test_the_level_of_noise_is_that_of_the_numbers(contract: Contract, exact: torch.Tensor) -> None:
    usual = noise_level(contract, expected_of(contract, exact))["y"]
    exact[0, 0, 0], exact[1, 1, 1] = -math.inf, math.nan
    assert noise_level(contract, expected_of(contract, exact))["y"] == pytest.approx(usual, rel=0.05)
    assert noise_level(contract, expected_of(contract, torch.zeros_like(exact)))["y"] == 0


ROWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "zeros": lambda x: x * 0.0,
    "negative zeros": lambda x: x.abs() * -0.0,
    "denormal": lambda x: x * 1e-40,
    "tiny": lambda x: x * 1e-7,
    "huge": lambda x: x * 1e38,
    "beyond every type": lambda x: x * 1e60,
    "cancelling": lambda x: x + 2**20 * (1.0 - 2.0 * (torch.arange(64) % 2)),
    "one large": lambda x: torch.where(torch.arange(64) == 9, 1e9, x),
    "one inf": lambda x: torch.where(torch.arange(64) == 9, math.inf, x),
    "one nan": lambda x: torch.where(torch.arange(64) == 9, math.nan, x),
    "all inf": lambda x: torch.full_like(x, math.inf),
    "all -inf": lambda x: torch.full_like(x, -math.inf),
    "all nan": lambda x: torch.full_like(x, math.nan),
    "inf, -inf and nan": lambda x: torch.where(x > 1, math.inf, torch.where(x < -1, -math.inf, x / (x.abs() > 0.1))),
}
DTYPES: list[DType] = ["bfloat16", "float16", "float32"]


@st.composite
def questions(draw: st.DrawFn) -> tuple[Contract, Expected, Setting]:
    """The small contract with any floating output; exact values of any kind, row by row; units from the floor alone, or
    with a spread that is usual for bfloat16."""
    contract = load_contract(CONTRACTS, "center").contract
    dtype = draw(st.sampled_from(DTYPES))
    output = contract.outputs["y"].model_copy(update={"dtype": dtype})
    contract = contract.model_copy(update={"outputs": {"y": output}})
    lengths = draw(st.sampled_from([[40, 0, 24], [64], [0], [1], [0, 3, 200]]))
    axes: dict[str, int | list[int]] = {"H": 2, "lengths": lengths}
    normal = torch.Generator().manual_seed(draw(st.integers(0, 9)))
    exact = torch.randn(sum(lengths), 2, 64, dtype=torch.float64, generator=normal)
    exact *= 2.0 ** draw(st.integers(-12, 12))
    kinds = draw(st.lists(st.sampled_from(sorted(ROWS)), max_size=6))
    for kind in kinds if lengths != [0] else []:
        row = draw(st.integers(0, sum(lengths) - 1)), draw(st.integers(0, 1))
        exact[row] = ROWS[kind](exact[row])
    spread = mean_square(exact, finite_in(exact, dtype)).sqrt() * draw(st.sampled_from([0.0, 2**-9]))
    units = noise_units(exact, spread, dtype, contract.limits["y"].floor_ulps)
    return contract, Expected({"y": exact}, {"y": units}), Setting("here", axes, contract.limits)


Question = tuple[Contract, Expected, Setting]


def right(question: Question) -> torch.Tensor:
    """The oracle's value in the output's type."""
    contract, expected, setting = question
    output = contract.outputs["y"]
    return rounded(output, expected.exact["y"], contract.shape(output, setting.axes))


def judged_as(question: Question, got: torch.Tensor) -> Judgement:
    """What must hold of every judgement, and the judgement."""
    contract, expected, setting = question
    judgement = judge(contract, expected, {"y": got}, setting)
    assert not math.isnan(judgement.margin)
    assert (judgement.counterexample is None) == (judgement.margin <= 1)
    for error in judgement.errors:
        assert all(map(math.isfinite, (error.median, error.p99, error.maximum, error.relative_l2, *error.octaves)))
    return judgement


def place(data: st.DataObject, wanted: torch.Tensor) -> tuple[int, ...]:
    """Any element of those wanted."""
    found = wanted.nonzero()
    assume(len(found) > 0)
    return tuple(int(i) for i in found[data.draw(st.integers(0, len(found) - 1))])


properties = settings(deadline=None, max_examples=60)


@given(questions())
@properties
def test_the_rounded_reference_always_passes(question: Question) -> None:
    assert judged_as(question, right(question)).margin <= 1
    assert math.isfinite(noise_level(question[0], question[1])["y"])


@given(questions(), st.data(), st.sampled_from([math.nan, math.inf, -math.inf]))
@properties
def test_nothing_but_a_number_passes_for_a_number(question: Question, data: Any, value: float) -> None:
    got = right(question)
    at = place(data, got.isfinite())
    got[at] = value
    example = judged_as(question, got).counterexample
    assert example is not None
    assert (example.statistic, tuple(example.index)) == ("class", at)


@given(questions(), st.data(), st.sampled_from([0.0, 1.0, -1e30, math.nan, math.inf, -math.inf]))
@properties
def test_only_the_same_infinity_passes_for_one_and_only_nan_for_nan(
    question: Question, data: Any, value: float
) -> None:
    got = right(question)
    at = place(data, ~got.isfinite())
    held = float(got[at])
    got[at] = value
    # What a type cannot hold has become infinite by now.
    same = held == float(got[at]) or (math.isnan(held) and math.isnan(value))
    assert (judged_as(question, got).counterexample is None) == same


@given(questions(), st.data())
@properties
def test_a_number_far_outside_its_row_is_refused(question: Question, data: Any) -> None:
    got = right(question)
    at = place(data, got.isfinite())
    info = torch.finfo(got.dtype)
    row = got[at[:-1]].double()
    far = float(got[at]) + 8 * float(row[row.isfinite()].abs().max()) + 1000 * info.tiny
    assume(far < info.max)
    got[at] = far
    example = judged_as(question, got).counterexample
    assert example is not None
    assert tuple(example.index) == at


@given(questions(), st.integers(0, 9), st.floats(-14, 2), st.lists(st.floats(1, 1e3), min_size=1, max_size=4))
@properties
def test_a_larger_error_is_never_better(question: Question, seed: int, power: float, steps: list[float]) -> None:
    exact, held = question[1].exact["y"], right(question)
    direction = torch.randn(exact.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    error = direction * 2.0**power * question[1].units["y"][..., None] * 64
    margins = []
    for scale in torch.tensor([1.0, *steps]).cumprod(0).tolist():
        got = torch.where(held.isfinite(), exact + scale * error, held.double())
        margins.append(judged_as(question, got).margin)
    assert all(one <= other * (1 + 1e-9) for one, other in pairwise(margins))


@given(questions(), st.integers(0, 9))
@properties
def test_the_order_of_rows_inside_a_group_does_not_matter(question: Question, seed: int) -> None:
    contract, expected, setting = question
    random = torch.Generator().manual_seed(seed)
    exact, units = expected.exact["y"], expected.units["y"]
    got = (right(question).double() * (1 + 2**-6 * torch.randn(exact.shape, generator=random))).to(
        TORCH[contract.outputs["y"].dtype]
    )
    lengths, order, start = setting.axes["lengths"], [], 0
    assert isinstance(lengths, list)
    for length in lengths:
        order += (start + torch.randperm(length, generator=random)).tolist()
        start += length
    again = contract, Expected({"y": exact[order]}, {"y": units[order]}), setting
    one, other = judged_as(question, got), judged_as(again, got[order])
    assert one.margin == other.margin
    assert [e.maximum for e in one.errors] == [e.maximum for e in other.errors]


@given(questions(), st.data())
@properties
def test_any_answer_is_judged(question: Question, data: Any) -> None:
    """Rows of all kinds in the answer too: `judged_as` has the conditions."""
    got = question[1].exact["y"].nan_to_num(1.0, 1.0, 1.0).clone()
    for row in data.draw(st.lists(st.integers(0, max(len(got) - 1, 0)), max_size=4)) if len(got) else []:
        got[row, 1] = ROWS[data.draw(st.sampled_from(sorted(ROWS)))](got[row, 1])
    judged_as(question, got.to(TORCH[question[0].outputs["y"].dtype]))


@given(st.sampled_from([0, 2]), st.integers(0, 1), st.floats(1.1, 2.5), st.integers(0, 9))
@settings(deadline=None, max_examples=10)
def test_one_wrong_group_among_many_rows_is_named(sequence: int, head: int, factor: float, seed: int) -> None:
    """Each of its rows errs by little more than the median may: over all 3000 rows no statistic would see that."""
    contract = load_contract(CONTRACTS, "center").contract
    axes: dict[str, int | list[int]] = {"H": 2, "lengths": [16, 2950, 34]}
    random = torch.Generator().manual_seed(seed)
    exact = torch.randn(3000, 2, 64, dtype=torch.float64, generator=random)
    units = torch.full((3000, 2), 2.0**-9, dtype=torch.float64)
    rows = slice(0, 16) if sequence == 0 else slice(2966, 3000)
    got = exact.clone()
    got[rows, head] += factor * contract.limits["y"].median * 2**-9
    question = contract, Expected({"y": exact}, {"y": units}), Setting("here", axes, contract.limits)
    example = judged_as(question, got).counterexample
    assert example is not None
    assert (example.statistic, example.group) == ("median", f"sequence {sequence}, H={head}")
    assert example.error_units == pytest.approx(factor * contract.limits["y"].median)


@given(questions(), st.sampled_from([0.0, 2**-9, 1.0]))
@properties
def test_against_the_bar_its_own_output_passes_and_another_class_does_not(question: Question, level: float) -> None:
    contract, _, setting = question
    held = right(question)
    bar = {"y": held}

    def asked(got: torch.Tensor) -> bool:
        return against_bar(contract, {"y": got}, bar, {"y": level}, where="t", axes=setting.axes) is None

    assert asked(held.clone())
    for at in held.isfinite().nonzero()[:1].tolist():
        got = held.clone()
        got[tuple(at)] = math.nan
        assert not asked(got)
    for at in held.isinf().nonzero()[:1].tolist():
        got = held.clone()
        got[tuple(at)] *= -1
        assert not asked(got)
