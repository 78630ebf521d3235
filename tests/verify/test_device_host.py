"""What is asked of a device before and around an exam, with the driver's answers at the rim: no GPU is needed."""

import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from bot.errors import InfrastructureError
from bot.evaluation import GpuState

bindings = pytest.importorskip("cuda.bindings", reason="needs the extra [gpu]")

from bot.verify import start  # noqa: E402 - after the skip
from bot.verify.device import driver, facts  # noqa: E402
from bot.verify.device.facts import Ceilings, ceilings  # noqa: E402

SAID = "GPU-00112233-4455-6677-8899-aabbccddeeff"
FINE = bindings.driver.CUresult.CUDA_SUCCESS


@pytest.fixture
def mode(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A driver with one device, in the mode that is set."""

    def mode(name: str) -> None:
        held = getattr(bindings.driver.CUcomputemode, f"CU_COMPUTEMODE_{name}")
        bits = SimpleNamespace(bytes=uuid.UUID(SAID.removeprefix("GPU-")).bytes)
        monkeypatch.setattr(bindings.driver, "cuInit", lambda _: (FINE,))
        monkeypatch.setattr(bindings.driver, "cuDeviceGet", lambda _: (FINE, 0))
        monkeypatch.setattr(bindings.driver, "cuDeviceGetAttribute", lambda *_: (FINE, int(held)))
        monkeypatch.setattr(bindings.driver, "cuDeviceGetUuid", lambda _: (FINE, bits))

    return mode


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_the_first_device_is_named_as_the_management_library_names_it(mode: Callable[[str], None]) -> None:
    mode("DEFAULT")
    assert driver.first() == SAID


@pytest.mark.parametrize(("name", "told"), [("EXCLUSIVE_PROCESS", "exclusive process"), ("PROHIBITED", "prohibited")])
def test_a_mode_that_lets_one_process_in_is_named_with_its_remedy(
    mode: Callable[[str], None], name: str, told: str
) -> None:
    mode(name)
    with pytest.raises(InfrastructureError, match=rf"compute mode is {told}.*\n?.*nvidia-smi -c DEFAULT"):
        driver.first()


def test_without_a_device_nobody_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    none = bindings.driver.CUresult.CUDA_ERROR_NO_DEVICE
    monkeypatch.setattr(bindings.driver, "cuInit", lambda _: (none,))
    with pytest.raises(InfrastructureError, match="no CUDA device can be used here"), start.turn_on("cuda", print):
        pytest.fail("there is no device")


def test_a_verifier_that_finds_no_memory_says_who_must_act(mode: Callable[[str], None]) -> None:
    mode("DEFAULT")
    with pytest.raises(InfrastructureError, match="no memory left for the verifier: tried 3 GiB\n"):  # noqa: SIM117
        with start.turn_on("cuda", print):
            raise torch.OutOfMemoryError("tried 3 GiB\nof 139")


def test_other_failures_are_not_taken_for_want_of_memory(mode: Callable[[str], None]) -> None:
    mode("DEFAULT")
    with pytest.raises(ZeroDivisionError), start.turn_on("cuda", print):
        raise ZeroDivisionError


def test_ceilings_are_measured_once_for_a_device_and_driver() -> None:
    asked = []

    def measure() -> Ceilings:
        asked.append(1)
        return Ceilings(bytes_per_second=4e12 + len(asked), operations_per_second=7e14, sm_mhz=1980)

    one, again = (ceilings(SAID, "580", measure) for _ in range(2))
    assert one == again
    other = ceilings(SAID, "590", measure)
    assert (len(asked), other == one) == (2, False)


def test_a_file_of_ceilings_that_cannot_be_read_is_made_anew(tmp_path: Path) -> None:
    kept = tmp_path / "proctor" / "ceilings" / f"{SAID}-580.json"
    kept.parent.mkdir(parents=True)
    kept.write_text('{"bytes_per_second": -1}', encoding="utf-8")
    right = Ceilings(bytes_per_second=4e12, operations_per_second=7e14, sm_mhz=1980)
    assert ceilings(SAID, "580", lambda: right) == right
    assert facts.Ceilings.model_validate_json(kept.read_bytes()) == right


def states(*throttled: list[str]) -> Callable[[str], GpuState]:
    """A device that says so each time it is asked, the last for good."""
    left = list(throttled)

    def read(_: str) -> GpuState:
        reasons = left.pop(0) if len(left) > 1 else left[0]
        return GpuState(sm_mhz=1980, celsius=40, throttled=reasons, foreign_processes=0)

    return read


def test_a_device_that_is_held_back_is_waited_for() -> None:
    slept: list[float] = []
    said = start.rested("cuda", states(["power"], ["power", "temperature"], []), slept.append)
    assert said == "waited 0.50 s for the device, held back by power, temperature"
    assert slept == [0.25, 0.25]


def test_a_device_that_stays_held_back_is_not_waited_for_for_ever() -> None:
    slept: list[float] = []
    assert start.rested("cuda", states(["power"]), slept.append).startswith("waited 5.00 s for the device")
    assert sum(slept) == start.REST_SECONDS


def test_nobody_waits_for_a_device_at_ease_nor_for_a_cpu() -> None:
    slept: list[float] = []
    assert start.rested("cuda", states([]), slept.append) == start.rested("cpu", sleep=slept.append) == ""
    assert slept == []


def test_what_one_worker_left_in_the_cache_is_open_to_the_next(tmp_path: Path) -> None:
    """Under root each has a uid of its own; a link that leads out of the cache is left alone."""
    kept = Path(start._cache_of("source"))
    (kept / "inductor" / "hu").mkdir(parents=True, mode=0o700)
    code = kept / "inductor" / "hu" / "kernel.so"
    code.write_bytes(b"")
    code.chmod(0o600)
    outside = tmp_path / "outside"
    outside.write_bytes(b"")
    outside.chmod(0o600)
    (kept / "link").symlink_to(outside)
    assert start._cache_of("source") == kept
    modes = {path: path.stat().st_mode & 0o777 for path in (kept, code.parent, code, outside)}
    assert list(modes.values()) == [0o777, 0o777, 0o666, 0o600]
    assert start._cache_of("other source") != kept
