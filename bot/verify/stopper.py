"""Pid 1 of the PID namespace around one sandbox: builds its mounts, starts bubblewrap, stops and resumes all in it.

A program of its own (`python -I -S stopper.py`), standard library only. It reads one JSON order from its control
socket, then single-byte commands: S (stop every task, confirmed), C (continue). When it dies, so does all it started:
the kernel kills a PID namespace with its pid 1.

Why here and not in the verifier: `kill(-1, SIGSTOP)` from a namespace's pid 1 reaches every process in it at once,
while enumerating tasks loses to one that forks and exits, and a process group misses `setsid` (design.md, Stopped
between calls). Why the mounts are staged here: the sandbox runs under a uid that cannot read a Python below /root, so
the allow-list is bound into a private tmpfs that everybody can enter, before the uid is taken.
"""

import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
import time

_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWPID = 0x00020000, 0x10000000, 0x20000000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
_MS_NOSUID, _MS_NODEV = 2, 4
_PR_SET_PDEATHSIG = 1
_CONFIRM_SECONDS = 2.0


def _call(function: str, *arguments: object) -> None:
    if getattr(_LIBC, function)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}")


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
    """Fork; the child takes the sandbox's uid and becomes bubblewrap."""
    child = os.fork()
    if child:
        return child
    try:
        control.close()
        arguments = [str(item) for item in order["bwrap"]]  # type: ignore[attr-defined]
        arguments = [staged[int(item[7:])] if item.startswith("STAGED:") else item for item in arguments]
        uid = order["uid"]
        if isinstance(uid, int):
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        os.execve(arguments[0], arguments, {})  # noqa: S606 - no shell is the point
    except BaseException as error:  # noqa: BLE001 - a forked child must not return into its parent's code
        os.write(2, f"proctor stopper: {error}\n".encode())
    os._exit(70)


def _running() -> bool:
    """Whether any thread but ours can still run: states other than T (stopped), t, Z (zombie), X (dead), and D.

    A thread in D waits inside the kernel, for a vfork child that we have stopped, say; it stops before it returns to
    its own code, because the signal is pending.
    """
    for pid in os.listdir("/proc"):  # noqa: PTH208
        if not pid.isdigit() or pid == "1":
            continue
        try:
            for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
                with open(f"/proc/{pid}/task/{task}/stat", "rb") as file:  # noqa: PTH123
                    if file.read().rpartition(b") ")[2][:1] not in b"TtZXD":
                        return True
        except OSError:  # It ended while we looked.
            continue
    return False


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
    try:
        _new_namespaces(root=root)
        if os.fork():
            control.close()
            for fd in order["fds"]:
                os.close(fd)
            os.wait()
            os._exit(0)
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
