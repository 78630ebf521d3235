"""What a GPU exam does on the host, tried without a GPU: plan, mounts, noise, order of rows, needs of baselines."""

import dataclasses
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from bot.contract.load import load_contract
from bot.contract.schema import Requires, TensorInput
from bot.errors import InfrastructureError
from bot.evaluation import BaselineSource, Gpu, Job, Mode, Round
from bot.verify.calls import Answered, Worker
from bot.verify.cases import HOST, HOST_ELEMENTS, Case
from bot.verify.compare import _order
from bot.verify.doorbell import ASK, AWAKE
from bot.verify.exam import Exam, Kernel
from bot.verify.mounts import GpuAccess, bwrap_arguments, environment, mounts_of
from bot.verify.oracle import _factors, _noise, load_oracle
from bot.verify.philox import Stream
from bot.verify.plan import baseline_kernels, for_ours, plan_checks
from bot.verify.stages.baselines import missing_here
from bot.verify.stages.build import look, looked_at
from bot.verify.stages.controls import _asked
from bot.verify.stages.timing import WARM_UPS, _cell, _keep, _measured, _Pair, _state, company, disturbed
from bot.verify.start import start_worker
from tests.inspecting import missing
from tests.sandbox.conftest import everything

CONTRACTS = Path(__file__).parents[2] / "contracts"
H200 = Gpu(
    capability="sm_90",
    driver="580",
    cuda="13.0",
    memory_bytes=1,
    cache_bytes=1,
    bytes_per_second=1.0,
    operations_per_second=1.0,
)


def exam(contract: str) -> Exam:
    loaded = load_contract(CONTRACTS, contract)
    job = Job(contracts_dir=str(CONTRACTS), contract=contract, candidate_name="", source="", mode="exam", device="cuda")
    return Exam(job, loaded, load_oracle(loaded.folder), bytes(32), lambda _: None, None, HOST, gpu=H200)


@pytest.mark.parametrize(("capability", "names"), [("sm_90", ["hopper"]), ("sm_100", ["blackwell"]), ("sm_120", [])])
def test_the_incumbent_is_that_of_the_device(capability: str, names: list[str]) -> None:
    held = exam("rmsnorm")
    merged = {"sm_90": "hopper", "sm_100": "blackwell", "cpu": "here"}
    known = {k: BaselineSource(name=name, role="incumbent", source="") for k, name in merged.items()}
    held.job = held.job.model_copy(update={"incumbents": known})
    held.gpu = H200.model_copy(update={"capability": capability})
    assert [kernel.name for kernel, _ in baseline_kernels(held) if kernel.role == "incumbent"] == names
    held.gpu = None
    assert [kernel.name for kernel, _ in baseline_kernels(held) if kernel.role == "incumbent"] == ["here"]


@pytest.mark.parametrize("contract", ["kda_prefill", "rmsnorm"])
def test_parts_of_inputs_are_changed_where_the_host_can_compare(contract: str) -> None:
    held = exam(contract)
    checks = [check for check in plan_checks(held) if check.stage == "influence"]
    assert checks
    for check in checks:
        for spec in held.contract.inputs.values():
            if isinstance(spec, TensorInput):
                assert math.prod(held.contract.shape(spec, check.recipe.axes)) < HOST_ELEMENTS


@pytest.mark.parametrize("contract", sorted(path.parent.name for path in CONTRACTS.glob("*/contract.yaml")))
def test_every_control_is_asked_where_it_must_be_seen_though_it_runs_on_the_cpu(contract: str) -> None:
    held = exam(contract)
    checks = [c for c in plan_checks(held) if c.stage == "controls" or for_ours(held.contract, c.recipe.axes)]
    asked = {name for c in checks for name in (c.recipe.name, c.recipe.name.rpartition("/")[2])}
    assert asked.issuperset(held.contract.regimes)
    assert [control.file for control in held.contract.controls if not asked & set(control.fails)] == []


@pytest.mark.parametrize("mode", ["quick", "full", "confirm"])
def test_only_an_exam_that_grades_itself_draws_for_controls(mode: Mode) -> None:
    held = exam("moe_fp8_block_scale")
    held.job = held.job.model_copy(update={"mode": mode})
    assert not [check for check in plan_checks(held) if check.stage == "controls"]
    held.job = held.job.model_copy(update={"mode": "exam", "device": "cpu"})
    assert not [check for check in plan_checks(held) if check.stage == "controls"]


def test_what_only_controls_are_asked_holds_its_probes_twice() -> None:
    """A flaw that waits until it has seen its like is not seen in a probe that is asked once."""
    held = exam("moe_fp8_block_scale")
    held.checks = plan_checks(held)
    asked = [(turn.index, turn.again) for turn in _asked(held)]
    own = held.indices("controls")
    probes = [index for index in own if held.checks[index].recipe.kind == "probe"]
    assert probes
    assert sorted(asked) == sorted([*((index, False) for index in own), *((index, True) for index in probes)])


def test_a_scored_cell_is_drawn_once_in_an_exam_on_a_gpu() -> None:
    held = exam("rmsnorm")
    names = [check.recipe.name for check in plan_checks(held) if check.stage == "correctness"]
    assert all(names.count(f"{w.name}/{r}") == 1 for w, r in held.scored())


def test_only_a_gpu_worker_sees_a_compiler_the_driver_and_its_device() -> None:
    access = GpuAccess("GPU-1", ("/dev/null", "/dev/zero"), "/usr/lib/elsewhere/driver")
    plain, seen = (dict(mounts_of(gpu)) for gpu in (None, access))
    assert "/usr/include" in seen
    assert "/usr/include" not in plain
    assert not {"/cache"} & {*plain.values(), *seen.values()}
    arguments = bwrap_arguments("bwrap", [], limits(), 3, access)
    assert [arguments[i + 1] for i, word in enumerate(arguments) if word == "--dev-bind"] == list(access.nodes)
    assert environment(access)["CUDA_VISIBLE_DEVICES"] == "GPU-1"


def test_only_what_is_ours_keeps_a_folder_that_it_may_write_to(tmp_path: Path) -> None:
    access = GpuAccess("GPU-1", (), "/usr/lib", cache=str(tmp_path))
    mounts = mounts_of(access)
    arguments = bwrap_arguments("bwrap", mounts, limits(), 3, access)
    writable = [arguments[i + 2] for i, word in enumerate(arguments) if word == "--bind"]
    assert writable == ["/cache"]
    assert "--bind" not in bwrap_arguments(
        "bwrap", mounts_of(dataclasses.replace(access, cache=None)), limits(), 3, access
    )


def limits():
    from bot.verify.mounts import Limits

    return Limits()


@pytest.mark.parametrize("count", [5, (1 << 20) - 1, 1 << 20, (1 << 21) + 7])
def test_noise_goes_round_the_shared_factors(count: int) -> None:
    """Whatever the size, neighbours are multiplied by neighbours, and none is further off than one rounding."""
    factors = _factors(2.0**-9, torch.device("cpu"))
    ones = torch.ones(count, dtype=torch.float64)
    got = _noise(2.0**-9, Stream.from_salt(b"", "noise"), torch.device("cpu"))(ones)
    start = int((factors == got[0]).nonzero()[0])
    assert torch.equal(got, factors[(start + torch.arange(count)) % len(factors)])


def test_rows_are_ordered_alike_on_both_devices() -> None:
    """By group and then by value; the GPU's way of it runs on the CPU too."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(0, 9, (7, 30), generator=generator).double()
    group = torch.randint(0, 4, (7, 30), generator=generator)
    by_value = torch.argsort(rows.flatten(), stable=True)
    by_group = torch.argsort(group.flatten()[by_value], stable=True)
    assert np.array_equal(by_value[by_group].numpy(), _order(rows, group))


QUIET = [(510_000, 512_000), (508_000, 530_000), (514_000, 511_000)]


def test_a_call_beside_somebody_else_is_told() -> None:
    assert disturbed(QUIET, 512_000) == []
    assert company(QUIET, 512_000) == ""
    late = (511_000, 900_000)
    assert disturbed([*QUIET, late], 512_000) == [late]
    assert company([*QUIET, late], 512_000).endswith(
        "before 1 of 4 pairs of calls: emptying its cache took up to 0.90 ms, 0.51 when idle"
    )
    assert disturbed([(0, 0), (0, 0)], 0) == []
    assert disturbed([], 512_000) == []


def test_a_device_that_is_kept_busy_all_along_is_not_the_usual_one() -> None:
    assert len(disturbed([(900_000, 910_000)] * 5, 512_000)) == 5


@pytest.mark.parametrize(("late", "state"), [(0, "resolved"), (7, "resolved"), (8, "invalid")])
def test_a_cell_bears_company_before_half_of_its_calls(late: int, state: str) -> None:
    held = exam("rmsnorm")
    held.flush_ns = 512_000
    cell = _measured(held, *held.scored()[0])
    cell.flushes_ns = [(900_000, 510_000)] * late + [(510_000, 510_000)] * (14 - late)
    times = [5_000_000] * 7
    cell.rounds = [Round(first="candidate", candidate_ns=times, baseline_ns=times)] * 2
    found, note = _state(held, cell)
    assert found == state
    assert (f"{late} of 14" in note) is bool(late)


def test_a_cell_keeps_what_both_sides_claim_and_both_parts_of_its_floor() -> None:
    held = exam("kda_prefill")
    held.gpu = H200.model_copy(
        update={"bytes_per_second": 4e12, "operations_per_second": 7e14, "cache_bytes": 60 << 20}
    )
    measured = _measured(held, *held.scored()[0])
    case = Case(measured.recipe, measured.recipe.axes, {}, needles=False)
    pairs = [
        _Pair(case, Answered(900 + i, 500 + i, {}), Answered(1900 + i, 1500 + i, {}), f"0/{i}", secret=False)
        for i in range(WARM_UPS + 2)
    ]
    _keep(measured, pairs, "candidate")
    found = _cell(held, Kernel("bar", ""), measured)
    assert found.rounds == [Round(first="candidate", candidate_ns=[902, 903], baseline_ns=[1902, 1903])]
    assert (found.claimed_ns, found.baseline_claimed_ns) == ([502, 503], [1502, 1503])
    assert found.moving_ns
    assert found.computing_ns
    assert found.floor_ns == max(found.moving_ns, found.computing_ns)
    held.gpu = None
    nothing = _cell(held, Kernel("bar", ""), measured)
    assert (nothing.floor_ns, nothing.moving_ns, nothing.computing_ns) == (None, None, None)


def test_a_baseline_says_what_it_lacks() -> None:
    held = exam("rmsnorm")
    assert missing_here(held, None) == ""
    assert missing_here(held, Requires(module="torch")) == ""
    assert missing_here(held, Requires(module="torch", minimum="1.0", architectures=["sm_90"])) == ""
    assert missing_here(held, Requires(module="no_such_module")) == "no_such_module cannot be imported"
    assert "older than 999" in missing_here(held, Requires(module="torch", minimum="999"))
    assert "is for sm_100; this device is sm_90" in missing_here(
        held, Requires(module="torch", architectures=["sm_100"])
    )
    assert "no version" in missing_here(held, Requires(module="math", minimum="1"))


@pytest.mark.sandbox
def test_a_waiting_worker_says_that_it_is_awake() -> None:
    loaded = load_contract(CONTRACTS, "rmsnorm")
    with Worker(loaded.contract, "bubblewrap", everything()) as worker:
        assert worker.load("def run(*_):\n    pass\n") is None
        words = worker._bell.words
        words[ASK] = 41
        assert any(words[AWAKE] == 41 for _ in range(10_000_000))


ROW = (CONTRACTS.parent / "kernels" / "rmsnorm" / "triton_row.py").read_text(encoding="utf-8")


def looking(source: str, mode: Mode, gpu: Gpu = H200) -> Exam:
    """An exam on a device of this kind whose candidate is being looked at."""
    held = exam("rmsnorm")
    held.gpu, held.job = gpu, held.job.model_copy(update={"source": source, "mode": mode})
    look(held)
    return held


@pytest.mark.sandbox
def test_a_file_that_takes_more_than_it_says_is_refused_before_any_launch() -> None:
    if missing():
        pytest.skip(missing())
    said = ROW.replace('"registers": 168', '"registers": 8')
    assert said != ROW
    note, refusal = looked_at(looking(said, "exam"))
    assert refusal is not None
    assert (refusal.kind, refusal.stage, note) == ("build_failed", "build", "")
    assert "registers, and declares at most 8" in refusal.reason


@pytest.mark.sandbox
def test_what_keeps_to_what_it_says_is_told_of_its_machine_code() -> None:
    if missing():
        pytest.skip(missing())
    held = looking(ROW, "quick")
    assert looked_at(held) == ("", None)
    assert held.machine_code is not None
    assert [(build.architecture, build.spill_bytes) for build in held.machine_code.builds] == [("sm_90a", 0)]
    assert not held.machine_code.twice


@pytest.mark.sandbox
def test_a_kernel_without_machine_code_of_its_own_is_not_refused_for_it() -> None:
    if missing():
        pytest.skip(missing())
    plain = "def run(hidden_states, weight, output):\n    output.copy_(hidden_states)\n"
    held = looking(plain, "exam")
    assert looked_at(held) == ("", None)
    assert held.machine_code is not None
    assert held.machine_code.builds == []
    assert looking(plain, "quick").code is None


def test_an_architecture_that_nobody_knows_here_is_said_to_be_unread() -> None:
    note, refusal = looked_at(looking(ROW, "exam", H200.model_copy(update={"capability": "sm_89"})))
    assert refusal is None
    assert note == "its machine code was not looked at: machine code of sm_89 is not known here"


def test_without_a_device_a_gpu_exam_names_what_ismissing_here() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a device")
    cuda = pytest.importorskip("bot.verify.device.cuda", reason="needs the extra [gpu]")
    with pytest.raises(InfrastructureError, match="no CUDA device can be used here"):
        cuda.device()


def test_without_the_extra_a_gpu_exam_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bot.verify.gpu_calls", "bot.verify.device.cuda"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delattr("bot.verify.device.cuda", raising=False)
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(InfrastructureError, match=r"the extra \[gpu\] is missing"):
        start_worker(load_contract(CONTRACTS, "rmsnorm").contract, "cuda", "bubblewrap")
