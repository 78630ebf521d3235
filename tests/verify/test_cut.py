"""Sets of ids at a cut: what is no set, how far one strays, and a whole contract whose output is one."""

import math
import shutil
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.contract.appraisal import Order
from bot.contract.load import LoadedContract, load_contract
from bot.errors import DataError
from bot.verify import cut
from bot.verify.appraise import appraise
from bot.verify.buffers import poison_of
from bot.verify.cases import cell_recipe, make_case, probe_recipe
from bot.verify.compare import Judgement, Setting, judge, noise_level, rounded
from bot.verify.oracle import Expected, expect, load_oracle
from bot.verify.pairs import against_bar
from bot.verify.philox import Stream
from tests.verify.conftest import CONTRACTS

INF = math.inf
SCORES = torch.tensor([[3.0, 1.0, 2.0, 2.0, -INF, 5.0], [1.0, -INF, -INF, 4.0, -INF, -INF]], dtype=torch.float64)
"""Five and two eligible ids."""


@pytest.fixture(scope="module")
def loaded() -> LoadedContract:
    return load_contract(CONTRACTS, "topk")


def judged(loaded: LoadedContract, scores: torch.Tensor, ids: torch.Tensor) -> Judgement:
    """Ids judged by these scores, with units of 1."""
    expected = Expected({"ids": scores}, {"ids": torch.ones(scores.shape[:-1], dtype=torch.float64)})
    setting = Setting("here", {"B": scores.shape[0], "M": scores.shape[1]}, loaded.contract.limits)
    return judge(loaded.contract, expected, {"ids": ids.int()}, setting)


def refusal(loaded: LoadedContract, *rows: list[int]) -> tuple[str, list[int], str, str]:
    judgement = judged(loaded, SCORES, torch.tensor(rows))
    assert judgement.counterexample is not None
    found = judgement.counterexample
    assert math.isinf(judgement.margin) == (found.error_units is None)
    return found.statistic, found.index, found.candidate, found.oracle


@pytest.mark.parametrize("first", [*permutations([5, 0, 2]), *permutations([5, 0, 3])])
def test_order_and_ties_are_free_and_empty_places_stand_anywhere(loaded: LoadedContract, first: list[int]) -> None:
    for second in permutations([0, 3, -1]):
        judgement = judged(loaded, SCORES, torch.tensor([first, second]))
        assert judgement.margin == 0
        assert judgement.errors[0].relative_l2 == 0


def test_what_is_no_set_is_refused_with_the_element(loaded: LoadedContract) -> None:
    assert refusal(loaded, [5, 0, 6], [0, 3, -1]) == ("set", [0, 2], "id 6", "ids from 0 to 5, or -1")
    assert refusal(loaded, [5, 0, -2], [0, 3, -1]) == ("set", [0, 2], "id -2", "ids from 0 to 5, or -1")
    assert refusal(loaded, [5, 4, 0], [0, 3, -1]) == ("set", [0, 1], "id 4", "not eligible")
    assert refusal(loaded, [5, 0, 2], [3, 0, 1]) == ("set", [1, 2], "id 1", "not eligible")
    assert refusal(loaded, [5, 0, 5], [0, 3, -1]) == ("set", [0, 2], "id 5 again", "each id once")
    assert refusal(loaded, [5, -1, 2], [0, 3, -1]) == ("set", [0, 1], "missing id 0", "score 3, 5 eligible")
    assert refusal(loaded, [5, 0, 2], [-1, 3, -1]) == ("set", [1, 0], "missing id 0", "score 1, 2 eligible")


def test_the_cut_says_how_far_a_set_strays() -> None:
    """Chosen too low, left out too high, both; the larger one counts and is shown."""
    low = torch.tensor([[0, 1, 5], [0, 3, -1]])
    assert cut.distances(SCORES, low).tolist() == [1.0, 0.0]
    assert cut.furthest(SCORES, low, (0,)) == cut.Element((0, 1), "id 1", "score 1, 1 below the cut")
    omitted = torch.tensor([[0, 2, 3], [0, 3, -1]])
    assert cut.distances(SCORES, omitted).tolist() == [3.0, 0.0]
    assert cut.furthest(SCORES, omitted, (0,)) == cut.Element((0, 1), "missing id 5", "score 5, 3 above the cut")


def test_a_stray_set_is_refused_by_its_distance(loaded: LoadedContract) -> None:
    judgement = judged(loaded, SCORES * 100, torch.tensor([[0, 2, 3], [0, 3, -1]]))
    assert judgement.counterexample is not None
    assert (judgement.counterexample.statistic, judgement.counterexample.error_units) == ("maximum", 300.0)
    assert judgement.margin == pytest.approx(300 / loaded.contract.limits["ids"].maximum)
    assert 0 < judgement.errors[0].relative_l2 < 1


def test_infinite_scores_must_be_chosen(loaded: LoadedContract) -> None:
    scores = torch.tensor([[INF, INF, 1.0, 2.0]], dtype=torch.float64)
    assert judged(loaded, scores, torch.tensor([[1]])).margin == 0
    left_out = judged(loaded, scores, torch.tensor([[0, 2]]))
    assert math.isinf(left_out.margin)
    assert left_out.counterexample is not None
    assert left_out.counterexample.candidate == "id 2"


@pytest.mark.parametrize("shape", [(0, 3), (2, 0)])
def test_empty_sets_pass(loaded: LoadedContract, shape: tuple[int, int]) -> None:
    assert judged(loaded, SCORES[: shape[0]], torch.zeros(shape)).margin == 0


def test_the_poison_of_a_set_is_no_set() -> None:
    left = torch.full((2, 3), int(poison_of("int32", Stream.from_salt(b"s" * 32))))
    assert int(left.max()) < cut.NOTHING
    assert cut.misfit(SCORES, left) is not None
    assert cut.ill_formed(left) is not None


ROW = st.lists(st.sampled_from([-INF, -2.0, 0.0, 1.0, 1.5, 7.0, 1e300]), min_size=6, max_size=6)


@given(st.lists(ROW, min_size=1, max_size=4), st.integers(1, 8), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_the_largest_scores_in_any_order_have_no_distance(rows: list[list[float]], places: int, random: Any) -> None:
    scores = torch.tensor(rows, dtype=torch.float64)
    ids = cut.best(scores, places)
    order = torch.tensor(random.sample(range(places), places))
    assert ids.shape == (len(rows), places)
    assert cut.misfit(scores, ids[:, order]) is None
    assert not cut.distances(scores, ids[:, order]).any()
    assert cut.ill_formed(ids) is None


@given(ROW, st.lists(st.integers(-3, 7), min_size=3, max_size=3))
@settings(deadline=None)
def test_sets_and_distances_are_as_defined(row: list[float], chosen: list[int]) -> None:
    """Against the definition, written out for one row."""
    eligible = [score for score in row if score > -INF]
    members = [i for i in chosen if i != -1]
    right = (
        all(0 <= i < 6 and row[i] > -INF for i in members)
        and len(set(members)) == len(members) == min(3, len(eligible))
    )  # fmt: skip
    scores, ids = torch.tensor([row], dtype=torch.float64), torch.tensor([chosen])
    found = cut.misfit(scores, ids)
    assert (found is None) == right
    if right and members:
        last = sorted(eligible, reverse=True)[len(members) - 1]
        left_out = [row[i] for i in range(6) if i not in members and row[i] > -INF]
        wanted = max(0.0, last - min(row[i] for i in members), *(score - last for score in left_out))
        assert cut.distances(scores, ids).item() == wanted
        if wanted:
            assert f"{wanted:.3g}" in cut.furthest(scores, ids, (0,)).oracle


def test_the_bar_alone_is_asked_only_for_a_set(loaded: LoadedContract) -> None:
    """Two right answers may differ; without scores only what no set holds is wrong."""
    bar = {"ids": torch.tensor([[0, 1, 2]], dtype=torch.int32)}
    axes: dict[str, int | list[int]] = {"B": 1, "M": 9}

    def asked(*ids: int) -> str | None:
        got = {"ids": torch.tensor([ids], dtype=torch.int32)}
        found = against_bar(loaded.contract, got, bar, {"ids": 0.0}, where="t", axes=axes)
        return None if found is None else f"{found.statistic} {found.index} {found.candidate}, {found.oracle}"

    assert asked(7, -1, -1) is None
    assert asked(7, -1, 7) == "set [0, 2] id 7 again, each id once"
    assert asked(-5, 1, 2) == "set [0, 0] id -5, ids from 0, or -1"


def expected_of(loaded: LoadedContract, probe: str | None = None) -> tuple[Expected, Setting]:
    contract = loaded.contract
    if probe is None:
        recipe = cell_recipe(contract, contract.anchor("cpu"), "plain")
    else:
        recipe = probe_recipe(contract, next(p for p in contract.probes if p.name == probe))
    stream = Stream.from_salt(b"s" * 32, recipe.name)
    case = make_case(contract, recipe, stream, static=stream)
    expected = expect(contract, load_oracle(loaded.folder), case, stream.child("oracle"))
    return expected, Setting("here", case.axes, contract.limits)


@pytest.mark.parametrize("probe", [None, "few", "close"])
def test_the_unit_is_the_spread_of_the_eligible_scores(loaded: LoadedContract, probe: str | None) -> None:
    expected, setting = expected_of(loaded, probe)
    scores, units = expected.exact["ids"], expected.units["ids"]
    there = scores > -INF
    size = torch.where(there, scores, 0.0).square().sum(-1).div(there.sum(-1).clamp_min(1)).sqrt()
    assert units.isfinite().all()
    assert bool((units > 0).all())
    assert bool((units[size > 0] / size[size > 0] < 2**-22).all())
    assert bool((units[size > 0] / size[size > 0] > 2**-26).all())
    ids = rounded(loaded.contract.outputs["ids"], scores, (*scores.shape[:-1], 8))
    assert ids.dtype == torch.int32
    assert judge(loaded.contract, expected, {"ids": ids}, setting).margin == 0
    assert 0 < noise_level(loaded.contract, expected)["ids"] < 2**-20


RETURN = 'return {"ids": scores.masked_fill(ids >= count[:, None], -torch.inf)}'


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        ('{"ids": scores.masked_fill(ids >= count[:, None], torch.nan)}', "scores must not be NaN"),
        (
            '{"ids": scores.float()}',
            r"must be float64 scores of all ids, \(64,\) and at least one id, is torch.float32",
        ),
        ('{"ids": scores[:3]}', r"is torch.float64 \(3, 600\)"),
        ('{"ids": scores[:, :0]}', r"is torch.float64 \(64, 0\)"),
    ],
)
def test_scores_that_are_none_are_the_contracts_fault(tmp_path: Path, returned: str, reason: str) -> None:
    shutil.copytree(CONTRACTS / "topk", tmp_path / "topk", ignore=shutil.ignore_patterns("__pycache__"))
    path = tmp_path / "topk" / "oracle.py"
    text = path.read_text(encoding="utf-8")
    assert RETURN in text
    path.write_text(text.replace(RETURN, f"return {returned}"), encoding="utf-8")
    with pytest.raises(DataError, match=reason):
        expected_of(load_contract(tmp_path, "topk"))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("dtype: int32, compare", "dtype: float32, compare", "a set holds ids, which are integers, not float32"),
        (", compare: set_at_cut", "", "rows are compared as floating numbers, not int32"),
    ],
)
def test_a_comparison_wants_its_type(tmp_path: Path, old: str, new: str, reason: str) -> None:
    shutil.copytree(CONTRACTS / "topk", tmp_path / "topk")
    path = tmp_path / "topk" / "contract.yaml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(DataError, match=f"outputs.ids.dtype: {reason}"):
        load_contract(tmp_path, "topk")


@pytest.mark.sandbox
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_a_contract_of_sets_accepts_its_honest_kernels_and_refuses_its_cheats(loaded: LoadedContract) -> None:
    """In the sandbox, through lent memory: `close` has honest kernels choose differently, `tied` and `equal` too."""
    order = Order(contracts_dir="", contract="topk", task="check")
    found = appraise(loaded, order, "5a" * 32, lambda _: None)
    assert found.problems == []
    assert [trial.file for trial in found.faithful] == loaded.contract.faithful
    assert all(trial.margin is not None and 0 < trial.margin < 1 for trial in found.faithful)
    margins = {trial.file: trial.margin for trial in found.controls}
    assert margins["controls/one_omitted.py"] is None
    assert margins["controls/duplicate.py"] is None
    half = margins["controls/half_scores.py"]
    assert half is not None
    assert half > 3
