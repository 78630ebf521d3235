"""A control group (version 2) of one sandbox's own, below ours, where the machine lets us make one.

It needs no root, only a group that was delegated to us, and it is a second wall: without it the stopper's watchdog and
the limits of each process stand alone. What is up is said, never assumed (`Sandbox.guards`).
"""

import contextlib
import secrets
import time
from pathlib import Path

_PIDS_OF_OURS = 2
"""bubblewrap and its pid 1 are inside too."""
_GONE_SECONDS = 2.0
_LEFT_SECONDS = 60.0


class Group:
    """One group. `guards`: which of memory.max, pids.max and cgroup.kill it has."""

    def __init__(self, path: Path, guards: frozenset[str]) -> None:
        """A group that exists."""
        self.path = path
        self.guards = guards

    def entered(self) -> bool:
        """Whether the sandbox is in it."""
        try:
            return bool((self.path / "cgroup.procs").read_text(encoding="ascii").strip())
        except OSError:
            return False

    def ran_out(self) -> bool:
        """Whether the kernel ended something inside because memory.max was reached."""
        try:
            lines = (self.path / "memory.events").read_text(encoding="ascii").splitlines()
        except OSError:
            return False
        return any(int(line.split()[1]) > 0 for line in lines if line.startswith("oom_kill "))

    def kill(self) -> None:
        """End everything inside at once."""
        with contextlib.suppress(OSError):
            (self.path / "cgroup.kill").write_text("1", encoding="ascii")

    def remove(self) -> None:
        """Give it back; a group can only go once it is empty."""
        deadline = time.monotonic() + _GONE_SECONDS
        while self.path.is_dir() and time.monotonic() < deadline:
            try:
                self.path.rmdir()
            except OSError:
                time.sleep(0.005)


def make(memory: int, processes: int) -> Group | None:
    """A new group below our own with these limits (0: none), or None where there is none to be had."""
    own = own_group()
    if own is None:
        return None
    # Other processes in our group may forbid this; then the new one has no controllers, but can still be killed whole.
    with contextlib.suppress(OSError):
        (own / "cgroup.subtree_control").write_text("+memory +pids", encoding="ascii")
    _sweep(own)
    path = own / f"proctor-{secrets.token_hex(8)}"
    try:
        path.mkdir()
    except OSError:
        return None
    wanted = {"memory.max": memory, "pids.max": processes + _PIDS_OF_OURS if processes else 0}
    guards = {name for name, value in wanted.items() if value and _set(path / name, value)}
    if "memory.max" in guards:
        _set(path / "memory.swap.max", 0)
        _set(path / "memory.oom.group", 1)
    if (path / "cgroup.kill").exists():
        guards.add("cgroup.kill")
    return Group(path, frozenset(guards))


def _sweep(own: Path) -> None:
    """Take away what verifiers that were killed have left; a group that holds a process cannot be taken away."""
    for left in own.glob("proctor-*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _LEFT_SECONDS:
                left.rmdir()


def own_group(proc: Path = Path("/proc/self")) -> Path | None:
    """The folder of the version 2 group that we are in."""
    try:
        ours = [line[3:] for line in (proc / "cgroup").read_text().splitlines() if line.startswith("0::")]
        mounts = [line.split() for line in (proc / "mountinfo").read_text().splitlines()]
    except OSError:
        return None
    for fields in mounts:
        # id, parent, device, root, mount point, options, optional fields …, "-", type
        if "-" in fields and fields[fields.index("-") + 1] == "cgroup2" and ours:
            inside = Path(ours[0])
            if inside.is_relative_to(fields[3]):
                return Path(fields[4]) / inside.relative_to(fields[3])
    return None


def _set(file: Path, value: int) -> bool:
    try:
        file.write_text(str(value), encoding="ascii")
    except OSError:
        return False
    return True
