"""Pid 1 of the PID namespace around one sandbox: builds its mounts, starts bubblewrap, stops and resumes all in it.

A program of its own (`python -I -S stopper.py`), standard library only. It reads one JSON order from its control
socket, then single-byte commands: S (stop every task, confirmed), C (continue). When it dies, so does all it started:
the kernel kills a PID namespace with its pid 1. Its parent, outside the namespace, waits for it and watches how much
memory all of them hold together; who ends when is told by exit status (`MEMORY_STATUS`).

Why here and not in the verifier: `kill(-1, SIGSTOP)` from a namespace's pid 1 reaches every process in it at once,
while enumerating tasks loses to one that forks and exits, and a process group misses `setsid` (design.md, Stopped
between calls). Why the mounts are staged here: the sandbox runs under a uid that cannot read a Python below /root, so
the allow-list is bound into a private tmpfs that everybody can enter, before the uid is taken.
"""

import contextlib
import ctypes
import json
import os
import resource
import signal
import socket
import sys
import time

_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWPID = 0x00020000, 0x10000000, 0x20000000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
_MS_NOSUID, _MS_NODEV = 2, 4
_PR_SET_PDEATHSIG = 1
_CONFIRM_SECONDS = 5.0
_WATCH_SECONDS = 0.2
MEMORY_STATUS = 77
"""The exit status that says: ended because the sandbox held too much memory."""
_INODE_BYTES = 1024
"""What the kernel keeps for a file in a tmpfs, about; a million empty files are memory too."""
_PF_EXITING = 4
_OOM_FIRST = b"1000"
_LIMITS = (
    ("RLIMIT_AS", resource.RLIMIT_AS),
    ("RLIMIT_NPROC", resource.RLIMIT_NPROC),
    ("RLIMIT_NOFILE", resource.RLIMIT_NOFILE),
    ("RLIMIT_FSIZE", resource.RLIMIT_FSIZE),
)
_FORBIDDEN = (
    "user namespaces must be allowed (user.max_user_namespaces, kernel.unprivileged_userns_clone, "
    "kernel.apparmor_restrict_unprivileged_userns)"
)


def _call(function: str, *arguments: object) -> None:
    if getattr(_LIBC, function)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}{_hint(function)}")


def _hint(function: str) -> str:
    return f"; {_FORBIDDEN}" if function == "unshare" and os.geteuid() != 0 else ""


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    encoded = [None if text is None else text.encode() for text in (source, target, kind, data)]
    _call("mount", encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3])


def _new_namespaces(*, root: bool) -> None:
    """A mount and a PID namespace of our own; for an ordinary user inside a user namespace that maps only them."""
    uid, gid = os.getuid(), os.getgid()
    _call("unshare", _CLONE_NEWNS | _CLONE_NEWPID | (0 if root else _CLONE_NEWUSER))
    if not root:
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:  # noqa: PTH123 - no pathlib: starts faster
                file.write(text)


def _stage(folder: str, sources: list[str]) -> list[str]:
    """Bind each source read-only below `folder` as 0, 1, 2, …; returns where they now are."""
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE)
    _mount("tmpfs", folder, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755,size=64k")
    staged = []
    for number, source in enumerate(sources):
        target = f"{folder}/{number}"
        if os.path.isdir(source):  # noqa: PTH112 - as above
            os.mkdir(target)  # noqa: PTH102
        else:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
        _mount(source, target, None, _MS_BIND | _MS_REC)
        staged.append(target)
    # A fresh /proc, so that stopping can be confirmed by what this namespace alone holds.
    _mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV)
    return staged


def _start(order: dict[str, object], staged: list[str], control: socket.socket) -> int:
    """Fork; the child enters its group, sets limits, takes the sandbox's uid and becomes bubblewrap.

    Limits come here and not in the worker alone: bubblewrap's pid 1, which a candidate shares a uid with and can make
    run code of its own through /proc/1/mem, would have none.

    Raises:
        OSError: the child could not become bubblewrap.
    """
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.close(write)
        with open(read, "rb") as said:  # noqa: PTH123
            problem = said.read()
        if problem:
            raise OSError(problem.decode("utf-8", "replace"))
        return child
    try:
        control.close()
        arguments = [str(item) for item in order["bwrap"]]  # type: ignore[attr-defined]
        arguments = [staged[int(item[7:])] if item.startswith("STAGED:") else item for item in arguments]
        _confine(order)
        os.execve(arguments[0], arguments, {})  # noqa: S606 - no shell is the point
    except BaseException as error:  # noqa: BLE001 - a forked child must not return into its parent's code
        os.write(write, str(error).encode())
    os._exit(70)


def _confine(order: dict[str, object]) -> None:
    """What binds this process and all that it becomes or starts."""
    if order["group"] is not None:
        # Where it may not be entered it is not a guard; the verifier looks.
        with contextlib.suppress(OSError), open(f"{order['group']}/cgroup.procs", "wb", buffering=0) as file:  # noqa: PTH123
            file.write(b"0")
    with open("/proc/self/oom_score_adj", "wb", buffering=0) as file:  # noqa: PTH123
        file.write(_OOM_FIRST)
    for (name, kind), value in zip(_LIMITS, order["limits"], strict=True):  # type: ignore[call-overload]
        if value:
            try:
                resource.setrlimit(kind, (value, value))
            except (OSError, ValueError):
                hard = resource.getrlimit(kind)[1]
                raise OSError(f"{name} cannot be set to {value}: the hard limit here is {hard}, raise it") from None
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_MSGQUEUE, (0, 0))
    uid = order["uid"]
    if isinstance(uid, int):
        why = "the kernel left it as it was"
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        except (OSError, OverflowError) as error:
            why = str(error)
        if os.getresuid() != (uid, uid, uid) or os.getresgid() != (uid, uid, uid):
            raise OSError(f"uid {uid} cannot be taken ({why}): it must exist in this user namespace")


def _watch(first: int, limit: int) -> int:
    """Wait for pid 1 of the namespace, and end it when its tasks hold more than `limit` bytes together. Returns the
    exit status that says which."""
    while True:
        ended, status = os.waitpid(first, os.WNOHANG)
        if ended:
            return 0 if status == 0 else 1
        if limit and _held() > limit:
            os.kill(first, signal.SIGKILL)
            os.waitpid(first, 0)
            return MEMORY_STATUS
        signal.sigtimedwait({signal.SIGCHLD}, _WATCH_SECONDS)


def _held() -> int:
    """Bytes that the sandbox's tasks hold, and its files. Pages that several share count for each."""
    if os.path.exists("/proc/self"):  # noqa: PTH110 - not yet the namespace's own /proc, where we are not
        return 0
    total = 0
    for pid in os.listdir("/proc"):  # noqa: PTH208
        if not pid.isdigit() or pid == "1":
            continue
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/status", "rb") as file:  # noqa: PTH123
                lines = dict(line.split(b":", 1) for line in file if b":" in line)
            for name in (b"RssAnon", b"RssShmem", b"VmPTE", b"VmSwap"):
                total += int(lines.get(name, b"0").split()[0]) << 10
            if lines[b"NSpid"].split()[1:] == [b"1"]:
                total += _filed(int(pid))
    return total


def _filed(pid: int) -> int:
    """Bytes that files of the sandbox hold, as its first process sees them. That process starts with our own root,
    until bubblewrap has built the sandbox's: what the machine's /tmp holds is not the candidate's."""
    root = f"/proc/{pid}/root"
    if os.path.samefile(root, "/"):  # noqa: PTH121 - no pathlib: starts faster
        return 0
    total = 0
    for place in ("tmp", "dev/shm"):
        held = os.statvfs(f"{root}/{place}")
        total += (held.f_blocks - held.f_bfree) * held.f_frsize
        total += (held.f_files - held.f_ffree) * _INODE_BYTES
    return total


_settled: tuple[object, ...] | None = None
"""What the last look that found everything stopped saw: the last pid given out, and each task."""


def _running() -> bool:
    """Whether any thread but ours can still run, or could be made to by one that dies.

    States other than T (stopped), t, Z (zombie), X (dead), and D run. A thread in D waits inside the kernel, for a
    vfork child that we have stopped, say; it stops before it returns to its own code, because the signal is pending.

    One look is not enough. A task that was already exiting is not stopped, and its end may continue others that this
    look had passed: by its exit signal, by their parent-death signal, by orphaning their process group. So all are
    stopped again until two looks agree on every task, dead ones too, and no pid was given out between; nothing has died
    then since the last stop. Where nothing came or went since the last time, one look agrees with that.
    """
    global _settled  # noqa: PLW0603 - the one stopper of one namespace
    seen = _look()
    if seen is not None and seen == _settled:
        return False
    _settled = seen
    try:
        os.kill(-1, signal.SIGSTOP)
    except ProcessLookupError:
        return False
    return True


def _look() -> tuple[object, ...] | None:
    """The last pid given out and each task with whether it lives; None when one can run."""
    with open("/proc/loadavg", "rb") as file:  # noqa: PTH123
        last = file.read().split()[-1]
    tasks: list[tuple[str, bool | None]] = []
    for pid in os.listdir("/proc"):  # noqa: PTH208
        if not pid.isdigit() or pid == "1":
            continue
        try:
            for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
                with open(f"/proc/{pid}/task/{task}/stat", "rb") as file:  # noqa: PTH123
                    fields = file.read().rpartition(b") ")[2].split(None, 7)
                if fields[0] not in b"TtZXD" or (fields[0] == b"D" and int(fields[6]) & _PF_EXITING):
                    return None
                tasks.append((task, fields[0] in b"ZX"))
        except OSError:  # It ended while we looked.
            tasks.append((pid, None))
    return (last, *tasks)


def _stop() -> bytes:
    deadline = time.monotonic() + _CONFIRM_SECONDS
    try:
        os.kill(-1, signal.SIGSTOP)
    except ProcessLookupError:
        return b"s"
    while _running():
        if time.monotonic() > deadline:
            return b"!"
    return b"s"


def _continue() -> bytes:
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGCONT)
    return b"c"


def _serve(control: socket.socket, child: int) -> None:
    """Obey until the verifier hangs up; then leave, and the namespace ends with us."""
    actions = {b"S": _stop, b"C": _continue}
    while command := control.recv(1):
        if command == b"E":
            ended, status = os.waitpid(child, os.WNOHANG)
            control.send(b"e" + (os.waitstatus_to_exitcode(status) if ended else 1000).to_bytes(4, "big", signed=True))
            continue
        control.send(actions[command]())


def main() -> None:
    """Read the order, build the sandbox, serve."""
    control = socket.socket(fileno=int(sys.argv[1]))
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    order = json.loads(control.recv(1 << 20))
    root = os.geteuid() == 0
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    try:
        _new_namespaces(root=root)
        if first := os.fork():
            control.close()
            for fd in order["fds"]:
                os.close(fd)
            os._exit(_watch(first, order["memory"]))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        staged = _stage(order["stage"], order["sources"])
        child = _start(order, staged, control)
    except OSError as error:
        control.send(b"!" + str(error).encode())
        os._exit(1)
    # The worker's end of the wire must be the worker's alone: its death is then the end of the stream.
    for fd in order["fds"]:
        os.close(fd)
    control.send(b"r")
    _serve(control, child)
    os._exit(0)


if __name__ == "__main__":
    main()
