"""Kernels that hang a GPU, break their context or take all memory: each is refused by name, and the verifier goes on.

The exams are held in this process, which is the verifier: what it must survive, it survives here.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bot.contract.load import load_contract
from bot.errors import InfrastructureError
from bot.evaluation import Evaluation, Job
from bot.verdict import decide
from bot.verify import conduct
from bot.verify.buffers import Slot
from bot.verify.calls import Answered, Failure, Worker
from bot.verify.cases import Case, cell_recipe, make_case
from bot.verify.philox import Stream
from bot.verify.start import start_worker, turn_on

cuda = pytest.importorskip("bot.verify.device.cuda", reason="needs the extra [gpu]")
gpu_calls = pytest.importorskip("bot.verify.gpu_calls", reason="needs the extra [gpu]")
driver = pytest.importorskip("cuda.bindings.driver", reason="needs the extra [gpu]")

ROOT = Path(__file__).parents[2]
CONTRACTS = ROOT / "contracts"
STREAM = Stream.from_salt(b"bad")
PATIENCE = 10.0
"""Seconds that a call may take here: a first one compiles for two or three."""
SOON = 3.0

HONEST = (ROOT / "kernels" / "rmsnorm" / "triton_row.py").read_text(encoding="utf-8")
HEAD = """
import torch
import triton
import triton.language as tl
from cuda.bindings import driver


@triton.jit
def wait(flag):
    while tl.load(flag, volatile=True) == 0:
        pass


@triton.jit
def poke(address):
    tl.store(address.to(tl.pointer_type(tl.int32)), 7)


def unmapped():
    '''An address that is reserved, so that nothing else lies there, and has no memory.'''
    status, address = driver.cuMemAddressReserve(2 << 20, 0, 0, 0)
    assert status == driver.CUresult.CUDA_SUCCESS
    return int(address)


def honest(hidden_states, weight, output):
    rows = hidden_states.float()
    output.copy_(rows * torch.rsqrt((rows * rows).mean(-1, keepdim=True) + 1e-6) * weight.float())


calls = 0


def run(hidden_states, weight, output):
    global calls
    calls += 1
"""
HANGS = HEAD + "    wait[(1,)](torch.zeros(1, dtype=torch.int32, device=output.device))\n"
FAULTS = HEAD + "    honest(hidden_states, weight, output)\n    poke[(1,)](unmapped())\n"
TAKES_ALL = HEAD + (
    "    held = []\n    while True:\n"
    "        held.append(torch.empty(1 << 30, dtype=torch.uint8, device=output.device))\n"
)
HANGS_LATER = HEAD + (
    "    honest(hidden_states, weight, output)\n"
    "    wait[(1,)](torch.full((1,), int(calls < 2), dtype=torch.int32, device=output.device))\n"
)
FAULTS_LATER = HEAD + (
    "    honest(hidden_states, weight, output)\n"
    "    poke[(1,)](torch.empty(64, dtype=torch.int32, device=output.device).data_ptr() if calls < 2 else unmapped())\n"
)
BAD = {
    "hangs the device": (HANGS, "timed_out", f"did not answer within {PATIENCE:.0f} s"),
    "breaks its context": (FAULTS, "incorrect", "illegal memory access"),
    "takes all memory": (TAKES_ALL, "incorrect", "OutOfMemoryError: CUDA out of memory"),
}


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A verifier takes one processor and one thread for good, and is more patient."""
    monkeypatch.setattr(gpu_calls.GpuWorker, "call_seconds", PATIENCE)
    own, threads = os.sched_getaffinity(0), torch.get_num_threads()
    yield
    os.sched_setaffinity(0, own)
    torch.set_num_threads(threads)


@pytest.fixture
def device() -> Iterator[None]:
    """Held, as by whoever examines."""
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    with turn_on("cuda", lambda _: None):
        yield


def started() -> Any:
    return start_worker(load_contract(CONTRACTS, "rmsnorm").contract, "cuda", "bubblewrap")


def examined(source: str) -> Evaluation:
    loaded = load_contract(CONTRACTS, "rmsnorm")
    job = Job(
        contracts_dir=str(CONTRACTS),
        contract="rmsnorm",
        candidate_name="triton_x.py",
        source=source,
        mode="quick",
        device="cuda",
    )
    with start_worker(loaded.contract, "cuda", "bubblewrap") as worker:
        return conduct.examine(job, loaded, worker, lambda _: None)


def small() -> Case:
    contract = load_contract(CONTRACTS, "rmsnorm").contract
    workload = next(w for w in contract.workloads if w.name == "b64_h4096")
    return make_case(contract, cell_recipe(contract, workload, "gaussian"), STREAM, static=STREAM)


@pytest.mark.gpu
@pytest.mark.sandbox
@pytest.mark.usefixtures("device")
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", BAD)
def test_a_kernel_that_breaks_something_is_refused_and_the_next_is_examined(name: str) -> None:
    source, kind, words = BAD[name]
    refused = examined(source)
    assert refused.refusal is not None
    assert (refused.refusal.kind, refused.refusal.stage) == (kind, "smoke")
    assert words in refused.refusal.reason
    assert decide([refused]).kind == kind
    accepted = examined(HONEST)
    assert accepted.refusal is None
    assert decide([accepted]).accepted


@pytest.mark.gpu
@pytest.mark.sandbox
@pytest.mark.usefixtures("device")
@pytest.mark.parametrize(
    ("source", "kind", "words"),
    [(HANGS_LATER, "timed_out", f"within {SOON:.0f} s"), (FAULTS_LATER, "incorrect", "illegal memory access")],
    ids=["hangs the device", "breaks its context"],
)
def test_a_call_that_was_queued_and_breaks_something_comes_to_an_end(source: str, kind: str, words: str) -> None:
    """Its process is stopped while the device works for it, and cannot be told of a fault before it goes on."""
    case = small()
    with started() as worker, started() as other:
        assert worker.load(source) is None
        slot = bound(worker, case)
        first = worker.call(slot, case, STREAM.child(1))
        assert isinstance(first, Answered), first
        assert first.host_bound, "what is compiled in a call is not queued"
        second = worker.call(slot, case, STREAM.child(2), SOON)
        assert isinstance(second, Failure), second
        assert (second.kind, words in second.text) == (kind, True), second
        assert not worker.host_bound, "it was not queued"
        if kind == "incorrect":
            third = worker.call(slot, case, STREAM.child(3), SOON)
            assert isinstance(third, Failure), "a broken context stays broken"
        # While the first still hangs.
        assert other.load(HONEST) is None
        answer = other.call(bound(other, case), case, STREAM.child(4))
        assert isinstance(answer, Answered), answer
    with started() as next_one:
        assert next_one.load(HONEST) is None
        answer = next_one.call(bound(next_one, case), case, STREAM.child(5))
        assert isinstance(answer, Answered), answer
        assert answer.unwritten is None


def bound(worker: Worker, case: Case) -> Slot:
    slot = worker.bind(case.axes, frozenset())
    assert isinstance(slot, Slot), slot
    return slot


def test_a_device_that_exports_no_memory_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    attributes = driver.CUdevice_attribute
    asked = []

    def told(attribute: object, _: int) -> tuple[object, int]:
        asked.append(attribute)
        return driver.CUresult.CUDA_SUCCESS, 0

    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(cuda.torch, "zeros", lambda *_, **__: None)
    monkeypatch.setattr(cuda, "driver", SimpleNamespace(cuDeviceGetAttribute=told, CUdevice_attribute=attributes))
    with pytest.raises(InfrastructureError, match="cannot export memory as a descriptor: nothing can be lent"):
        cuda.device.__wrapped__()
    assert asked == [attributes.CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED]
