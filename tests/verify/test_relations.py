# ruff: noqa: N803, PLR0917 - kernels have the arguments of their contract
"""One question put in two ways: honest kernels answer both alike, cheats that the oracle's lengths do not show do not.

Kernels run in process: `call` is a worker without a sandbox.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from bot.contract.load import LoadedContract, load_contract
from bot.contract.schema import Contract, HiddenInt, HiddenLengths, Relation, TensorInput, TotalAxis, axis_of
from bot.errors import DataError
from bot.evaluation import Counterexample
from bot.verify.calls import Answered, Failure
from bot.verify.cases import Case, cell_recipe, make_case
from bot.verify.compare import Setting, noise_level
from bot.verify.counterexample import array_of
from bot.verify.oracle import TORCH, expect, load_oracle, tensor_of
from bot.verify.pairs import RELATION_SLACK, apart
from bot.verify.philox import Stream
from bot.verify.relations import POWERS, Compared, put_twice, whole_of
from tests.contracts.judging import CONTRACTS, Kernel, load_kernel
from tests.verify.conftest import CENTER

LOADED = {
    "center": load_contract(CENTER.parent, "center"),
    "kda_prefill": load_contract(CONTRACTS, "kda_prefill"),
    "rmsnorm": load_contract(CONTRACTS, "rmsnorm"),
}
KDA_HONEST = load_kernel(CONTRACTS / "kda_prefill" / "faithful" / "chunked_bf16_c64.py")
CENTER_HONEST = load_kernel(CENTER / "faithful" / "float32.py")
SALTS = (1, 2, 3)
MANY = range(10, 16)
LEVELS: dict[tuple[str, str], dict[str, float]] = {}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@dataclass
class Call:
    """Runs a kernel on a case as a worker would; keeps what it was asked and what came of it."""

    contract: Contract
    kernel: Kernel
    asked: dict[str, Case] = field(default_factory=dict)
    answers: dict[str, Answered] = field(default_factory=dict)

    def __call__(self, case: Case, way: str) -> Answered | Failure:
        assert way not in self.asked
        self.asked[way] = case
        inputs = []
        for name, spec in self.contract.inputs.items():
            held = case.inputs[name]
            if isinstance(spec, TensorInput) and isinstance(held, np.ndarray):
                assert held.shape == self.contract.shape(spec, case.axes), f"{name} in {way}"
                inputs.append(tensor_of(held, spec.dtype).clone())
            else:
                inputs.append(held)  # type: ignore[arg-type]
        outputs = {
            name: torch.full(self.contract.shape(spec, case.axes), float("nan"), dtype=TORCH[spec.dtype])
            for name, spec in self.contract.outputs.items()
        }
        self.kernel(*inputs, *outputs.values())
        self.answers[way] = Answered(1, 1, {name: array_of(value) for name, value in outputs.items()})
        return self.answers[way]


def stream(salt: int) -> Stream:
    return Stream.from_salt(bytes([salt]) * 32, "relation")


def relation_of(op: str, name: str) -> Relation:
    return next(r for r in LOADED[op].contract.relations if r.name == name)


def level_of(loaded: LoadedContract, regime: str) -> dict[str, float]:
    """As an exam: the largest level of the checked draws of the regime's cells."""
    contract, key = loaded.contract, (loaded.contract.name, regime)
    if key not in LEVELS:
        found: dict[str, float] = {}
        for workload in (w for w in contract.workloads if "cpu" in w.device):
            own = stream(9).child(workload.name)
            case = make_case(contract, cell_recipe(contract, workload, regime), own, static=own.child("static"))
            expected = expect(contract, load_oracle(loaded.folder), case, own.child("oracle"))
            for name, level in noise_level(contract, expected).items():
                found[name] = max(level, found.get(name, 0.0))
        LEVELS[key] = found
    return LEVELS[key]


def told_apart(op: str, relation: Relation, kernel: Kernel, salt: int) -> tuple[Compared, Counterexample | None, Call]:
    """What an exam would make of a kernel."""
    contract, call = LOADED[op].contract, Call(LOADED[op].contract, kernel)
    compared = put_twice(contract, relation, stream(salt), call)
    assert isinstance(compared, Compared)
    for name, spec in contract.outputs.items():
        shape = contract.shape(spec, compared.axes)
        assert [tuple(answer.shape) for answer in compared.answers[name]] == [shape, shape]
    setting = Setting(relation.name, compared.axes, contract.limits)
    example = apart(contract, compared.answers, level_of(LOADED[op], relation.regime), setting)
    if example is not None:
        one, other = compared.answers[example.output]
        assert example.statistic in {"relation", "class"}
        assert example.candidate == f"{float(other[tuple(example.index)]):.6g}"
        assert example.oracle == f"{float(one[tuple(example.index)]):.6g}"
    return compared, example, call


EVERY = [(op, r.name) for op, loaded in LOADED.items() for r in loaded.contract.relations if "cpu" in r.device]


def test_all_four_kinds_are_tried_here() -> None:
    assert {relation_of(op, name).kind for op, name in EVERY} == {"split", "alone", "permuted", "scaled"}
    assert {op for op, _ in EVERY} == set(LOADED)


@pytest.mark.parametrize("salt", SALTS)
@pytest.mark.parametrize(("op", "name"), EVERY)
def test_honest_kernels_answer_both_ways_alike(op: str, name: str, salt: int) -> None:
    folder = LOADED[op].folder / "faithful"
    # The rest of them are as exact as these, and slow.
    files = ["chunked_bf16_c64", "wy_tf32"] if op == "kda_prefill" else [path.stem for path in folder.glob("*.py")]
    for file in files:
        _, example, _ = told_apart(op, relation_of(op, name), load_kernel(folder / f"{file}.py"), salt)
        assert example is None, (file, example)


@pytest.mark.parametrize(("op", "name"), EVERY)
def test_the_level_of_noise_at_other_sizes_of_a_regime_is_within_the_slack(op: str, name: str) -> None:
    """What `RELATION_SLACK` says: limits are told by the level in cells, of other sizes than a relation's."""
    loaded, relation = LOADED[op], relation_of(op, name)
    cells = level_of(loaded, relation.regime)
    for salt in SALTS:
        case = whole_of(loaded.contract, relation, stream(salt))
        expected = expect(loaded.contract, load_oracle(loaded.folder), case, stream(salt).child("oracle"))
        for output, level in noise_level(loaded.contract, expected).items():
            assert 1 / RELATION_SLACK < level / cells[output] < RELATION_SLACK, (output, salt)


def forgets_after(limit: int) -> Kernel:
    """The state is dropped once, after so many tokens of a sequence: right for every length the oracle checks."""

    def run(q, k, v, g, beta, A_log, dt_bias, scale, lower_bound, initial_state, cu_seqlens, out, final_state):
        bounds, states = [0], []
        for n, (begin, end) in enumerate(pairwise(cu_seqlens.tolist())):
            states.append(torch.zeros_like(final_state[n]) if initial_state is None else initial_state[n])
            if end - begin > limit:
                bounds.append(begin + limit)
                states.append(torch.zeros_like(final_state[n]))
            bounds.append(end)
        finals = torch.empty(len(states), *final_state.shape[1:])
        rows = (q, k, v, g, beta, A_log, dt_bias, scale, lower_bound)
        KDA_HONEST(*rows, torch.stack(states), torch.tensor(bounds), out, finals)
        ends = [i for i, bound in enumerate(bounds[1:]) if bound in cu_seqlens[1:].tolist()]
        final_state.copy_(finals[ends])

    return run


@pytest.mark.parametrize("salt", SALTS)
def test_a_history_cut_beyond_the_oracles_lengths_is_seen_when_sequences_are_cut_in_two(salt: int) -> None:
    relation = relation_of("kda_prefill", "cut_in_two")
    compared, example, _ = told_apart("kda_prefill", relation, forgets_after(300), salt)
    assert any(length > 300 for length in compared.axes["lengths"])  # type: ignore[union-attr]
    assert example is not None
    assert example.error_units is not None
    assert example.limit_units is not None
    assert example.error_units > 2 * example.limit_units


def hands_on_states(q, k, v, g, beta, A_log, dt_bias, scale, lower_bound, initial_state, cu_seqlens, out, final_state):
    """Each packed sequence begins where the one before ended, on top of its own state."""
    before = torch.zeros_like(final_state[0])
    for n, (begin, end) in enumerate(pairwise(cu_seqlens.tolist())):
        tokens = (x[begin:end] for x in (q, k, v, g, beta))
        start = before if initial_state is None else initial_state[n] + before
        now = (start[None], torch.tensor([0, end - begin]), out[begin:end], final_state[n : n + 1])
        KDA_HONEST(*tokens, A_log, dt_bias, scale, lower_bound, *now)
        before = final_state[n]


@pytest.mark.parametrize("salt", MANY)
def test_a_kernel_that_reads_over_the_border_is_seen_when_a_sequence_is_alone(salt: int) -> None:
    relation = relation_of("kda_prefill", "alone")
    _, example, call = told_apart("kda_prefill", relation, hands_on_states, salt)
    whole = call.asked["whole"].inputs["initial_state"]
    assert isinstance(whole, np.ndarray)
    alone = [case.inputs["initial_state"] for way, case in call.asked.items() if way.endswith("alone")]
    numbers = [i for i, state in enumerate(whole) for one in alone if np.array_equal(state, one[0])]  # type: ignore[index]
    # The first has none before it.
    assert (example is not None) == (max(numbers) > 0)


@pytest.mark.parametrize("salt", range(20))
def test_a_sequence_of_one_token_is_not_the_only_one_that_is_alone(salt: int) -> None:
    """Of six in a hundred full exams it was, and its row was zeros however it was scaled."""

    def scaled_at_borders(x, offset, scale, cu_seqlens, y):
        CENTER_HONEST(x, offset, scale, cu_seqlens, y)
        for begin in sorted(set(cu_seqlens[1:-1].tolist())):
            if 0 < begin < len(x):
                y[begin - 1 : begin + 1] *= -4

    assert told_apart("center", relation_of("center", "alone"), scaled_at_borders, salt)[1] is not None


def mean_with_neighbours(x, offset, scale, cu_seqlens, y):
    """The mean of a row is taken with those of its neighbours in the packed tokens, over borders."""
    CENTER_HONEST(x, offset, scale, cu_seqlens, y)
    mean = x.float().mean(dim=-1, keepdim=True)
    edges = [b for b in cu_seqlens.tolist() if 0 < b < len(x)]
    for edge in edges:
        y[edge - 1] += (scale * (mean[edge - 1] - mean[edge - 1 : edge + 1].mean(dim=0)) + 4).bfloat16()


def test_in_the_small_contract_too() -> None:
    relation = relation_of("center", "alone")
    seen = [told_apart("center", relation, mean_with_neighbours, salt)[1] is not None for salt in MANY]
    # All but the last sequence have a border that the kernel looks over.
    assert sum(seen) >= 3


@pytest.mark.parametrize("salt", MANY)
def test_a_kernel_that_treats_heads_by_their_number_is_seen_when_they_change_places(salt: int) -> None:
    def numbered(*arguments):
        KDA_HONEST(*arguments)
        arguments[-2][:, 0] *= 1.25

    relation = relation_of("kda_prefill", "heads_permuted")
    _, example, call = told_apart("kda_prefill", relation, numbered, salt)
    one, other = (call.asked[way].inputs["dt_bias"] for way in ("whole", "permuted"))
    assert isinstance(one, np.ndarray)
    assert isinstance(other, np.ndarray)
    assert sorted(map(bytes, one)) == sorted(map(bytes, other))
    assert (example is not None) == (bytes(one[0]) != bytes(other[0]))


@pytest.mark.parametrize("salt", MANY)
def test_a_threshold_on_magnitudes_is_seen_when_values_are_scaled(salt: int) -> None:
    def clamped(q, k, v, *rest):
        KDA_HONEST(q, k, v.clamp(-1.0, 1.0), *rest)

    _, example, call = told_apart("kda_prefill", relation_of("kda_prefill", "values_scaled"), clamped, salt)
    assert example is not None
    (way,) = set(call.asked) - {"whole"}
    assert int(way.removeprefix("scaled by 2^")) in POWERS


def test_a_power_of_two_is_exact_and_leaves_what_does_not_scale_alone() -> None:
    relation = relation_of("kda_prefill", "values_scaled")
    for salt in SALTS:
        compared, _, call = told_apart("kda_prefill", relation, KDA_HONEST, salt)
        (way,) = set(call.asked) - {"whole"}
        factor = 2.0 ** int(way.removeprefix("scaled by 2^"))
        one, other = call.asked["whole"], call.asked[way]
        for name, dtype in (("v", "bfloat16"), ("initial_state", "float32")):
            was, now = (tensor_of(case.inputs[name], dtype).double() for case in (one, other))  # type: ignore[arg-type]
            assert torch.equal(was * factor, now)
        assert all(other.inputs[name] is one.inputs[name] for name in ("q", "k", "g", "beta", "A_log", "scale"))
        # The sums are scaled, too: nothing at all is rounded otherwise.
        assert all(torch.equal(a.double(), b.double()) for a, b in compared.answers.values())


def tiny(kind: str, total: int, count: int, **fields: object) -> Relation:
    axes = {"lengths": HiddenLengths(total=[total, total], count=[count, count]), "H": HiddenInt(choice=[2])}
    made = {"name": "tiny", "kind": kind, "breaks": "x", "device": ["cpu"], "regime": "slow", "axes": axes}
    return Relation.model_validate({**made, **fields})


CARRY = {"final_state": "initial_state"}


@pytest.mark.parametrize(("total", "count"), [(0, 1), (1, 1), (2, 1), (0, 3), (2, 3), (9, 4), (40, 7)])
def test_cuts_leave_empty_and_single_tokens_whole_and_halves_of_the_others(total: int, count: int) -> None:
    contract = LOADED["kda_prefill"].contract
    for salt in SALTS:
        relation = tiny("split", total, count, carry=CARRY)
        compared, example, call = told_apart("kda_prefill", relation, KDA_HONEST, salt)
        assert example is None
        whole, first, rest = (call.asked[way] for way in ("whole", "beginning", "rest"))
        lengths, firsts, rests = (np.array(case.axes["lengths"]) for case in (whole, first, rest))
        assert sum(lengths) == total
        assert (firsts + rests == lengths).all()
        assert (rests[lengths <= 1] == 0).all()
        assert (firsts[lengths > 1] >= 1).all()
        assert (rests[lengths > 1] >= 1).all()
        assert np.array_equal(rest.inputs["initial_state"], call.answers["beginning"].outputs["final_state"])  # type: ignore[arg-type]
        assert first.inputs["initial_state"] is whole.inputs["initial_state"]
        assert_pieces(contract, whole, first, rest)
        assert compared.axes == whole.axes


def assert_pieces(contract: Contract, whole: Case, first: Case, rest: Case) -> None:
    """Sequence by sequence the tokens of the two halves are those of the whole."""
    for name, spec in contract.inputs.items():
        if not (
            isinstance(spec, TensorInput) and isinstance(contract.axes.get(axis_of(spec.shape[0]) or ""), TotalAxis)
        ):
            continue
        parts = []
        for case in (whole, first, rest):
            held, bounds = case.inputs[name], case.inputs["cu_seqlens"]
            assert isinstance(held, np.ndarray)
            assert isinstance(bounds, np.ndarray)
            parts.append([held[a:b] for a, b in pairwise(bounds.tolist())])
        for held, one, other in zip(*parts, strict=True):
            assert np.array_equal(held, np.concatenate([one, other])), name


def test_places_of_cuts_differ_from_salt_to_salt() -> None:
    relation = tiny("split", 64, 1, carry=CARRY)
    calls = [told_apart("kda_prefill", relation, KDA_HONEST, salt)[2] for salt in MANY]
    assert len({str(call.asked["beginning"].axes["lengths"]) for call in calls}) >= 4


@pytest.mark.parametrize(("total", "count"), [(0, 1), (0, 4), (1, 3), (30, 6)])
def test_the_sequence_that_is_alone_has_tokens_where_any_has(total: int, count: int) -> None:
    for salt in SALTS:
        compared, example, call = told_apart("kda_prefill", tiny("alone", total, count), KDA_HONEST, salt)
        assert example is None
        lengths = compared.axes["lengths"]
        assert isinstance(lengths, list)
        assert (min(lengths) > 0) == (total > 0)
        assert len(call.asked["alone"].inputs["initial_state"]) == 1  # type: ignore[arg-type]


def test_an_input_that_is_absent_is_absent_in_each_way() -> None:
    contract = LOADED["center"].contract
    family = contract.regimes["plain"].model_copy(update={"absent": ["offset"]})
    contract = contract.model_copy(update={"regimes": {**contract.regimes, "plain": family}})
    for relation in contract.relations:
        call = Call(contract, CENTER_HONEST)
        plain = relation.model_copy(update={"regime": "plain"})
        assert isinstance(put_twice(contract, plain, stream(1), call), Compared)
        assert len(call.asked) >= 2
        assert {case.inputs["offset"] for case in call.asked.values()} == {None}


@pytest.mark.parametrize("broken", ["whole", "beginning", "rest"])
def test_a_failure_in_any_call_is_the_kernels_and_ends_the_question(broken: str) -> None:
    call, failure = Call(LOADED["kda_prefill"].contract, KDA_HONEST), Failure("timed_out", "did not answer")
    ways = []

    def failing(case: Case, way: str) -> Answered | Failure:
        ways.append(way)
        return failure if way == broken else call(case, way)

    relation = tiny("split", 9, 2, carry=CARRY)
    assert put_twice(LOADED["kda_prefill"].contract, relation, stream(1), failing) is failure
    assert ways[-1] == broken


AXES = "H: {choice: [2]}, lengths: {total: [9, 9], count: [2, 3]}"


def entry(kind: str, more: str = "", axes: str = AXES, regime: str = "plain", name: str = "new") -> str:
    head = f"name: {name}, kind: {kind}, breaks: x, device: [cpu], regime: {regime}"
    return f"  - {{{head}, axes: {{{axes}}}{more}}}\n"


MISTAKES = {
    "an unknown kind": (entry("halved"), "relations[3].kind", "Input should be 'split', 'alone'"),
    "no regime": (entry("alone", regime="plane"), "relations[3].regime", "no regime 'plane'"),
    "nothing handed over": (entry("split"), "relations[3].carry", "which output of the first part"),
    "an output that is none": (entry("split", ", carry: {z: x}"), "relations[3].carry.z", "from an output to"),
    "handed to a number": (entry("split", ", carry: {y: scale}"), "relations[3].carry.y", "from an output to"),
    "of another shape": (entry("split", ", carry: {y: offset}"), "relations[3].carry.y", "differ in shape"),
    "no axis to permute": (entry("permuted"), "relations[3].axis", "wants an axis with min and max"),
    "tokens permuted": (entry("permuted", ", axis: T"), "relations[3].axis", "wants an axis with min and max"),
    "a constant permuted": (entry("permuted", ", axis: D"), "relations[3].axis", "wants an axis with min and max"),
    "no output scaled": (entry("scaled", ", powers: {x: 1}"), "relations[3].powers", "says how each output scales"),
    "a number scaled": (
        entry("scaled", ", powers: {scale: 1, y: 1}"),
        "relations[3].powers.scale",
        "is neither an output nor a tensor that is new in every call",
    ),
    "offsets scaled": (entry("scaled", ", powers: {cu_seqlens: 1, y: 1}"), "relations[3].powers.cu_seqlens", "neither"),
    "a power that is none": (entry("scaled", ", powers: {y: half}"), "relations[3].powers.y", "valid integer"),
    "an axis left out": (entry("alone", axes="H: {choice: [2]}"), "relations[3].axes", "axis 'lengths' has no value"),
    "an axis that follows": (
        entry("alone", axes=f"{AXES}, T: {{choice: [9]}}"),
        "relations[3].axes.T",
        "not an axis that a workload sets",
    ),
    "a size outside": (
        entry("alone", axes=AXES.replace("[2]", "[2, 9]", 1)),
        "relations[3].axes.H.choice[1]",
        "9 is outside 1..8",
    ),
    "lengths reversed": (
        entry("alone", axes=AXES.replace("[2, 3]", "[3, 2]")),
        "relations[3].axes.lengths.count",
        "wants two",
    ),
    "two of a name": (entry("alone", name="alone"), "relations", "'alone' stands twice"),
}  # fmt: skip


def problems(contracts: Path, name: str = "center") -> list[tuple[str, str]]:
    try:
        load_contract(contracts, name)
    except DataError as error:
        return [(problem.path, problem.reason) for problem in error.problems]
    return []


@pytest.fixture
def contracts(tmp_path: Path) -> Path:
    for folder in (CENTER, CONTRACTS / "rmsnorm"):
        shutil.copytree(folder, tmp_path / folder.name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def add(contracts: Path, line: str, name: str = "center") -> None:
    path = contracts / name / "contract.yaml"
    text = path.read_text(encoding="utf-8")
    assert text.count("\nbaselines:\n") == 1
    path.write_text(text.replace("\nbaselines:\n", f"\n{line}baselines:\n"), encoding="utf-8")


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_a_relation_is_told_with_its_path(contracts: Path, name: str) -> None:
    line, path, reason = MISTAKES[name]
    add(contracts, line)
    told = problems(contracts)
    assert [found[0] for found in told] == [path], told
    assert reason in told[0][1]


@pytest.mark.parametrize(
    "line", [entry("alone"), entry("permuted", ", axis: H"), entry("scaled", ", powers: {x: 1, offset: 1, y: 1}"),
             entry("split", ", carry: {y: x}")]
)  # fmt: skip
def test_a_relation_without_mistakes_is_taken(contracts: Path, line: str) -> None:
    add(contracts, line)
    assert problems(contracts) == []


@pytest.mark.parametrize("kind", ["split", "alone"])
def test_what_needs_sequences_is_not_for_a_contract_without_them(contracts: Path, kind: str) -> None:
    axes = "B: {choice: [2]}, H: {choice: [8]}"
    add(contracts, entry(kind, axes=axes, regime="heavy"), "rmsnorm")
    assert ("relations[1].kind", "needs a ragged axis") in problems(contracts, "rmsnorm")


def test_broken_axes_are_not_blamed_on_a_relation(contracts: Path) -> None:
    add(contracts, entry("permuted", ", axis: H"))
    path = contracts / "center" / "contract.yaml"
    path.write_text(path.read_text(encoding="utf-8").replace("H: {min: 1, max: 8}", "H: {min: one}"), encoding="utf-8")
    assert {found[0].partition("[")[0].split(".")[0] for found in problems(contracts)} == {"axes"}
