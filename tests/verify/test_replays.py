"""A call captured as a graph (bot/verify/stages/replays.py): told where it can be, nothing lost where it cannot."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from bot.contract.load import load_contract
from bot.verify.calls import Answered, Failure, Worker
from bot.verify.cases import Case, cell_recipe, make_case
from bot.verify.philox import Stream
from bot.verify.protocol import CLAIMS, Replayed, pack, parse
from bot.verify.stages.replays import REPLAYS, replayed
from bot.verify.start import start_worker, turn_on

ROOT = Path(__file__).parents[2]
CONTRACT = load_contract(ROOT / "contracts", "rmsnorm").contract
STREAM = Stream.from_salt(bytes(32), "replays")
ROW = (ROOT / "kernels" / "rmsnorm" / "triton_row.py").read_text(encoding="utf-8")
PLAIN = """import torch

def run(hidden_states, weight, output):
    output.copy_(torch.nn.functional.rms_norm(hidden_states.float(), weight.shape, weight.float(), 1e-6))
"""
READS = PLAIN + "    output.float().sum().item()\n"


def case() -> Case:
    """The least cell there is, on the host."""
    workload = min((w for w in CONTRACT.workloads), key=lambda w: w.axes["B"])
    return make_case(CONTRACT, cell_recipe(CONTRACT, workload, "gaussian"), STREAM, static=STREAM)


@pytest.mark.sandbox
def test_where_nothing_can_be_captured_nothing_is_told_and_the_worker_goes_on() -> None:
    with start_worker(CONTRACT, "cpu", "bubblewrap") as worker:
        assert worker.load(PLAIN) is None
        assert replayed(worker, [("one", case()), ("two", case())], STREAM) == {}
        assert isinstance(worker.run(case(), STREAM), Answered)


@pytest.mark.parametrize("ns", ["-1", "1e300", "NaN", '"5"', str(2**60)])
def test_a_time_that_is_none_is_not_taken(ns: str) -> None:
    with pytest.raises((ValidationError, ValueError)):
        CLAIMS.validate_python(parse(b'{"op":"replayed","ns":' + ns.encode() + b"}"))
    assert CLAIMS.validate_python(parse(pack(Replayed(ns=5)))) == Replayed(ns=5)


@pytest.fixture
def gpu_worker() -> Iterator[Worker]:
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    with turn_on("cuda", print), start_worker(CONTRACT, "cuda", "bubblewrap") as worker:
        yield worker


@pytest.mark.gpu
@pytest.mark.sandbox
def test_a_replay_takes_less_than_a_call_on_our_clock(gpu_worker: Worker) -> None:
    assert gpu_worker.load(ROW) is None
    whole = gpu_worker.run(case(), STREAM)
    assert isinstance(whole, Answered)
    found = replayed(gpu_worker, [("one", case()), ("two", case())], STREAM)
    assert set(found) == {"one", "two"}
    assert all(0 < ns < whole.envelope_ns for ns in found.values())


@pytest.mark.gpu
@pytest.mark.sandbox
def test_what_reads_a_number_back_cannot_be_captured(gpu_worker: Worker) -> None:
    assert gpu_worker.load(READS) is None
    slot = gpu_worker.bind(case().axes, frozenset())
    assert not isinstance(slot, Failure)
    assert isinstance(gpu_worker.call(slot, case(), STREAM), Answered)
    assert isinstance(gpu_worker.replay(slot, REPLAYS), Failure)
