"""`proctor runner doctor`: whether this machine can hold exams. `proctor runner check`: whether its environment is the
one that a checkout's lock describes; the jobs that run there install nothing.

Each check reads the machine and says who must act. The verifier decides for itself when an exam is held: what is found
here is advice, and never weakens a sandbox.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Literal

from bot.handlers.checks import Check
from bot.handlers.lock import PACKAGE, Lock, normal
from bot.handlers.machine import Machine
from bot.sanitize import plain_line

MARKER = "proctor-environment.json"
"""Written last into an environment that `proctor runner prepare` made: without it the folder is unfinished."""

BUBBLEWRAP = (0, 8, 0)
"""The first with --disable-userns."""
PYTHON = (3, 11)
_TEMPORARY, _SHM = "/tmp", "/dev/shm"  # noqa: S108 - looked at, not used
_GIB = 1 << 30
_ENVIRONMENT_GIB = 15
"""torch with CUDA, Triton and CuTe-DSL, twice: the old environment stays until the new one is there."""
_TEMPORARY_GIB = 2
_SHM_MIB = 64
_MEMORY_GIB = 16
_CPUS = 4

_OWNER = "whoever owns this machine"
_APPARMOR = f"""\
{_OWNER}: Ubuntu's AppArmor forbids user namespaces to programs without a profile, and both bubblewrap and the
verifier's Python make one. As root, `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`, kept in /etc/sysctl.d/;
or a profile in /etc/apparmor.d/ for each of /usr/bin/bwrap and the Python that runs it, then `apparmor_parser -r`:
  abi <abi/4.0>,
  include <tunables/global>
  profile proctor-bwrap /usr/bin/bwrap flags=(unconfined) {{
    userns,
  }}"""
_QUERY = "index,name,driver_version,compute_mode,compute_cap,mig.mode.current,memory.total"

Wanted = Literal["auto", "cpu", "cuda"]


def look_at_machine(machine: Machine, environments: Path, device: Wanted) -> Iterator[Check]:
    """All checks of the machine; `environments` is where `prepare` will put them."""
    yield from _gpu(machine, device)
    yield from _namespaces(machine)
    yield from _bubblewrap(machine)
    yield from _seccomp(machine)
    yield from _group(machine)
    yield from _room(machine, environments)
    yield from _size(machine)


def look_at_environment(machine: Machine, lock: Lock) -> Iterator[Check]:
    """Whether what is installed here is what the checkout's lock describes."""
    found, prefix = machine.python()
    if tuple(map(int, found.split(".")[:2])) < PYTHON:
        wanted = ".".join(map(str, PYTHON))
        yield Check("mend", f"Python {found}", f"{wanted} or newer is needed", f"{_OWNER}: install Python {wanted}")
    else:
        yield Check("well", f"Python {found}", prefix)
    remedy = (
        f"{_OWNER}: in a checkout of this commit run `proctor runner prepare`, and let the runner's PATH begin with "
        "the folder that it names. The jobs install nothing"
    )
    yield from _packages(machine, lock, remedy)
    marker = _marker(machine.read(f"{prefix}/{MARKER}"))
    if marker is None:
        yield Check("note", "not made by `proctor runner prepare`", "only versions were compared, and no digest")
    elif marker != lock.digest:
        detail = f"made for {marker[:16]}, the checkout's lock is {lock.digest[:16]}"
        yield Check("mend", "the environment belongs to another lock", detail, remedy)
    else:
        yield Check("well", "lock", lock.digest[:16])


def _marker(text: str | None) -> str | None:
    try:
        document = json.loads(text) if text else None
    except ValueError:
        document = None
    lock = document.get("lock") if isinstance(document, dict) else None
    return lock if isinstance(lock, str) else None


def _packages(machine: Machine, lock: Lock, remedy: str) -> Iterator[Check]:
    there = {normal(name): version for name, version in machine.packages().items()}
    named = {name: version for name, version in lock.versions.items() if name in there}
    wrong = [f"{name} {there[name]}, not {version}" for name, version in named.items() if there[name] != version]
    if PACKAGE not in there:
        wrong.insert(0, f"{PACKAGE} is not installed")
    if wrong:
        shown = wrong[:8] + ([f"and {len(wrong) - 8} more"] if len(wrong) > 8 else [])
        yield Check("mend", "packages differ from the lock", "; ".join(shown), remedy)
    else:
        yield Check("well", "packages", f"{len(named)} as the lock has them")


def _gpu(machine: Machine, device: Wanted) -> Iterator[Check]:
    said = machine.run(["nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader"])
    if said is None or said.code:
        why = "nvidia-smi is missing" if said is None else plain_line(f"nvidia-smi: {said.text}", 300)
        remedy = f"{_OWNER}: install NVIDIA's driver, or set the variable PROCTOR_DEVICE to cpu"
        yield Check("mend" if device == "cuda" else "note", "no GPU", f"{why}: exams on the CPU only", remedy)
        return
    if device == "cpu":
        return
    for line in said.text.splitlines():
        fields = [plain_line(field, 60) for field in line.split(", ")]
        if len(fields) != len(_QUERY.split(",")):
            yield Check("unseen", "GPU", plain_line(line), f"{_OWNER}: nvidia-smi answers in a form we do not know")
            continue
        index, name, driver, mode, capability, mig, memory = fields
        yield Check("well", f"GPU {index}", f"{name}, {memory}, sm_{capability.replace('.', '')}, driver {driver}")
        if mode == "Default":
            yield Check("well", f"GPU {index}: compute mode", mode)
        else:
            remedy = f"{_OWNER}: `nvidia-smi -i {index} -c DEFAULT`: verifier and workers are several processes"
            yield Check("mend", f"GPU {index}: compute mode", mode, remedy)
        if mig == "Enabled":
            yield Check("note", f"GPU {index}: MIG is on", "times belong to the slice, and neighbours share bandwidth")
    yield from _driver(machine)


def _driver(machine: Machine) -> Iterator[Check]:
    """CUDA of the driver, and whether an ordinary user may profile."""
    said = machine.run(["nvidia-smi"])
    cuda = re.search(r"CUDA (?:UMD )?Version:\s*(\d+)\.(\d+)", said.text) if said else None
    if cuda is None:
        yield Check("unseen", "CUDA of the driver", "nvidia-smi does not say", f"{_OWNER}: run nvidia-smi and look")
    elif int(cuda[1]) < 12:
        yield Check("mend", f"CUDA {cuda[1]}.{cuda[2]}", "12 or newer is needed", f"{_OWNER}: install a newer driver")
    else:
        yield Check("well", "CUDA of the driver", f"{cuda[1]}.{cuda[2]}")
    parameters = machine.read("/proc/driver/nvidia/params")
    restricted = re.search(r"RmProfilingAdminOnly:\s*(\d)", parameters or "")
    if restricted is None:
        yield Check("note", "profiling permission", "the driver does not say; profiles may be missing from reports")
    elif restricted[1] == "0":
        yield Check("well", "profiling permission", "for all users")
    else:
        remedy = (
            f"{_OWNER}: to have profiles in reports, put `options nvidia NVreg_RestrictProfilingToAdminUsers=0` into "
            "/etc/modprobe.d/proctor.conf, then reload the driver or reboot; exams do without"
        )
        yield Check("note", "profiling permission", "for administrators only", remedy)


def _namespaces(machine: Machine) -> Iterator[Check]:
    switches = (
        ("/proc/sys/user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=15000"),
        ("/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
    )
    closed = [(path, order) for path, bad, order in switches if (machine.read(path) or "").strip() == bad]
    for path, order in closed:
        remedy = f"{_OWNER}: as root `{order}`, kept in /etc/sysctl.d/"
        yield Check("mend", "user namespaces are forbidden", path, remedy)
    restricted = (machine.read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") or "").strip() == "1"
    if restricted:
        yield Check("note", "AppArmor restricts user namespaces", "whether bubblewrap may is tried below")
    elif not closed:
        yield Check("well", "user namespaces", "allowed")


def _bubblewrap(machine: Machine) -> Iterator[Check]:
    said = machine.run(["bwrap", "--version"])
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", said.text) if said else None
    if said is None or found is None:
        remedy = f"{_OWNER}: install the package `bubblewrap`, {'.'.join(map(str, BUBBLEWRAP))} or newer"
        yield Check("mend", "no bubblewrap", "without it nothing can be accepted", remedy)
        return
    version = ".".join(found.groups())
    if tuple(map(int, found.groups())) < BUBBLEWRAP:
        wanted = ".".join(map(str, BUBBLEWRAP))
        yield Check("mend", f"bubblewrap {version}", f"{wanted} is needed (--disable-userns)", f"{_OWNER}: upgrade it")
        return
    trial = machine.try_sandbox()
    if trial is not None and trial.code == 0:
        yield Check("well", f"bubblewrap {version}", "a sandbox with the flags of an exam was put up")
        return
    restricted = (machine.read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") or "").strip() == "1"
    remedy = (
        _APPARMOR
        if restricted
        else (
            f"{_OWNER}: allow ordinary users user namespaces and a /proc of their own; in a container that takes an "
            "unmasked /proc and a seccomp profile that lets unshare and mount through"
        )
    )
    said_text = plain_line(trial.text, 300) if trial else "it vanished"
    yield Check("mend", f"bubblewrap {version} cannot put up a sandbox", said_text, remedy)


def _seccomp(machine: Machine) -> Iterator[Check]:
    if "Seccomp:" not in (machine.read("/proc/self/status") or ""):
        remedy = f"{_OWNER}: run a kernel with CONFIG_SECCOMP_FILTER"
        yield Check("mend", "no system-call filters", "the kernel has no seccomp", remedy)
    elif not machine.library("libseccomp.so.2"):
        yield Check("mend", "libseccomp is missing", "", f"{_OWNER}: install the package `libseccomp2`, 2.4 or newer")
    else:
        yield Check("well", "system-call filters", "kernel and libseccomp")


def _group(machine: Machine) -> Iterator[Check]:
    """A second wall: without it the verifier's own watchdog stands alone."""
    remedy = (
        f"{_OWNER}: give the runner's service a delegated group: `Delegate=yes` in its systemd unit, with unified "
        "cgroups; without it the verifier's own watchdog bounds memory and processes"
    )
    place = own_group(machine.read("/proc/self/cgroup") or "", machine.read("/proc/self/mountinfo") or "")
    if place is None:
        yield Check("note", "no control group of version 2", "", remedy)
        return
    wrong = machine.make_group(place)
    if wrong is not None:
        yield Check("note", "the control group is not ours to divide", f"{place}: {wrong}", remedy)
        return
    controllers = set((machine.read(f"{place}/cgroup.controllers") or "").split())
    missing = {"memory", "pids"} - controllers
    if missing:
        yield Check("note", f"the control group lacks {' and '.join(sorted(missing))}", place, remedy)
    else:
        yield Check("well", "control group", place)


def own_group(groups: str, mounts: str) -> str | None:
    """The folder of the version 2 group that we are in, from the kernel's two tables."""
    ours = [line[3:] for line in groups.splitlines() if line.startswith("0::")]
    for fields in (line.split() for line in mounts.splitlines()):
        # id, parent, device, root, mount point, options, optional fields …, "-", type
        if ours and "-" in fields and fields[fields.index("-") + 1] == "cgroup2":
            inside = PurePosixPath(ours[0])
            if inside.is_relative_to(fields[3]):
                return str(PurePosixPath(fields[4]) / inside.relative_to(fields[3]))
    return None


def _room(machine: Machine, environments: Path) -> Iterator[Check]:
    places = (
        (str(environments), _ENVIRONMENT_GIB * _GIB),
        (_TEMPORARY, _TEMPORARY_GIB * _GIB),
        (_SHM, _SHM_MIB << 20),
    )
    for path, wanted in places:
        free = machine.free(path)
        if free is None:
            yield Check("mend", f"{path} cannot be written", "", f"{_OWNER}: make it writable for the runner's user")
        elif free < wanted:
            remedy = f"{_OWNER}: make room for {_size_of(wanted)}" + (
                " (in a container: --shm-size)" if path == _SHM else ""
            )
            yield Check("mend", f"{path} is full", f"{_size_of(free)} free", remedy)
        else:
            yield Check("well", path, f"{_size_of(free)} free")


def _size(machine: Machine) -> Iterator[Check]:
    ours, there = machine.cpus()
    detail = f"{ours} of {there} for us"
    if ours < _CPUS:
        remedy = f"{_OWNER}: give the runner {_CPUS} or more; with fewer, times are noisier and exams longer"
        yield Check("note", "few CPUs", detail, remedy)
    else:
        yield Check("well", "CPUs", detail)
    memory = machine.memory()
    if memory < _MEMORY_GIB * _GIB * 0.95:
        remedy = f"{_OWNER}: {_MEMORY_GIB} GiB or more let large workloads through"
        yield Check("note", "little memory", _size_of(memory), remedy)
    else:
        yield Check("well", "memory", _size_of(memory))


def _size_of(count: int) -> str:
    return f"{count / _GIB:.1f} GiB" if count >= _GIB else f"{count >> 20} MiB"
