"""The machine we run on, as far as `proctor runner` asks: files of the kernel's, programs, disks. Decides nothing."""

import ctypes
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Protocol

import psutil
from typing_extensions import override

_SECONDS = 20
_NOBODY = 65_534
_ALLOW_ALL = b"\x06\x00\x00\x00\x00\x00\xff\x7f"
"""One instruction of a system-call filter, `return SECCOMP_RET_ALLOW`: shows that filters can be installed."""


@dataclass(frozen=True, slots=True)
class Ran:
    """How a program ended, and what it said."""

    code: int
    text: str


class Machine(Protocol):
    """What can be asked of a machine. None: it has no such thing."""

    def read(self, path: str) -> str | None:
        """Text of a small file."""
        ...

    def run(self, command: Sequence[str]) -> Ran | None:
        """Run a program that is on the path; None where there is none."""
        ...

    def try_sandbox(self) -> Ran | None:
        """Run `true` in bubblewrap with the flags of an exam, as an ordinary user; None without bubblewrap."""
        ...

    def free(self, path: str) -> int | None:
        """Bytes that may be written where `path` is or will be."""
        ...

    def make_group(self, parent: str) -> str | None:
        """Make a control group and take it away; what went wrong, or None."""
        ...

    def library(self, name: str) -> bool:
        """Whether a shared library can be loaded."""
        ...

    def cpus(self) -> tuple[int, int]:
        """CPUs that we may use, and that there are."""
        ...

    def memory(self) -> int:
        """Bytes of memory."""
        ...

    def python(self) -> tuple[str, str]:
        """Version of Python, and the folder of its environment."""
        ...

    def packages(self) -> Mapping[str, str]:
        """Version of each package that is installed for this Python, by name."""
        ...


class ThisMachine(Machine):
    """The machine itself."""

    @override
    def read(self, path: str) -> str | None:
        try:
            return Path(path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    @override
    def run(self, command: Sequence[str]) -> Ran | None:
        return _run(command)

    @override
    def try_sandbox(self) -> Ran | None:
        if shutil.which("bwrap") is None:
            return None
        reading, writing = os.pipe()
        try:
            os.write(writing, _ALLOW_ALL)
            os.close(writing)
            return _run(_trial(reading), descriptor=reading)
        finally:
            os.close(reading)

    @override
    def free(self, path: str) -> int | None:
        place = Path(path).absolute()
        while not place.exists():
            place = place.parent
        return shutil.disk_usage(place).free if os.access(place, os.W_OK) else None

    @override
    def make_group(self, parent: str) -> str | None:
        group = Path(parent) / f"proctor-{secrets.token_hex(8)}"
        try:
            group.mkdir()
            group.rmdir()
        except OSError as error:
            return error.strerror or str(error)
        return None

    @override
    def library(self, name: str) -> bool:
        try:
            ctypes.CDLL(name)
        except OSError:
            return False
        return True

    @override
    def cpus(self) -> tuple[int, int]:
        return len(os.sched_getaffinity(0)), os.cpu_count() or 1

    @override
    def memory(self) -> int:
        return int(psutil.virtual_memory().total)

    @override
    def python(self) -> tuple[str, str]:
        return ".".join(map(str, sys.version_info[:3])), sys.prefix

    @override
    def packages(self) -> Mapping[str, str]:
        return {name: each.version for each in distributions() if (name := each.metadata["Name"])}


def _trial(seccomp: int) -> list[str]:
    """bubblewrap with the flags of an exam (bot/verify/sandbox.py), around `true`."""
    links = [name for name in ("/lib", "/lib64", "/bin") if Path(name).is_symlink()]
    folders = [name for name in ("/lib", "/lib64", "/bin") if Path(name).is_dir() and name not in links]
    return [
        *("bwrap", "--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL", "--new-session"),
        *("--die-with-parent", "--clearenv", "--seccomp", str(seccomp), "--proc", "/proc", "--dev", "/dev"),
        *("--size", str(1 << 20), "--tmpfs", "/tmp", "--ro-bind", "/usr", "/usr"),  # noqa: S108 - inside
        *(word for name in links for word in ("--symlink", str(Path(name).readlink()), name)),
        *(word for name in folders for word in ("--ro-bind", name, name)),
        *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp", "--", "/usr/bin/true"),  # noqa: S108
    ]


def _run(command: Sequence[str], descriptor: int | None = None) -> Ran | None:
    """Run a program without our environment, which may hold a token; the sandbox's trial as an ordinary user."""
    program = shutil.which(command[0])
    if program is None:
        return None
    lowered = _NOBODY if descriptor is not None and os.geteuid() == 0 else None
    try:
        done = subprocess.run(
            [program, *command[1:]],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_SECONDS,
            stdin=subprocess.DEVNULL,
            env={"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C"},
            pass_fds=[descriptor] if descriptor is not None else [],
            user=lowered,
            group=lowered,
            extra_groups=[] if lowered is not None else None,
            cwd="/",
        )
    except subprocess.TimeoutExpired:
        return Ran(124, f"no answer in {_SECONDS} s")
    except (OSError, subprocess.SubprocessError) as error:
        return Ran(126, str(error))
    return Ran(done.returncode, (done.stdout + done.stderr).strip())
