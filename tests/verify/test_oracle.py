"""The oracle's units, and the common ground of oracles: packed sequences in chunks."""

import pytest
import torch

from bot.contract.load import load_contract
from bot.verify.cases import cell_recipe, make_case
from bot.verify.ground import chunks
from bot.verify.oracle import NOISY_RUNS, Expected, expect, load_oracle
from bot.verify.philox import Stream
from tests.contracts.judging import CONTRACTS
from tests.verify.conftest import CENTER

ROOT = Stream.from_salt(b"\x07" * 32, "oracle")


@pytest.mark.parametrize(("folder", "name"), [(CENTER.parent, "center"), (CONTRACTS, "kda_prefill")])
@pytest.mark.parametrize("fewer", [1, 3])
def test_more_runs_are_the_same_as_all_at_once(folder, name, fewer):
    loaded = load_contract(folder, name)
    contract, oracle = loaded.contract, load_oracle(loaded.folder)
    workload = next(w for w in contract.workloads if "cpu" in w.device)
    case = make_case(contract, cell_recipe(contract, workload, next(iter(contract.regimes))), ROOT, static=ROOT)
    whole, rough = (expect(contract, oracle, case, ROOT.child("noise"), runs=n) for n in (NOISY_RUNS, fewer))
    before = {output: square.clone() for output, square in rough.squares.items()}
    more = expect(contract, oracle, case, ROOT.child("noise"), known=rough)
    assert (rough.runs, more.runs, whole.runs) == (fewer, NOISY_RUNS, NOISY_RUNS)
    for output in contract.outputs:
        assert torch.equal(more.units[output], whole.units[output])
        assert torch.equal(more.exact[output], whole.exact[output])
        assert torch.equal(rough.squares[output], before[output])


def test_units_of_quiet_runs_are_final(monkeypatch):
    loaded = load_contract(CENTER.parent, "center")
    workload = next(w for w in loaded.contract.workloads if "cpu" in w.device)
    recipe = cell_recipe(loaded.contract, workload, next(iter(loaded.contract.regimes)))
    case = make_case(loaded.contract, recipe, ROOT, static=ROOT)
    asked = []

    def exact(*, noise, **inputs):
        """No operand is rounded: nothing moves from run to run."""
        asked.append(noise)
        return load_oracle(loaded.folder)(**inputs, noise=lambda x: x)

    found = expect(loaded.contract, exact, case, ROOT)
    assert isinstance(found, Expected)
    assert (len(asked), found.runs) == (1 + 3, NOISY_RUNS)


LENGTHS = [[0], [1], [5], [0, 0], [4, 4], [0, 9, 1, 0, 4, 13], [3] * 7]


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("size", [1, 4, 32])
def test_what_is_cut_in_chunks_joins_again(lengths, size):
    starts = torch.tensor([0, *lengths]).cumsum(0)
    tokens = int(starts[-1])
    packed = chunks(starts, size)
    assert packed.rows.shape == (sum(-(-n // size) for n in lengths), size)
    assert len(packed.steps) == max(-(-n // size) for n in lengths)
    assert [lengths[n] for n in packed.order] == sorted(lengths, reverse=True)
    if not packed.steps:
        return
    values = torch.arange(tokens * 6, dtype=torch.float64).view(tokens, 2, 3) + 1
    cut = packed.cut(values)
    assert cut.shape == (len(packed.rows), 2, size, 3)
    assert float(cut.sum()) == float(values.sum())
    assert torch.equal(packed.join([cut[first:last] for first, last in packed.steps]), values)


def test_a_step_holds_the_next_chunk_of_each_sequence_that_has_one():
    packed = chunks(torch.tensor([0, 2, 9, 9, 14]), 4)
    assert packed.order.tolist() == [1, 3, 0, 2]
    assert packed.steps == [(0, 3), (3, 5)]
    past = 14
    assert packed.rows.tolist() == [
        [2, 3, 4, 5],
        [9, 10, 11, 12],
        [0, 1, past, past],
        [6, 7, 8, past],
        [13, past, past, past],
    ]
