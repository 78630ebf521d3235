"""Memory that is lent on a GPU: a handle leads to one tensor with its guards and to nothing of the verifier's, whatever
is asked of the driver; and lent memory, decoy lines and late writes piece by piece."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bot.contract.load import load_contract
from bot.contract.schema import DType
from bot.verify.buffers import PAGE, Slot, poison_of
from bot.verify.calls import Answered, Worker
from bot.verify.cases import HOST_ELEMENTS, Case, cell_recipe, make_case, tensor_in
from bot.verify.draws import STORAGE, Array
from bot.verify.philox import Stream
from bot.verify.start import start_worker, turn_on

cuda = pytest.importorskip("bot.verify.device.cuda", reason="needs the extra [gpu]")
driver = pytest.importorskip("cuda.bindings.driver", reason="needs the extra [gpu]")
lines = pytest.importorskip("bot.verify.device.lines", reason="needs the extra [gpu]")

pytestmark = pytest.mark.gpu

CONTRACTS = Path(__file__).parents[2] / "contracts"
STREAM = Stream.from_salt(b"lent")
GRANULE = 2 << 20
DTYPES: list[DType] = ["bfloat16", "float16", "float32", "int32", "int64"]

MARKS = {
    name: 0x7A5C13E944D10B00 + number
    for number, name in enumerate(("own", "torch", "oracle", "given up", "other slot", "other worker"))
}
"""Words of 64 bits that lie somewhere; no draw, poison or guard is likely to hold one."""

EXPLORER = """
import json
import os

import torch

from bot.verify import worker

MARKS = MARKS_OF_THE_TEST
GRANULE, GUARD = 2 << 20, 4096
told = {"lent": [], "seen": {}}
plain = worker.Gpu.map


def found(address, size, device):
    words = torch.as_tensor(worker._Bytes(address, size), device=device).view(torch.int64)
    return {name: int((words == mark).sum()) for name, mark in MARKS.items()}


def mapped(gpu, handle, size, offset):
    '''What the driver says to such a mapping, and what lies there if it can be had.'''
    driver = gpu.driver
    address = int(gpu._done(driver.cuMemAddressReserve(size, 0, 0, 0)))
    (status,) = driver.cuMemMap(address, size, offset, handle, 0)
    answer = {"said": status.name}
    if status == driver.CUresult.CUDA_SUCCESS:
        access = driver.CUmemAccessDesc()
        access.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        access.location.id = gpu.device.index
        access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        gpu._done(driver.cuMemSetAccess(address, size, [access], 1))
        answer["marks"] = found(address, size, gpu.device)
        torch.cuda.synchronize()
        gpu._done(driver.cuMemUnmap(address, size))
    gpu._done(driver.cuMemAddressFree(address, size))
    return answer


def explored(gpu, tensor, fd):
    driver = gpu.driver
    kind = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    handle = gpu._done(driver.cuMemImportFromShareableHandle(fd, kind))
    beyond = [mapped(gpu, handle, tensor.size + more * GRANULE, 0) for more in (1, 2, 16, 512)]
    beyond += [mapped(gpu, handle, GRANULE, tensor.size + more * GRANULE) for more in (0, 1, 16)]
    whole = mapped(gpu, handle, tensor.size, 0)
    gpu._done(driver.cuMemRelease(handle))
    return {"name": tensor.name, "size": tensor.size, "whole": whole, "beyond": beyond}


def curious(gpu, tensor, fd):
    '''In the place of what maps lent memory: keep the descriptor, and look what more can be had by it.'''
    kept = os.dup(fd)
    tensor_there = plain(gpu, tensor, fd)
    told["lent"].append(explored(gpu, tensor, kept))
    os.close(kept)
    return tensor_there


worker.Gpu.map = curious


def run(hidden_states, weight, output):
    for name, tensor in {"hidden_states": hidden_states, "weight": weight, "output": output}.items():
        length = tensor.numel() * tensor.element_size()
        size = -(-(length + 2 * GUARD) // GRANULE) * GRANULE
        told["seen"][name] = found(tensor.data_ptr() - GUARD, size, tensor.device)
    text = json.dumps(told).encode()
    whole = output.view(-1).view(torch.uint8)
    whole.zero_()
    whole[: len(text)].copy_(torch.frombuffer(bytearray(text), dtype=torch.uint8))
"""


@pytest.fixture(autouse=True, scope="module")
def device() -> Iterator[None]:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    with turn_on("cuda", lambda _: None):
        yield


@dataclass(frozen=True)
class Told:
    """What a candidate found that keeps every descriptor: `lent`, when it was lent it, one entry a tensor of two slots;
    `seen`, in a call on the second. Both count marks."""

    lent: list[dict[str, Any]]
    seen: dict[str, dict[str, int]]

    def at_first(self, mark: str) -> list[int]:
        """How often it lay behind each handle before anything was written there."""
        return [one["whole"]["marks"][mark] for one in self.lent]


@pytest.fixture(scope="module")
def told() -> Told:
    contract = load_contract(CONTRACTS, "rmsnorm").contract
    workload = next(w for w in contract.workloads if w.name == "b64_h4096")
    drawn = make_case(contract, cell_recipe(contract, workload, "gaussian"), STREAM, static=STREAM)
    # What the verifier gave back before anything was lent, and what it holds meanwhile.
    given_up = torch.full((1 << 27,), MARKS["given up"], dtype=torch.int64, device="cuda")
    torch.cuda.synchronize()
    del given_up
    torch.cuda.empty_cache()
    ours = torch.full((1 << 20,), MARKS["torch"], dtype=torch.int64, device="cuda")
    expected = torch.full((1 << 20,), MARKS["oracle"], dtype=torch.int64, device="cuda").view(torch.float64)
    with started(contract) as neighbour, started(contract) as explorer:
        assert neighbour.load("def run(*_):\n    pass\n") is None
        bound(neighbour, drawn).fill(marked(drawn, "other worker").inputs, STREAM)
        assert explorer.load(EXPLORER.replace("MARKS_OF_THE_TEST", repr(MARKS))) is None
        bound(explorer, drawn).fill(marked(drawn, "other slot").inputs, STREAM)
        answer = explorer.call(bound(explorer, drawn), marked(drawn, "own"), STREAM)
        assert isinstance(answer, Answered), answer
    assert int((ours == MARKS["torch"]).sum()) == int((expected.view(torch.int64) == MARKS["oracle"]).sum()) == 1 << 20
    held = answer.outputs["output"]
    assert isinstance(held, np.ndarray)
    return Told(**json.loads(held.tobytes().rstrip(b"\0")))


def started(contract: Any) -> Worker:
    return start_worker(contract, "cuda", "bubblewrap")


def bound(worker: Worker, case: Case) -> Slot:
    slot = worker.bind(case.axes, frozenset())
    assert isinstance(slot, Slot), slot
    return slot


def marked(case: Case, mark: str) -> Case:
    """The same inputs with one word of the mark in their midst."""
    held = tensor_in(case.inputs, "hidden_states")
    assert isinstance(held, np.ndarray)
    changed = held.copy()
    changed.view("<u8")[len(changed) // 2, 7] = MARKS[mark]
    return replace(case, inputs={**case.inputs, "hidden_states": changed})


@pytest.mark.sandbox
def test_a_handle_is_as_large_as_the_tensor_and_its_guards(told: Told) -> None:
    """All of it can be mapped, and not a granule more, nor one behind it."""
    assert [one["name"] for one in told.lent] == ["hidden_states", "weight", "output"] * 2
    for one in told.lent:
        assert one["size"] == GRANULE, one["name"]
        assert one["whole"]["said"] == "CUDA_SUCCESS"
        assert len(one["beyond"]) == 7
        assert all("marks" not in more and more["said"] != "CUDA_SUCCESS" for more in one["beyond"]), one


@pytest.mark.sandbox
def test_nothing_of_the_verifiers_lies_behind_a_handle(told: Told) -> None:
    """Neither its own tensors nor what it lends to others; what was put there for this call is found."""
    assert told.seen["hidden_states"] == {**dict.fromkeys(MARKS, 0), "own": 1}
    assert told.seen["weight"] == told.seen["output"] == dict.fromkeys(MARKS, 0)
    for mark in ("own", "torch", "oracle", "other slot", "other worker"):
        assert told.at_first(mark) == [0] * 6, mark


@pytest.mark.sandbox
def test_nothing_that_the_verifier_gave_up_lies_behind_a_handle(told: Told) -> None:
    """A candidate can look before anything has been written there."""
    assert told.at_first("given up") == [0] * 6


def random(shape: tuple[int, ...], dtype: DType, seed: int = 0) -> Array:
    """Any bits."""
    storage = STORAGE[dtype]
    raw = np.random.default_rng(seed).integers(0, 256, int(np.prod(shape)) * storage.itemsize, dtype=np.uint8)
    return raw.view(storage).reshape(shape)


@pytest.fixture
def lent(dtype: DType, shape: tuple[int, ...]) -> Iterator[Any]:
    made = cuda.CudaLent("x", shape, dtype)
    yield made
    made.close()


SHAPES = [(0, 8), (1,), (33, 17), (HOST_ELEMENTS // 64, 64)]
each_kind = pytest.mark.parametrize("dtype", DTYPES)
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)
one_kind = pytest.mark.parametrize("dtype", ["bfloat16"])
one_shape = pytest.mark.parametrize("shape", [(33, 17)], ids=str)


@each_kind
@each_shape
def test_what_is_written_is_held_and_copied(lent: Any, dtype: DType, shape: tuple[int, ...]) -> None:
    """Small copies come to the host, large ones stay; neither changes with what it was copied from."""
    assert lent.size % GRANULE == 0
    assert lent.size >= lent.length + 2 * PAGE
    held = random(shape, dtype)
    lent.write(held)
    assert lent.holds(held)
    copied = lent.snapshot()
    assert isinstance(copied, torch.Tensor) == (held.size >= HOST_ELEMENTS)
    lent.data.fill_(0)
    back = copied.cpu().view(torch.uint8).numpy() if isinstance(copied, torch.Tensor) else copied
    assert back.tobytes() == held.tobytes()
    assert copied.shape == shape
    assert lent.holds(held) == (held.size == 0)


@one_kind
@one_shape
def test_one_bit_is_told(lent: Any, dtype: DType, shape: tuple[int, ...]) -> None:
    held = random(shape, dtype)
    lent.write(held)
    lent.data[-1:].bitwise_xor_(1)
    assert not lent.holds(held)


@one_kind
@pytest.mark.parametrize("shape", [(33, 17), (1 << 20,)], ids=str)
@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("near", [False, True])
def test_a_byte_of_a_guard_is_told(lent: Any, shape: tuple[int, ...], behind: bool, near: bool) -> None:
    """At the tensor as at the allocation's ends; the data are no guard."""
    assert not lent.guard_intact()
    lent.guard(STREAM.child("guard").words(16).tobytes())
    assert lent.guard_intact()
    lent.data.fill_(7)
    assert lent.guard_intact()
    end = lent.offset + lent.length
    place = (end if near else lent.size - 1) if behind else (lent.offset - 1 if near else 0)
    lent._whole[place : place + 1].bitwise_xor_(1)
    assert not lent.guard_intact()
    lent._whole[place : place + 1].bitwise_xor_(1)
    assert lent.guard_intact()


@each_kind
@pytest.mark.parametrize("shape", [(33, 17), (HOST_ELEMENTS // 64, 64)], ids=str)
def test_an_element_that_nobody_wrote_is_found(lent: Any, dtype: DType, shape: tuple[int, ...]) -> None:
    poison = poison_of(dtype, STREAM.child("poison"))
    lent.poison(poison)
    assert lent.unwritten(lent.snapshot()) == (0, 0)
    held = np.zeros(shape, STORAGE[dtype])
    held[-1, 3] = poison
    lent.data.copy_(lent._bytes_of(held))
    assert lent.unwritten(lent.snapshot()) == (shape[0] - 1, 3)
    lent.data.fill_(0)
    assert lent.unwritten(lent.snapshot()) is None


def test_what_is_given_up_is_overwritten() -> None:
    """Whoever kept the handle finds zeros."""
    one = cuda.CudaLent("x", (64, 64), "float32")
    one.write(random((64, 64), "float32"))
    one.guard(b"guarded." * 8)
    kept = os.dup(one.fd)
    kind = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    handle = cuda.done(driver.cuMemImportFromShareableHandle(kept, kind))
    address = int(cuda.done(driver.cuMemAddressReserve(one.size, 0, 0, 0)))
    cuda.done(driver.cuMemMap(address, one.size, 0, handle, 0))
    access = driver.CUmemAccessDesc()
    access.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    access.location.id = cuda.device().index
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    cuda.done(driver.cuMemSetAccess(address, one.size, [access], 1))
    there = torch.as_tensor(cuda._Bytes(address, one.size), device=cuda.device())
    assert int(there.count_nonzero()) > one.length // 2
    one.close()
    assert int(there.count_nonzero()) == 0
    torch.cuda.synchronize()
    cuda.done(driver.cuMemUnmap(address, one.size))
    cuda.done(driver.cuMemAddressFree(address, one.size))
    cuda.done(driver.cuMemRelease(handle))
    os.close(kept)


SIZES = {"tiny": (4, 8), "few": (9, 64), "many": (4096, 257)}
"""Of bf16: too small for a comb, nine lines of 128 bytes, and more than a comb has."""


@pytest.fixture
def curtained() -> Iterator[tuple[Any, dict[str, Any], dict[str, Array]]]:
    """The curtain, lent tensors of several sizes, and what lies in them."""
    truth = {name: random(shape, "bfloat16", seed) for seed, (name, shape) in enumerate(SIZES.items())}
    lents = {name: cuda.CudaLent(name, shape, "bfloat16") for name, shape in SIZES.items()}
    for name, held in truth.items():
        lents[name].write(held)
    yield cuda.curtain(), lents, truth
    for one in lents.values():
        one.close()


def differing(lent: Any, held: Array) -> list[int]:
    """Lines that hold something else than they should."""
    there, count = lent.data.cpu().numpy(), lent.length // lines.LINE * lines.LINE
    apart = there[:count] != held.reshape(-1).view(np.uint8)[:count]
    assert np.array_equal(there[count:], held.reshape(-1).view(np.uint8)[count:])
    return [int(i) for i in np.flatnonzero(apart.reshape(-1, lines.LINE).any(1))]


@pytest.mark.parametrize("number", range(4))
def test_a_secret_few_lines_are_others_until_they_are_revealed(curtained: Any, number: int) -> None:
    curtain, lents, truth = curtained
    curtain.hide(lents, {}, STREAM.child("hide", number))
    curtain.settle()
    assert len(curtain.inputs) == 2
    combs = dict(zip(("few", "many"), curtain.inputs, strict=True))
    for name, comb in combs.items():
        hidden = [comb.first + comb.pitch * i for i in range(comb.count)]
        assert comb.count == min(lines.MOST, lents[name].length // lines.LINE // 2)
        assert differing(lents[name], truth[name]) == hidden
    assert differing(lents["tiny"], truth["tiny"]) == []
    curtain.reveal()
    assert all(lents[name].holds(held) for name, held in truth.items())


def test_which_lines_are_hidden_is_drawn(curtained: Any) -> None:
    curtain, lents, _ = curtained
    firsts = set()
    for number in range(64):
        curtain.hide(lents, {}, STREAM.child("first", number))
        curtain.settle()
        firsts.add(curtain.inputs[-1].first)
        curtain.reveal()
    assert 8 < len(firsts) <= curtain.inputs[-1].pitch == 16


def test_a_late_write_into_a_line_that_was_looked_at_is_told(curtained: Any) -> None:
    curtain, lents, _ = curtained
    curtain.hide({}, lents, STREAM.child("late"))
    curtain.settle()
    curtain.glimpse()
    assert not curtain.late()
    comb = curtain.outputs[-1]
    assert comb.pitch > 1
    beside = (comb.first + 1) * lines.LINE
    lents["many"].data[beside : beside + 1].bitwise_xor_(1)
    assert not curtain.late(), "only the chosen lines are looked at"
    last = (comb.first + comb.pitch * (comb.count - 1)) * lines.LINE + lines.LINE - 1
    lents["many"].data[last : last + 1].bitwise_xor_(1)
    assert curtain.late()
    curtain.glimpse()
    assert not curtain.late()
