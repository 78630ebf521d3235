"""The smallest counterexample: a piece of the first one, legal, still wrong, and small. Kernels run in process."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.contract.load import LoadedContract, load_contract
from bot.contract.schema import Contract, RaggedAxis, Sizes, TensorInput, VarAxis
from bot.evaluation import Counterexample, Smallest
from bot.verify.cases import Case, cell_recipe, make_case
from bot.verify.compare import MEDIAN_ROWS, Judgement
from bot.verify.draws import STORAGE
from bot.verify.oracle import expect, load_oracle, tensor_of
from bot.verify.philox import Stream
from bot.verify.shrink import MOST_TRIALS, Cut, Part, failing, holds, shrink, trial
from tests.contracts.judging import CONTRACTS, Drawn, Judge, Kernel, load_kernel
from tests.verify.conftest import CENTER

LONG = 1e9
"""A deadline that the clock of these tests never reaches."""
WRONG = Counterexample(
    where="here", axes={}, output="y", group="all", statistic="maximum", error_units=9.0, limit_units=1.0,
    index=[0, 0, 0], candidate="1", oracle="0",
)  # fmt: skip
ORDINARY: Sizes = {"H": 3, "lengths": [9, 0, 30, 17]}
HONEST = load_kernel(CENTER / "faithful" / "float32.py")


def still() -> float:
    return 0.0


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def center() -> LoadedContract:
    return load_contract(CENTER.parent, "center")


@pytest.fixture(scope="module")
def kda() -> Judge:
    return Judge(load_contract(CONTRACTS, "kda_prefill"), {})


@pytest.fixture(scope="module")
def rmsnorm() -> Judge:
    return Judge(load_contract(CONTRACTS, "rmsnorm"), {})


def drawn_case(loaded: LoadedContract, axes: Sizes) -> Case:
    """A plain draw at these axes; unlike a cell's, with its sequences in this order and without needles."""
    contract = loaded.contract
    workload = contract.anchor("cpu").model_copy(update={"axes": axes})
    recipe = replace(cell_recipe(contract, workload, "plain"), kind="hidden", name="here")
    stream = Stream.from_salt(b"\x03" * 32, str(axes))
    return make_case(contract, recipe, stream, static=stream.child("static"))


@dataclass
class Asker:
    """Judges a kernel in process as an exam would, and remembers what it was asked."""

    loaded: LoadedContract
    kernel: Kernel
    asked: list[Case] = field(default_factory=list)
    failed: list[Case] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.oracle = load_oracle(self.loaded.folder)

    def __call__(self, case: Case) -> Judgement | None:
        self.asked.append(case)
        expected = expect(self.loaded.contract, self.oracle, case, Stream.from_salt(b"\x04" * 32, "noise"))
        try:
            judgement = Drawn(self.loaded, case, expected).judgement(self.kernel)
        except (RuntimeError, IndexError):
            return None
        if judgement.counterexample is not None:
            self.failed.append(case)
        return judgement


def shrunk(loaded: LoadedContract, kernel: Kernel, case: Case) -> tuple[Smallest, Case]:
    """The smallest counterexample, after what holds for each: legal pieces of the first case, the answer repeatable."""
    first = Asker(loaded, kernel)(case)
    assert first is not None
    assert first.counterexample is not None
    ask = Asker(loaded, kernel)
    found = shrink(loaded.contract, case, first.counterexample, ask, LONG, clock=still)
    assert found is not None
    smallest, small = found
    assert ask.asked[0] is case
    assert any(small is failed for failed in ask.failed)
    assert smallest.tried == len(ask.asked) - 1 <= MOST_TRIALS
    again = Asker(loaded, kernel)(small)
    assert again is not None
    assert again.counterexample == smallest.counterexample
    for asked in ask.asked:
        assert_legal(loaded.contract, case, asked)
        assert extent(asked) <= extent(case)
    assert_truthful(loaded.contract, smallest, small)
    return smallest, small


def lengths_of(case: Case) -> list[int]:
    lengths = case.axes["lengths"]
    assert isinstance(lengths, list)
    return lengths


def extent(case: Case) -> int:
    return sum(held.size for held in case.inputs.values() if isinstance(held, np.ndarray))


def assert_legal(contract: Contract, first: Case, case: Case) -> None:
    assert set(case.axes) == set(first.axes)
    for name, axis in contract.axes.items():
        size, was = case.axes.get(name), first.axes.get(name)
        if isinstance(axis, RaggedAxis):
            assert isinstance(size, list)
            assert isinstance(was, list)
            assert 1 <= len(size) <= len(was)
            assert all(axis.min_length <= length <= max(was) for length in size)
        elif isinstance(axis, VarAxis):
            assert isinstance(size, int)
            assert isinstance(was, int)
            assert axis.min <= size <= was
    for name, spec in contract.inputs.items():
        held = case.inputs[name]
        if not isinstance(spec, TensorInput):
            assert held == first.inputs[name]
        elif held is None:
            assert spec.optional
        else:
            assert isinstance(held, np.ndarray)
            assert held.shape == contract.shape(spec, case.axes)
            assert held.dtype == STORAGE[spec.dtype]
            if spec.offsets_of is not None:
                lengths = case.axes[spec.offsets_of]
                assert isinstance(lengths, list)
                assert held.tolist() == [0, *np.cumsum(lengths).tolist()]


def assert_truthful(contract: Contract, smallest: Smallest, case: Case) -> None:
    tensors = {name: spec for name, spec in contract.inputs.items() if isinstance(spec, TensorInput)}
    assert list(smallest.inputs) == list(tensors)
    for name, told in smallest.inputs.items():
        held = case.inputs[name]
        if told == "absent":
            assert held is None
            continue
        assert isinstance(held, np.ndarray)
        values = tensor_of(held, tensors[name].dtype).double()
        if told in {"zeros", "ones"}:
            assert held.size > 0
            assert bool((values == {"zeros": 0.0, "ones": 1.0}[told]).all())


def rows_like(row: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """Where x holds exactly this row."""
    return lambda x: (x == row).all(dim=-1)


def x_of(case: Case) -> torch.Tensor:
    held = case.inputs["x"]
    assert isinstance(held, np.ndarray)
    return tensor_of(held, "bfloat16")


def test_an_honest_kernel_has_no_counterexample(center: LoadedContract) -> None:
    case = drawn_case(center, ORDINARY)
    ask = Asker(center, HONEST)
    assert shrink(center.contract, case, WRONG, ask, LONG, clock=still) is None
    assert len(ask.asked) == 1


def test_a_kernel_wrong_for_one_row_of_values_ends_at_that_row(center: LoadedContract) -> None:
    case = drawn_case(center, ORDINARY)
    bad = rows_like(x_of(case)[20, 1].clone())

    def kernel(x, offset, scale, cu_seqlens, y):
        HONEST(x, offset, scale, cu_seqlens, y)
        y[bad(x)] += 4

    smallest, small = shrunk(center, kernel, case)
    assert small.axes == {"H": 1, "lengths": [1]}
    assert smallest.inputs == {"x": "as drawn", "offset": "absent", "cu_seqlens": "as drawn"}
    assert torch.equal(x_of(small), x_of(case)[20:21, 1:2])


def test_the_failing_sequence_head_and_token_are_tried_first(center: LoadedContract) -> None:
    case = with_ids(center.contract, {"H": 5, "lengths": [90, 500, 30, 17]})
    ask = Puzzle(frozenset({300 * 5 + 3}), 1, 1, 1)
    assert shrink(center.contract, case, WRONG, ask, LONG, clock=still) is not None
    assert [asked.axes for asked in ask.asked[:4]] == [
        {"H": 5, "lengths": [90, 500, 30, 17]},
        {"H": 5, "lengths": [500]},
        {"H": 1, "lengths": [500]},
        {"H": 1, "lengths": [1]},
    ]
    assert len(ask.asked) < 15


def test_many_sequences_that_a_failure_needs_take_no_more_trials_than_one(center: LoadedContract) -> None:
    case = with_ids(center.contract, {"H": 1, "lengths": [60] * 24})
    ask = Puzzle(frozenset(), 24 * 20, 24, 1)
    found = shrink(center.contract, case, WRONG, ask, LONG, clock=still)
    assert found is not None
    assert found[1].axes == {"H": 1, "lengths": [20] * 24}
    accepted = [case.axes for case in ask.failed]
    assert accepted.index({"H": 1, "lengths": [20] * 24}) < 8


def test_a_kernel_wrong_in_one_channel_ends_at_zeros(center: LoadedContract) -> None:
    def kernel(x, offset, scale, cu_seqlens, y):
        HONEST(x, offset, scale, cu_seqlens, y)
        y[..., 5] += 4

    smallest, small = shrunk(center, kernel, drawn_case(center, ORDINARY))
    assert small.axes == {"H": 1, "lengths": [1]}
    assert smallest.inputs == {"x": "zeros", "offset": "absent", "cu_seqlens": "as drawn"}
    assert smallest.counterexample.index == [0, 0, 5]
    assert (smallest.counterexample.candidate, smallest.counterexample.oracle) == ("4", "0")


def test_a_kernel_that_doubles_is_not_shown_with_zeros(center: LoadedContract) -> None:
    def kernel(x, offset, scale, cu_seqlens, y):
        HONEST(x, offset, scale, cu_seqlens, y)
        y *= 2

    smallest, small = shrunk(center, kernel, drawn_case(center, ORDINARY))
    assert small.axes == {"H": 1, "lengths": [1]}
    # Without x an offset of one is left, and tells it as plainly.
    assert smallest.inputs in (
        {"x": "as drawn", "offset": "absent", "cu_seqlens": "as drawn"},
        {"x": "zeros", "offset": "ones", "cu_seqlens": "as drawn"},
    )


def test_a_kernel_wrong_at_the_third_head_keeps_three(center: LoadedContract) -> None:
    def kernel(x, offset, scale, cu_seqlens, y):
        HONEST(x, offset, scale, cu_seqlens, y)
        y[:, 2:3] += 4

    _, small = shrunk(center, kernel, drawn_case(center, {"H": 8, "lengths": [20, 30]}))
    assert small.axes == {"H": 3, "lengths": [1]}


def test_a_kernel_wrong_at_the_41st_packed_token_keeps_41(center: LoadedContract) -> None:
    def kernel(x, offset, scale, cu_seqlens, y):
        HONEST(x, offset, scale, cu_seqlens, y)
        y[40:41] += 4

    _, small = shrunk(center, kernel, drawn_case(center, {"H": 2, "lengths": [9, 0, 30, 17]}))
    assert small.axes["H"] == 1
    assert sum(lengths_of(small)) == 41


def test_a_failure_of_two_sequences_together_keeps_both(center: LoadedContract) -> None:
    case = drawn_case(center, {"H": 2, "lengths": [6, 9, 0, 12, 5, 7]})
    one, other = (rows_like(x_of(case)[token, 1].clone()) for token in (8, 30))

    def kernel(x, offset, scale, cu_seqlens, y):
        HONEST(x, offset, scale, cu_seqlens, y)
        if bool(one(x).any()) and bool(other(x).any()):
            y[one(x)] += 4

    _, small = shrunk(center, kernel, case)
    assert small.axes == {"H": 1, "lengths": [1, 1]}
    assert torch.equal(x_of(small), x_of(case)[[8, 30]][:, 1:2])


def test_a_failure_that_needs_many_sequences_shortens_them_together(center: LoadedContract) -> None:
    def kernel(x, offset, scale, cu_seqlens, y):
        HONEST(x, offset, scale, cu_seqlens, y)
        if bool((cu_seqlens.diff() >= 3).sum() >= 7):
            y += 4

    _, small = shrunk(center, kernel, drawn_case(center, {"H": 2, "lengths": [8, 9, 10, 8, 9, 10, 8, 9]}))
    assert small.axes == {"H": 1, "lengths": [3] * 7}


def test_a_failure_that_only_a_median_shows_keeps_rows_enough_for_one(center: LoadedContract) -> None:
    def kernel(x, offset, scale, cu_seqlens, y):
        HONEST(x, offset, scale, cu_seqlens, y)
        y *= 1.015

    smallest, small = shrunk(center, kernel, drawn_case(center, {"H": 4, "lengths": [50, 60]}))
    assert smallest.counterexample.statistic == "median"
    assert sum(lengths_of(small)) == MEDIAN_ROWS


def test_a_kernel_that_raises_on_small_inputs_keeps_large_ones(center: LoadedContract) -> None:
    def kernel(x, offset, scale, cu_seqlens, y):
        if len(x) < 24:
            raise RuntimeError("at least 24 tokens")
        HONEST(x, offset, scale, cu_seqlens, y)
        y += 4

    _, small = shrunk(center, kernel, drawn_case(center, ORDINARY))
    assert small.axes == {"H": 1, "lengths": [24]}


def test_values_that_leave_a_faint_difference_stay_as_drawn(center: LoadedContract) -> None:
    case = drawn_case(center, {"H": 1, "lengths": [1]})
    faint = WRONG.model_copy(update={"candidate": "1e-9"})

    def ask(asked: Case) -> Judgement:
        if lengths_of(asked) == [0]:
            return Judgement((), 0.5, None)
        return Judgement((), 9.0, WRONG if torch.equal(x_of(asked), x_of(case)) else faint)

    found = shrink(center.contract, case, WRONG, ask, LONG, clock=still)
    assert found is not None
    assert found[0].inputs == {"x": "as drawn", "offset": "absent", "cu_seqlens": "as drawn"}
    assert found[0].counterexample == WRONG


def test_a_difference_told_in_words_is_as_clear_as_any(center: LoadedContract) -> None:
    case = drawn_case(center, {"H": 1, "lengths": [1]})
    told = WRONG.model_copy(update={"candidate": "id 7", "oracle": "not eligible", "statistic": "set"})

    def ask(asked: Case) -> Judgement:
        return Judgement((), 9.0, told if lengths_of(asked) == [1] else None)

    found = shrink(center.contract, case, told, ask, LONG, clock=still)
    assert found is not None
    assert found[0].inputs == {"x": "zeros", "offset": "absent", "cu_seqlens": "as drawn"}


def test_a_failure_in_another_output_is_another_failure(kda: Judge) -> None:
    drawn = kda.cell("slow", {"lengths": [3], "H": 1})
    wrong = WRONG.model_copy(update={"output": "final_state"})
    other = Judgement((), 9.0, WRONG.model_copy(update={"output": "out"}))
    assert shrink(kda.loaded.contract, drawn.case, wrong, lambda _: other, LONG, clock=still) is None


def with_ids(contract: Contract, axes: Sizes) -> Case:
    """Every row of x holds its own number, so that what a cut keeps can be read off."""
    tokens, heads, width = contract.shape(contract.inputs["x"], axes)  # type: ignore[arg-type]
    ids = np.arange(tokens * heads, dtype="<u2").reshape(tokens, heads, 1).repeat(width, axis=2)
    lengths = axes["lengths"]
    assert isinstance(lengths, list)
    recipe = cell_recipe(contract, contract.workloads[0].model_copy(update={"axes": axes}), "plain")
    offset = np.arange(len(lengths), dtype="<f4")[:, None].repeat(width, axis=1) + 7
    offsets = np.cumsum([0, *lengths], dtype=np.int64)
    return Case(recipe, axes, {"x": ids, "offset": offset, "scale": 1.0, "cu_seqlens": offsets}, needles=False)


def rows_of(case: Case) -> list[list[int]]:
    """The numbers of the rows, token by token."""
    held = case.inputs["x"]
    assert isinstance(held, np.ndarray)
    return [[int(row[0]) for row in token] for token in held]


@dataclass
class Puzzle:
    """A made-up failure: these rows must be there, and the case must have at least these sizes."""

    rows: frozenset[int]
    tokens: int
    sequences: int
    heads: int
    asked: list[Case] = field(default_factory=list)
    failed: list[Case] = field(default_factory=list)

    def __call__(self, case: Case) -> Judgement:
        self.asked.append(case)
        found = [(t, h) for t, token in enumerate(rows_of(case)) for h, row in enumerate(token) if row in self.rows]
        fails = len(found) == len(self.rows) and sum(lengths_of(case)) >= self.tokens
        fails = fails and len(lengths_of(case)) >= self.sequences and case.axes["H"] >= self.heads  # type: ignore[operator]
        if not fails:
            return Judgement((), 0.5, None)
        self.failed.append(case)
        index = [*(found[0] if found else (0, 0)), 0]
        return Judgement((), 9.0, WRONG.model_copy(update={"index": index, "axes": case.axes}))


@st.composite
def puzzles(draw: st.DrawFn) -> tuple[Sizes, Puzzle]:
    lengths = draw(st.lists(st.integers(0, 12), min_size=1, max_size=6).filter(lambda found: sum(found) > 0))
    heads = draw(st.integers(1, 6))
    rows = draw(st.frozensets(st.integers(0, sum(lengths) * heads - 1), max_size=3))
    easy = draw(st.booleans())
    tokens, sequences, least_heads = (
        1 if easy else draw(st.integers(1, size)) for size in (sum(lengths), len(lengths), heads)
    )
    return {"H": heads, "lengths": lengths}, Puzzle(rows, tokens, sequences, least_heads)


def pieces(first: Case, case: Case) -> list[list[int]]:
    """The tokens of the first case that each sequence of a piece of it holds, checked to be a piece."""
    heads = first.axes["H"]
    assert isinstance(heads, int)
    ends = np.cumsum(lengths_of(first)).tolist()
    flat = rows_of(case)
    kept_heads = [row % heads for row in flat[0]] if flat else []
    assert kept_heads == sorted(set(kept_heads))
    assert all([row % heads for row in token] == kept_heads for token in flat)
    assert all(len({row // heads for row in token}) == 1 for token in flat)
    offset, start, found, last = case.inputs["offset"], 0, [], -1
    for number, length in enumerate(lengths_of(case)):
        tokens = [token[0] // heads for token in flat[start : start + length]]
        start += length
        found.append(tokens)
        if tokens:
            assert tokens == list(range(tokens[0], tokens[-1] + 1))
            sequence = int(np.searchsorted(ends, tokens[0], side="right"))
            assert sequence == int(np.searchsorted(ends, tokens[-1], side="right")) > last
            last = sequence
            if isinstance(offset, np.ndarray) and offset[number, 0] > 1:
                assert offset[number, 0] == sequence + 7
    return found


def told_apart(contract: Contract, case: Case) -> bool:
    """Whether two different cuts of this kind hold different numbers."""
    specs = [contract.inputs[name] for name in ("x", "offset")]
    states = [holds(spec, case.inputs[spec_name]) for spec, spec_name in zip(specs, ("x", "offset"), strict=True)]  # type: ignore[arg-type]
    return states == ["as drawn", "as drawn"] and rows_of(case) != []


@settings(max_examples=100, deadline=None)
@given(puzzles(), st.integers(0, 3), st.integers(1, 3))
def test_a_smallest_case_is_a_legal_piece_that_still_fails(
    center: LoadedContract, given_: tuple[Sizes, Puzzle], least_length: int, least_heads: int
) -> None:
    axes, ask = given_
    lengths, heads = axes["lengths"], axes["H"]
    assert isinstance(lengths, list)
    assert isinstance(heads, int)
    domain = {
        "lengths": RaggedAxis(ragged=True, min_length=min(least_length, *lengths), max_length=12),
        "H": VarAxis(min=min(least_heads, heads), max=6),
    }
    contract = center.contract.model_copy(update={"axes": {**center.contract.axes, **domain}})
    case = with_ids(contract, axes)
    bits = {name: held.tobytes() for name, held in case.inputs.items() if isinstance(held, np.ndarray)}
    found = shrink(contract, case, WRONG, ask, LONG, clock=still)
    assert found is not None
    smallest, small = found
    assert small is ask.failed[-1]
    assert smallest.counterexample.axes == small.axes
    assert smallest.tried == len(ask.asked) - 1 <= MOST_TRIALS
    assert all(held.tobytes() == bits[name] for name, held in case.inputs.items() if isinstance(held, np.ndarray))
    drawn = [asked for asked in ask.asked if told_apart(contract, asked)]
    assert len({tuple(map(repr, (asked.axes, rows_of(asked), asked.inputs["offset"]))) for asked in drawn}) == len(
        drawn
    )
    for asked in ask.asked:
        assert_legal(contract, case, asked)
        if holds(contract.inputs["x"], asked.inputs["x"]) == "as drawn":  # type: ignore[arg-type]
            pieces(case, asked)
    assert all(extent(after) <= extent(before) for before, after in pairwise(ask.failed))
    assert_truthful(contract, smallest, small)
    again = Puzzle(ask.rows, ask.tokens, ask.sequences, ask.heads)
    assert shrink(contract, case, WRONG, again, LONG, clock=still) is not None
    assert [asked.axes for asked in again.asked] == [asked.axes for asked in ask.asked]


@settings(max_examples=100, deadline=None)
@given(puzzles())
def test_sizes_end_as_small_as_the_failure_allows(center: LoadedContract, given_: tuple[Sizes, Puzzle]) -> None:
    (axes, ask), contract = given_, center.contract
    case = with_ids(contract, axes)
    heads = axes["H"]
    assert isinstance(heads, int)
    found = shrink(contract, case, WRONG, ask, LONG, clock=still)
    assert found is not None
    small = found[1]
    assert small.axes["H"] == max(ask.heads, len({row % heads for row in ask.rows}))
    ends = np.cumsum(lengths_of(case)).tolist()
    sequences: dict[int, list[int]] = {}
    for token in sorted(row // heads for row in ask.rows):
        sequences.setdefault(int(np.searchsorted(ends, token, side="right")), []).append(token)
    needed = sum(tokens[-1] - tokens[0] + 1 for tokens in sequences.values())
    assert len(lengths_of(small)) >= max(ask.sequences, len(sequences), 1)
    assert sum(lengths_of(small)) == max(needed, ask.tokens)
    if ask.tokens == 1:
        assert len(lengths_of(small)) == max(ask.sequences, len(sequences), 1)


@pytest.mark.parametrize("allowed", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 20.0])
def test_it_ends_in_time_with_the_best_so_far(center: LoadedContract, allowed: float) -> None:
    case = with_ids(center.contract, {"H": 6, "lengths": [40, 3, 70, 20]})
    puzzle, now, late = Puzzle(frozenset({50 * 6 + 4, 66 * 6 + 2}), 1, 1, 1), 100.0, 0

    def ask(asked: Case) -> Judgement:
        nonlocal now, late
        late += now >= 100.0 + allowed
        now += extent(asked) / extent(case)
        return puzzle(asked)

    found = shrink(center.contract, case, WRONG, ask, 100.0 + allowed, clock=lambda: now)
    assert late == 0
    # Only of the first question nobody knows how long it takes.
    assert now <= 100.0 + max(allowed, 1.0)
    if allowed == 0.0:
        assert found is None
    else:
        assert found is not None
        assert found[1] is puzzle.failed[-1]
    if allowed <= 1.0:
        assert found is None or found[0].tried == 0
    if allowed == 20.0:
        assert found is not None
        assert found[1].axes == {"H": 2, "lengths": [17]}


def test_what_lies_beyond_an_axis_stays(center: LoadedContract) -> None:
    tables = {
        "table": TensorInput(shape=["N+1"], dtype="int32"),
        "edges": TensorInput(shape=["D", "H+2"], dtype="float32", lifetime="static"),
        "places": TensorInput(shape=[3, "T"], dtype="int32"),
    }
    contract = center.contract.model_copy(update={"inputs": {**center.contract.inputs, **tables}})
    case = with_ids(contract, {"H": 3, "lengths": [2, 5, 1]})
    case.inputs["table"] = np.array([10, 11, 12, 13], dtype="<i4")
    case.inputs["edges"] = np.arange(64 * 5, dtype="<f4").reshape(64, 5)
    case.inputs["places"] = np.arange(24, dtype="<i4").reshape(3, 8)
    cut = Cut({"lengths": (Part(1, range(4, 7)), Part(2, range(7, 7))), "H": (0, 2)}, {"edges": "ones"})
    small = trial(contract, case, cut)
    assert small.axes == {"H": 2, "lengths": [3, 0]}
    assert small.inputs["table"].tolist() == [11, 12, 13]  # type: ignore[union-attr]
    assert small.inputs["places"].tolist() == [[4, 5, 6], [12, 13, 14], [20, 21, 22]]  # type: ignore[union-attr]
    assert np.array_equal(small.inputs["edges"], np.ones((64, 4), dtype="<f4"))  # type: ignore[arg-type]
    assert small.inputs["cu_seqlens"].tolist() == [0, 3, 3]  # type: ignore[union-attr]
    assert rows_of(small) == [[12, 14], [15, 17], [18, 20]]
    taken = trial(contract, case, Cut(cut.kept)).inputs["edges"]
    assert taken[0].tolist() == [0, 2, 3, 4]  # type: ignore[index]


@pytest.mark.parametrize("group", ["H=1, sequence 2", "sequence 2, H=1"])
def test_where_a_counterexample_lies_is_read_from_group_and_index(center: LoadedContract, group: str) -> None:
    axes: Sizes = {"H": 2, "lengths": [4, 0, 5]}
    named = WRONG.model_copy(update={"group": group, "index": []})
    assert failing(center.contract, axes, named) == {"H": 1, "lengths": 2}
    placed = WRONG.model_copy(update={"group": "all", "index": [4, 1, 63]})
    assert failing(center.contract, axes, placed) == {"H": 1, "T": 4, "lengths": 2}


FOLDER = CONTRACTS / "kda_prefill"
KDA_AXES: Sizes = {"lengths": [20, 0, 45], "H": 2}


@pytest.mark.parametrize(
    ("control", "lengths"),
    [("initial_state_ignored", [0]), ("history_cut_32", [33]), ("solve_skipped", [2])],
)
def test_controls_of_kda_end_where_they_begin_to_cheat(kda: Judge, control: str, lengths: list[int]) -> None:
    drawn = kda.cell("slow", KDA_AXES)
    smallest, small = shrunk(kda.loaded, load_kernel(FOLDER / f"controls/{control}.py"), drawn.case)
    assert small.axes == {"lengths": lengths, "H": 1}
    assert smallest.inputs["initial_state"] == "ones"
    # What is refused must not be a place where honest kernels err as well.
    honest = Asker(kda.loaded, load_kernel(FOLDER / "faithful/chunked_bf16_c64.py"))(small)
    assert honest is not None
    assert honest.margin <= 1


def test_sizes_without_sequences_shrink_too(rmsnorm: Judge) -> None:
    drawn = rmsnorm.cell("gaussian", {"B": 37, "H": 129})
    folder = rmsnorm.loaded.folder
    smallest, small = shrunk(rmsnorm.loaded, load_kernel(folder / "controls/tail_columns_dropped.py"), drawn.case)
    assert small.axes == {"B": 1, "H": 1}
    assert smallest.inputs == {"hidden_states": "ones", "weight": "ones"}
    _, small = shrunk(rmsnorm.loaded, load_kernel(folder / "controls/norm_of_row_blocks.py"), drawn.case)
    assert small.axes == {"B": 2, "H": 1}
