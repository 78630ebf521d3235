"""`proctor runner`: what a machine must offer, on machines of every kind, and the one we are on."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from typing_extensions import override

from bot.handlers.checks import Check, exit_code
from bot.handlers.lock import Lock
from bot.handlers.machine import Machine, Ran, ThisMachine
from bot.handlers.runner import MARKER, look_at_environment, look_at_machine, own_group

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = Path("/var/proctor")
SMI = "0, NVIDIA B200, 580.65.06, Default, 10.0, Disabled, 183359 MiB"
MOUNT = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw"
TMP, SHM = "/tmp", "/dev/shm"  # noqa: S108 - looked at, not used
GROUP = "/sys/fs/cgroup/runner"


@dataclass
class FakeMachine(Machine):
    """A machine in good order, until a test breaks something."""

    files: dict[str, str] = field(
        default_factory=lambda: {
            "/proc/driver/nvidia/params": "EnableMSI: 1\nRmProfilingAdminOnly: 0\n",
            "/proc/sys/user/max_user_namespaces": "15000\n",
            "/proc/self/status": "Name:\tpython\nSeccomp:\t0\n",
            "/proc/self/cgroup": "0::/runner\n",
            "/proc/self/mountinfo": MOUNT + "\n",
            f"{GROUP}/cgroup.controllers": "cpu memory pids\n",
        }
    )
    programs: dict[str, Ran] = field(
        default_factory=lambda: {
            "nvidia-smi": Ran(0, "| NVIDIA-SMI 580.65.06   Driver Version: 580.65.06   CUDA Version: 13.0 |"),
            "nvidia-smi --query": Ran(0, SMI),
            "bwrap": Ran(0, "bubblewrap 0.9.0"),
        }
    )
    trial: Ran | None = field(default_factory=lambda: Ran(0, ""))
    room: dict[str, int | None] = field(default_factory=dict)
    group_fault: str | None = None
    libraries: bool = True
    processors: tuple[int, int] = (32, 32)
    bytes_of_memory: int = 256 << 30
    version: str = "3.12.4"
    installed: dict[str, str] = field(default_factory=dict)

    @override
    def read(self, path: str) -> str | None:
        return self.files.get(path)

    @override
    def run(self, command: Sequence[str]) -> Ran | None:
        long = command[0] + (" --query" if command[1:] and command[1].startswith("--query") else "")
        return self.programs.get(long)

    @override
    def try_sandbox(self) -> Ran | None:
        return self.trial

    @override
    def free(self, path: str) -> int | None:
        return self.room.get(path, 500 << 30)

    @override
    def make_group(self, parent: str) -> str | None:
        assert parent == GROUP
        return self.group_fault

    @override
    def library(self, name: str) -> bool:
        return self.libraries

    @override
    def cpus(self) -> tuple[int, int]:
        return self.processors

    @override
    def memory(self) -> int:
        return self.bytes_of_memory

    @override
    def python(self) -> tuple[str, str]:
        return self.version, "/env"

    @override
    def packages(self) -> Mapping[str, str]:
        return self.installed


def found(machine: Machine, state: str = "mend") -> list[Check]:
    return [check for check in look_at_machine(machine, ENVIRONMENTS, "auto") if check.state == state]


def test_a_machine_in_good_order_is_well():
    checks = list(look_at_machine(FakeMachine(), ENVIRONMENTS, "cuda"))
    assert {check.state for check in checks} == {"well"}
    assert any("NVIDIA B200" in check.detail and "sm_100" in check.detail for check in checks)
    assert [check.detail for check in checks if check.what == "CUDA of the driver"] == ["13.0"]


def broken(**change: object) -> FakeMachine:
    machine = FakeMachine()
    for name, value in change.items():
        if isinstance(value, dict):
            getattr(machine, name).update(value)
        else:
            setattr(machine, name, value)
    return machine


@pytest.mark.parametrize(
    ("machine", "what", "remedy"),
    [
        (
            broken(programs={"nvidia-smi --query": Ran(0, SMI.replace("Default", "Exclusive_Process"))}),
            "compute mode",
            "nvidia-smi -i 0 -c DEFAULT",
        ),
        (broken(programs={"nvidia-smi": Ran(0, "CUDA Version: 11.8")}), "CUDA 11.8", "newer driver"),
        (broken(files={"/proc/sys/user/max_user_namespaces": "0\n"}), "user namespaces", "max_user_namespaces=15000"),
        (broken(files={"/proc/sys/kernel/unprivileged_userns_clone": "0\n"}), "user namespaces", "userns_clone=1"),
        (broken(programs={"bwrap": Ran(0, "bubblewrap 0.4.1")}), "bubblewrap 0.4.1", "upgrade"),
        (broken(trial=Ran(1, "bwrap: No permissions")), "cannot put up a sandbox", "unmasked /proc"),
        (
            broken(
                trial=Ran(1, "bwrap: setting up uid map: Permission denied"),
                files={"/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n"},
            ),
            "cannot put up a sandbox",
            "kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        (broken(files={"/proc/self/status": "Name:\tpython\n"}), "no system-call filters", "CONFIG_SECCOMP_FILTER"),
        (broken(libraries=False), "libseccomp is missing", "libseccomp2"),
        (broken(room={str(ENVIRONMENTS): 1 << 30}), "/var/proctor is full", "15.0 GiB"),
        (broken(room={SHM: 1 << 20}), f"{SHM} is full", "--shm-size"),
        (broken(room={TMP: None}), f"{TMP} cannot be written", "writable"),
    ],
)
def test_each_fault_has_a_remedy_and_somebody_who_must_act(machine: FakeMachine, what: str, remedy: str):
    (check,) = found(machine)
    assert what in check.what
    assert remedy in check.remedy
    assert check.remedy.startswith("whoever owns this machine")
    assert exit_code([check]) == 1


@pytest.mark.parametrize(
    ("machine", "what"),
    [
        (broken(files={"/proc/driver/nvidia/params": "RmProfilingAdminOnly: 1"}), "profiling permission"),
        (broken(files={"/proc/self/cgroup": "9:memory:/x\n"}), "no control group of version 2"),
        (broken(group_fault="Read-only file system"), "not ours to divide"),
        (broken(files={f"{GROUP}/cgroup.controllers": "cpu pids\n"}), "lacks memory"),
        (broken(processors=(2, 8)), "few CPUs"),
        (broken(bytes_of_memory=8 << 30), "little memory"),
        (broken(programs={"nvidia-smi --query": Ran(0, SMI.replace("Disabled", "Enabled"))}), "MIG is on"),
        (broken(programs={"nvidia-smi --query": Ran(9, "couldn't communicate with the driver")}), "no GPU"),
    ],
)
def test_what_an_exam_can_do_without_is_a_note(machine: FakeMachine, what: str):
    assert found(machine) == []
    (check,) = found(machine, "note")
    assert what in check.what


def test_without_a_gpu_it_is_named_and_a_fault_only_where_one_is_wanted():
    machine = FakeMachine()
    machine.programs = {"bwrap": machine.programs["bwrap"]}
    for device, state in (("auto", "note"), ("cpu", "note"), ("cuda", "mend")):
        first = next(look_at_machine(machine, ENVIRONMENTS, device))  # type: ignore[arg-type]
        assert (first.state, first.what) == (state, "no GPU")
        assert "nvidia-smi is missing" in first.detail


def test_an_answer_in_another_form_is_unseen_and_not_well():
    machine = broken(programs={"nvidia-smi --query": Ran(0, "[Unknown Error]"), "nvidia-smi": Ran(0, "?")})
    assert len(found(machine, "unseen")) == 2


def test_bubblewrap_is_missing():
    machine = FakeMachine()
    del machine.programs["bwrap"]
    (check,) = found(machine)
    assert "install the package `bubblewrap`" in check.remedy


def test_our_group_is_found_below_a_mounted_part():
    assert own_group("0::/a/b\n", "1 2 0:1 /a /mnt rw - cgroup2 none rw") == "/mnt/b"
    assert own_group("0::/c\n", "1 2 0:1 /a /mnt rw - cgroup2 none rw") is None
    assert own_group("", "1 2 0:1 / /mnt rw - cgroup2 none rw") is None


@pytest.mark.sandbox
def test_this_machine_is_looked_at_and_left_as_it_was(tmp_path: Path):
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    machine = ThisMachine()
    trial = machine.try_sandbox()
    assert trial is not None
    assert (trial.code, trial.text) == (0, "")
    assert machine.run(["no-such-program"]) is None
    assert machine.free(str(tmp_path / "not" / "yet")) == machine.free(str(tmp_path))
    assert machine.make_group(str(tmp_path)) is None
    assert list(tmp_path.iterdir()) == []
    assert machine.make_group("/proc") is not None
    assert not machine.library("libno-such.so.9")
    assert machine.read("/no/such") is None
    assert list(look_at_machine(machine, tmp_path, "cpu"))


def test_a_program_sees_no_token(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GITHUB_TOKEN", "ghp_secret")
    said = ThisMachine().run(["env"])
    assert said is not None
    assert "ghp_secret" not in said.text


@pytest.fixture
def lock(tmp_path: Path) -> Lock:
    folder = tmp_path / ".github" / "proctor"
    folder.mkdir(parents=True)
    (folder / "constraints.txt").write_text("# pins\nFlask==3.1.3\nPy_YAML==6.0.4  # why\n", encoding="utf-8")
    (folder / "requirements.txt").write_text("kernel-proctor==0.1.0\n", encoding="utf-8")
    return Lock.read(tmp_path)


RIGHT = {"flask": "3.1.3", "py.yaml": "6.0.4", "kernel_proctor": "0.1.0", "torch": "2.13.0"}


def test_an_environment_that_keeps_to_the_lock_is_well(lock: Lock):
    machine = FakeMachine(installed=RIGHT)
    machine.files[f"/env/{MARKER}"] = json.dumps({"lock": lock.digest})
    assert {check.state for check in look_at_environment(machine, lock)} == {"well"}


@pytest.mark.parametrize(
    ("installed", "marker", "part"),
    [
        (RIGHT | {"flask": "3.1.2"}, None, "flask 3.1.2, not 3.1.3"),
        (RIGHT | {"kernel_proctor": "0.0.9"}, None, "kernel-proctor 0.0.9, not 0.1.0"),
        ({"flask": "3.1.3"}, None, "kernel-proctor is not installed"),
        (RIGHT, "f" * 64, "made for ffffffff"),
    ],
)
def test_an_environment_of_another_lock_is_refused_with_its_remedy(
    lock: Lock, installed: dict[str, str], marker: str | None, part: str
):
    machine = FakeMachine(installed=installed)
    if marker:
        machine.files[f"/env/{MARKER}"] = json.dumps({"lock": marker})
    checks = list(look_at_environment(machine, lock))
    (wrong,) = [check for check in checks if check.state == "mend"]
    assert part in wrong.detail
    assert "proctor runner prepare" in wrong.remedy
    assert exit_code(checks) == 1


@pytest.mark.parametrize("marker", ["", "{", "[]", '{"lock": 3}'])
def test_an_environment_made_by_hand_is_compared_and_said_to_be(lock: Lock, marker: str):
    machine = FakeMachine(installed=RIGHT)
    machine.files[f"/env/{MARKER}"] = marker
    assert [check.state for check in look_at_environment(machine, lock)] == ["well", "well", "note"]


def test_an_old_python_is_refused(lock: Lock):
    checks = list(look_at_environment(FakeMachine(installed=RIGHT, version="3.9.2"), lock))
    assert checks[0].state == "mend"
    assert "install Python 3.11" in checks[0].remedy
