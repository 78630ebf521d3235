"""Which part of which input reaches which output: where inputs are cut, what a change changes, what the map shows of
kernels whose answer is known. Kernels run in process.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.contract.load import LoadedContract, load_contract
from bot.contract.schema import Contract, Sizes, TensorInput
from bot.evaluation import Counterexample, Influence
from bot.verify.cases import Case, cell_recipe, make_case
from bot.verify.exam import setting_of
from bot.verify.influence import (
    PARTS,
    Layout,
    Outputs,
    changeable,
    exact_and_given,
    influence_map,
    layout,
    measured,
    perturbed,
    reach,
)
from bot.verify.oracle import NOISY_RUNS, TORCH, Expected, Tensor, expect, load_oracle, tensor_of
from bot.verify.pairs import leak
from bot.verify.philox import Stream
from tests.contracts.judging import CONTRACTS, Kernel, load_kernel
from tests.verify.conftest import CENTER

KDA_FOLDER = CONTRACTS / "kda_prefill"
CENTER_CONTRACT = load_contract(CENTER.parent, "center")
KDA = load_contract(CONTRACTS, "kda_prefill")
RMSNORM = load_contract(CONTRACTS, "rmsnorm")
HONEST = load_kernel(CENTER / "faithful" / "float32.py")
ROOT = Stream.from_salt(b"\x06" * 32, "influence")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def case_of(
    loaded: LoadedContract, axes: Sizes, regime: str, absent: frozenset[str] = frozenset(), stream: Stream = ROOT
) -> Case:
    """A plain draw, its sequences in this order."""
    contract = loaded.contract
    workload = contract.anchor("cpu").model_copy(update={"axes": axes})
    recipe = replace(cell_recipe(contract, workload, regime), kind="hidden", absent=absent)
    return make_case(contract, recipe, stream.child("case", regime), static=stream.child("static"))


def run(contract: Contract, kernel: Kernel, case: Case) -> dict[str, Tensor]:
    inputs = [
        tensor_of(held, spec.dtype) if isinstance(held, np.ndarray) else held  # type: ignore[arg-type]
        for spec, held in ((spec, case.inputs[name]) for name, spec in contract.inputs.items())
    ]
    outputs = {
        name: torch.full(contract.shape(spec, case.axes), float("nan"), dtype=TORCH[spec.dtype])
        for name, spec in contract.outputs.items()
    }
    kernel(*inputs, *outputs.values())
    return outputs


@dataclass
class Asked:
    """A kernel and the oracle beside it."""

    loaded: LoadedContract
    kernel: Kernel
    case: Case
    calls: int = 0
    most: int = 10**9

    def expected(self, case: Case, *, runs: int = 0) -> Expected:
        return expect(self.loaded.contract, load_oracle(self.loaded.folder), case, ROOT.child("noise"), runs=runs)

    def __call__(self, case: Case) -> tuple[Outputs, Outputs] | None:
        self.calls += 1
        if self.calls > self.most:
            return None
        return exact_and_given(self.expected(case), run(self.loaded.contract, self.kernel, case))

    def map(self) -> dict[str, Influence]:
        contract = self.loaded.contract
        expected = self.expected(self.case, runs=NOISY_RUNS)
        before = exact_and_given(expected, run(contract, self.kernel, self.case))
        rows = influence_map(contract, self.case, expected.units, before, self, ROOT.child("change"))
        return {row.input: row for row in rows}


def cut_of(loaded: LoadedContract, name: str, axes: Sizes) -> Layout:
    spec = loaded.contract.inputs[name]
    assert isinstance(spec, TensorInput)
    return layout(loaded.contract, spec, axes)


def shares(found: Influence) -> Any:
    return np.array([[np.nan if x is None else x for x in row] for row in found.shares])


def leaks(found: Influence) -> bool:
    return any(map(any, found.leaks))


def test_tokens_are_cut_in_each_sequence_by_itself() -> None:
    found = cut_of(CENTER_CONTRACT, "x", {"H": 2, "lengths": [16, 0, 3, 9]})
    assert found.axis == "tokens"
    assert found.sequence[:, 0, 0].tolist() == [0] * 16 + [2] * 3 + [3] * 9
    assert found.part[:, 0, 0].tolist() == [i // 2 for i in range(16)] + [0, 2, 5] + [0, 0, 1, 2, 3, 4, 5, 6, 7]
    assert found.group[0, :, 0].tolist() == [0, 1]
    assert found.part.shape[1:] == (1, 1)


def test_what_has_no_tokens_is_cut_along_its_last_axis() -> None:
    offset = cut_of(CENTER_CONTRACT, "offset", {"H": 2, "lengths": [5, 0, 3]})
    assert offset.axis == "D"
    assert offset.sequence[:, 0].tolist() == [0, 1, 2]
    assert bool((offset.group == -1).all())
    assert np.bincount(offset.part[0]).tolist() == [8] * 8
    state = cut_of(KDA, "initial_state", {"H": 3, "lengths": [5, 1]})
    assert (state.axis, state.part.shape) == ("K", (1, 1, 1, 128))
    assert state.sequence.ravel().tolist() == [0, 1]
    assert state.group.ravel().tolist() == [0, 1, 2]


def test_without_sequences_and_groups_each_row_is_a_slice() -> None:
    rows = cut_of(RMSNORM, "hidden_states", {"B": 5, "H": 20})
    assert rows.axis == "H"
    assert rows.sequence.ravel().tolist() == [0, 1, 2, 3, 4]
    assert bool((rows.group == -1).all())
    assert rows.part.ravel().tolist() == [i * 8 // 20 for i in range(20)]
    # A vector is shared by all rows.
    weight = cut_of(RMSNORM, "weight", {"B": 5, "H": 20})
    assert bool((weight.sequence == -1).all())


def test_a_set_has_no_change_to_measure() -> None:
    topk = load_contract(CENTER.parent, "topk")
    assert "set_at_cut" in {spec.compare for spec in topk.contract.outputs.values()}
    assert measured(topk.contract) == [n for n, s in topk.contract.outputs.items() if s.compare == "rows"]
    assert measured(KDA.contract) == ["out", "final_state"]


@given(st.lists(st.integers(0, 40), min_size=0, max_size=6), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_parts_of_a_sequence_are_in_order_and_equal_but_for_one_token(lengths: list[int], heads: int) -> None:
    found = cut_of(CENTER_CONTRACT, "x", {"H": heads, "lengths": lengths})
    contract = CENTER_CONTRACT.contract
    spec = contract.inputs["x"]
    assert isinstance(spec, TensorInput)
    shape = contract.shape(spec, {"H": heads, "lengths": lengths})
    assert np.broadcast_shapes(found.part.shape, found.sequence.shape, found.group.shape, shape) == shape
    for number, length in enumerate(lengths):
        parts = found.part.ravel()[found.sequence.ravel() == number]
        assert len(parts) == length
        assert parts.tolist() == sorted(parts.tolist())
        counts = np.bincount(parts, minlength=PARTS)
        assert len(counts) == PARTS
        assert counts.max() - counts.min() <= 1


def changes(contract: Contract, before: Case, after: Case, name: str) -> Any:
    """Where an input differs."""
    one, other = before.inputs[name], after.inputs[name]
    assert isinstance(one, np.ndarray)
    assert isinstance(other, np.ndarray)
    return np.asarray(one != other)


LENGTHS = st.lists(st.integers(0, 30), min_size=1, max_size=5).filter(any)


@given(LENGTHS, st.integers(1, 4), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_a_change_stays_in_one_part_of_each_slice_and_leaves_a_third_alone(
    lengths: list[int], heads: int, number: int
) -> None:
    contract, axes = CENTER_CONTRACT.contract, Sizes(H=heads, lengths=lengths)
    case = case_of(CENTER_CONTRACT, axes, "plain")
    after = perturbed(contract, case, ROOT.child(number))
    assert (after.axes, after.recipe, after.needles) == (case.axes, case.recipe, True)
    where = cut_of(CENTER_CONTRACT, "x", axes)
    differs, touched = changes(contract, case, after, "x"), 0
    for sequence in range(len(lengths)):
        for head in range(heads):
            mine = differs[where.sequence.ravel() == sequence, head].any(axis=-1)
            touched += bool(mine.any())
            assert len(set(where.part.ravel()[where.sequence.ravel() == sequence][mine].tolist())) <= 1
    slices = len(lengths) * heads
    assert touched <= max(1, min(round(slices * 2 / 3), slices - 1))
    # The offset of a sequence, one part of its channels: only where some head of it is touched.
    parts = changes(contract, case, after, "offset").reshape(len(lengths), PARTS, 8).any(axis=-1)
    assert set(parts.sum(axis=1).tolist()) <= {0, 1}


def test_two_thirds_of_the_slices_change_and_their_shared_inputs_with_them() -> None:
    axes: Sizes = {"H": 4, "lengths": [40, 30, 9, 8, 24, 60]}
    case, contract = case_of(CENTER_CONTRACT, axes, "plain"), CENTER_CONTRACT.contract
    where, met = cut_of(CENTER_CONTRACT, "x", axes), set[tuple[bool, ...]]()
    for number in range(20):
        after = perturbed(contract, case, ROOT.child("thirds", number))
        differs = changes(contract, case, after, "x").any(axis=-1)
        table = np.array([differs[where.sequence.ravel() == n].any(axis=0) for n in range(6)])
        assert table.sum() == 16
        assert (changes(contract, case, after, "offset").any(axis=1) == table.any(axis=1)).all()
        met.add(tuple(table.ravel().tolist()))
    assert len(met) == 20
    assert np.mean(np.array(sorted(met)), axis=0).min() > 0.2  # No slice is always left alone.


def test_all_inputs_of_a_slice_change_in_the_same_slices() -> None:
    axes: Sizes = {"H": 2, "lengths": [16, 24, 9]}
    case, contract = case_of(KDA, axes, "slow"), KDA.contract
    after = perturbed(contract, case, ROOT.child("inputs"))
    tables = []
    for name in ("q", "k", "v", "g", "beta"):
        where = cut_of(KDA, name, axes)
        differs = changes(contract, case, after, name)
        differs = differs if differs.ndim == 2 else differs.any(axis=-1)
        tables.append(np.array([differs[where.sequence.ravel() == n].any(axis=0) for n in range(3)]))
    tables.append(changes(contract, case, after, "initial_state").any(axis=(2, 3)))
    assert all((table == tables[0]).all() for table in tables)
    assert tables[0].sum() == 4
    # Of a state, one eighth of the last axis.
    columns = changes(contract, case, after, "initial_state").any(axis=2).sum(axis=-1)
    assert set(columns.ravel().tolist()) == {0, 16}


def test_offsets_statics_and_numbers_never_change() -> None:
    axes: Sizes = {"H": 2, "lengths": [16, 0, 9]}
    case = case_of(KDA, axes, "trace")
    assert changeable(KDA.contract, case) == ["q", "k", "v", "g", "beta", "initial_state"]
    for number in range(10):
        after = perturbed(KDA.contract, case, ROOT.child("never", number))
        for name in ("A_log", "dt_bias", "scale", "lower_bound", "cu_seqlens"):
            assert after.inputs[name] is case.inputs[name]
    rows = case_of(RMSNORM, {"B": 6, "H": 16}, "gaussian")
    after = perturbed(RMSNORM.contract, rows, ROOT)
    assert after.inputs["weight"] is rows.inputs["weight"]
    assert changes(RMSNORM.contract, rows, after, "hidden_states").any(axis=1).sum() == 4


def test_absent_and_empty_inputs_stay_as_they_are() -> None:
    case = case_of(CENTER_CONTRACT, {"H": 2, "lengths": [16]}, "plain", absent=frozenset({"offset"}))
    assert perturbed(CENTER_CONTRACT.contract, case, ROOT).inputs["offset"] is None
    empty = case_of(CENTER_CONTRACT, {"H": 2, "lengths": [0, 0]}, "plain")
    assert changeable(CENTER_CONTRACT.contract, empty) == ["offset"]
    after = perturbed(CENTER_CONTRACT.contract, empty, ROOT)
    assert after.inputs["x"] is empty.inputs["x"]


def test_the_same_stream_changes_the_same_bits_and_another_others() -> None:
    case, contract = case_of(CENTER_CONTRACT, {"H": 2, "lengths": [40, 30]}, "plain"), CENTER_CONTRACT.contract
    one, same, other = (perturbed(contract, case, ROOT.child("stream", label)) for label in ("a", "a", "b"))
    for name in ("x", "offset"):
        assert not changes(contract, one, same, name).any()
    assert changes(contract, one, other, "x").any()


SMALL: Sizes = {"H": 3, "lengths": [40, 24, 33]}


def test_an_honest_kernel_answers_as_the_oracle_and_leaks_nowhere() -> None:
    found = Asked(CENTER_CONTRACT, HONEST, case_of(CENTER_CONTRACT, SMALL, "plain")).map()
    assert list(found) == ["offset", "x"]
    # An offset of a part of the channels is heard in all tokens; tokens only in their own part.
    assert np.nanmax(np.abs(shares(found["x"]) - 1)) <= 0.02
    assert (np.isnan(shares(found["x"])) == ~np.eye(PARTS, dtype=bool)).all()
    assert not np.isnan(shares(found["offset"])).any()
    assert np.abs(shares(found["offset"]) - 1).max() <= 0.02
    assert not any(map(leaks, found.values()))
    assert (found["x"].axis, found["offset"].axis, found["x"].outputs) == ("tokens", "D", ["y"])


@pytest.mark.parametrize("file", ["chunked_bf16_c64", "wy_tf32"])
def test_honest_attention_answers_as_the_oracle_and_leaks_nowhere(file: str) -> None:
    kernel = load_kernel(KDA_FOLDER / "faithful" / f"{file}.py")
    found = Asked(KDA, kernel, case_of(KDA, {"H": 2, "lengths": [97, 64]}, "slow")).map()
    assert list(found) == ["initial_state", "q", "k", "v", "g", "beta"]
    for row in found.values():
        assert np.nanmax(np.abs(shares(row) - 1)) <= 0.05, row
        assert not leaks(row), row
    # What comes later does not reach what came before.
    assert np.isnan(shares(found["v"])[np.tril_indices(PARTS, -1)]).all()
    assert not np.isnan(shares(found["v"])[np.triu_indices(PARTS)]).any()
    assert not np.isnan(shares(found["initial_state"])).any()


def test_a_history_cut_shows_as_zeros_off_the_diagonal() -> None:
    kernel = load_kernel(KDA_FOLDER / "controls" / "history_cut_32.py")
    # One part is one window of the control.
    found = Asked(KDA, kernel, case_of(KDA, {"H": 2, "lengths": [256]}, "slow")).map()
    across = shares(found["v"])[:, :PARTS]
    assert np.abs(np.diag(across) - 1).max() < 0.1
    later = across[np.triu_indices(PARTS, 1)]
    assert not np.isnan(later).all()
    assert np.nanmax(np.abs(later)) == 0
    # The state it leaves is that of the last window alone.
    left = shares(found["v"])[:, PARTS:]
    assert np.nanmax(np.abs(left[:-1])) == 0
    assert np.nanmin(left[-1]) > 0.9
    assert not leaks(found["v"])


def test_an_ignored_initial_state_is_zero_all_over_and_the_rest_is_read() -> None:
    kernel = load_kernel(KDA_FOLDER / "controls" / "initial_state_ignored.py")
    found = Asked(KDA, kernel, case_of(KDA, {"H": 2, "lengths": [48, 33]}, "slow")).map()
    ignored = shares(found["initial_state"])
    assert not np.isnan(ignored).all()
    assert np.nanmax(np.abs(ignored)) == 0
    assert np.nanmin(np.diag(shares(found["v"])[:, :PARTS])) > 0.9


def next_sequence(x, offset, scale, cu_seqlens, y):
    """Adds a tenth of the next sequence's tokens."""
    HONEST(x, offset, scale, cu_seqlens, y)
    bounds = cu_seqlens.tolist()
    for n in range(len(bounds) - 2):
        length = min(bounds[n + 1] - bounds[n], bounds[n + 2] - bounds[n + 1])
        y[bounds[n] : bounds[n] + length] += 0.1 * x[bounds[n + 1] : bounds[n + 1] + length]


def next_head(x, offset, scale, cu_seqlens, y):
    """Adds a tenth of the next head."""
    HONEST(x, offset, scale, cu_seqlens, y)
    y += 0.1 * x.roll(-1, dims=1)


def shaky(x, offset, scale, cu_seqlens, y):
    """Errs in another direction each time, by a few roundings: sums of another order."""
    wide = torch.empty(y.shape)
    HONEST(x, offset, scale, cu_seqlens, wide)
    y.copy_(wide * (1 + 2.0**-7 * (2 * torch.rand(wide.shape) - 1)))


@pytest.mark.parametrize("kernel", [next_sequence, next_head])
def test_a_kernel_that_reads_a_neighbour_leaks(kernel: Kernel) -> None:
    found = Asked(CENTER_CONTRACT, kernel, case_of(CENTER_CONTRACT, SMALL, "plain")).map()
    assert leaks(found["x"])
    assert not leaks(found["offset"])


def test_a_kernel_that_rounds_anew_each_time_leaks_nothing() -> None:
    torch.manual_seed(1)
    found = Asked(CENTER_CONTRACT, shaky, case_of(CENTER_CONTRACT, SMALL, "plain")).map()
    assert not any(map(leaks, found.values()))


def test_a_map_ends_with_the_inputs_it_has_finished() -> None:
    case = case_of(CENTER_CONTRACT, SMALL, "plain")
    whole = Asked(CENTER_CONTRACT, HONEST, case)
    everything = whole.map()
    short = Asked(CENTER_CONTRACT, HONEST, case, most=whole.calls - 1)
    assert short.map() == {"offset": everything["offset"]}
    assert Asked(CENTER_CONTRACT, HONEST, case, most=0).map() == {}


def test_a_draw_that_remembers_reaches_further() -> None:
    def far(regime: str) -> int:
        asked = Asked(KDA, HONEST, case_of(KDA, {"H": 2, "lengths": [128]}, regime))
        expected = asked.expected(asked.case, runs=NOISY_RUNS)
        return reach(KDA.contract, asked.case, expected, lambda changed: asked.expected(changed).exact, ROOT)

    assert far("slow") > far("fast") > 0


def paired(one: Outputs, other: Outputs) -> dict[str, tuple[Tensor, Tensor]]:
    return {name: (held, other[name]) for name, held in one.items()}


def leaked(kernel: Kernel, case: Case, after: Case) -> Counterexample | None:
    asked = Asked(CENTER_CONTRACT, kernel, case)
    (exact, given), (wanted, changed) = asked(case) or ({}, {}), asked(after) or ({}, {})
    units = asked.expected(case, runs=NOISY_RUNS).units
    return leak(CENTER_CONTRACT.contract, paired(exact, wanted), paired(given, changed), units, setting_of(case))


NO_OFFSET = frozenset({"offset"})


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("kernel", [next_sequence, next_head])
def test_a_change_that_reaches_another_head_or_sequence_is_refused(kernel: Kernel, number: int) -> None:
    case = case_of(CENTER_CONTRACT, {"H": 3, "lengths": [40, 40, 40, 40]}, "plain", absent=NO_OFFSET)
    after = perturbed(CENTER_CONTRACT.contract, case, ROOT.child("leak", number))
    example = leaked(kernel, case, after)
    assert example is not None
    assert (example.statistic, example.output) == ("leak", "y")
    # Where it is shown, the oracle moves nothing.
    where = cut_of(CENTER_CONTRACT, "x", case.axes)
    differs = changes(CENTER_CONTRACT.contract, case, after, "x").any(axis=-1)
    token, head, _ = example.index
    own = where.sequence.ravel() == where.sequence.ravel()[token]
    assert not differs[own, head].any()


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("absent", [frozenset(), NO_OFFSET])
@pytest.mark.parametrize("kernel", [HONEST, shaky])
def test_honest_kernels_also_those_that_round_anew_leak_nothing(
    kernel: Kernel, absent: frozenset[str], number: int
) -> None:
    torch.manual_seed(number)
    case = case_of(CENTER_CONTRACT, {"H": 3, "lengths": [40, 0, 40, 1]}, "shifted", absent=absent)
    assert leaked(kernel, case, perturbed(CENTER_CONTRACT.contract, case, ROOT.child("still", number))) is None


def test_a_value_of_another_class_where_nothing_moves_is_a_leak() -> None:
    case = case_of(CENTER_CONTRACT, {"H": 3, "lengths": [40, 40]}, "plain", absent=NO_OFFSET)
    after, calls = perturbed(CENTER_CONTRACT.contract, case, ROOT.child("class")), list[int]()

    def infinite(x, offset, scale, cu_seqlens, y):
        HONEST(x, offset, scale, cu_seqlens, y)
        calls.append(1)
        if len(calls) > 1:
            y[0, :, 0] = y[79, :, 0] = torch.inf

    example = leaked(infinite, case, after)
    assert example is not None
    assert (example.statistic, example.candidate, example.error_units) == ("leak", "inf", None)


def test_without_groups_each_row_stands_for_itself() -> None:
    case = case_of(RMSNORM, {"B": 9, "H": 64}, "gaussian")
    after = perturbed(RMSNORM.contract, case, ROOT.child("rows"))
    honest = load_kernel(CONTRACTS / "rmsnorm" / "faithful" / "row_blocks.py")

    def found(kernel: Kernel) -> Counterexample | None:
        asked = Asked(RMSNORM, kernel, case)
        (exact, given), (wanted, changed) = asked(case) or ({}, {}), asked(after) or ({}, {})
        units = asked.expected(case, runs=NOISY_RUNS).units
        return leak(RMSNORM.contract, paired(exact, wanted), paired(given, changed), units, setting_of(case))

    def neighbour(hidden_states, weight, output):
        honest(hidden_states, weight, output)
        output += 0.1 * hidden_states.roll(1, dims=0)

    assert found(honest) is None
    example = found(neighbour)
    assert example is not None
    assert not changes(RMSNORM.contract, case, after, "hidden_states").any(axis=1)[example.index[0]]
