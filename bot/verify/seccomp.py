"""The system calls that a sandbox may not make, as a filter that bubblewrap loads."""

import contextlib
import os
import socket
import tempfile
from collections.abc import Iterator
from typing import IO

import pyseccomp

from bot.errors import OWNER, InfrastructureError

# Its own CPU set is the verifier's to choose; the rest reaches other processes, the kernel, or new privileges, or holds
# memory that belongs to no task and no sized tmpfs (memfd, System V and message queues).
_DENIED = """
sched_setaffinity sched_setscheduler sched_setparam sched_setattr setpriority ioprio_set ptrace process_vm_readv
process_vm_writev process_madvise kcmp pidfd_getfd perf_event_open bpf userfaultfd mount umount2 pivot_root move_mount
open_tree fsopen fsconfig fsmount fspick mount_setattr setns unshare keyctl add_key request_key init_module finit_module
delete_module kexec_load kexec_file_load reboot swapon swapoff syslog acct quotactl quotactl_fd iopl ioperm settimeofday
clock_settime clock_adjtime adjtimex nfsservctl lookup_dcookie io_uring_setup io_uring_enter io_uring_register
timer_create mq_notify mq_open memfd_create memfd_secret shmget semget msgget fanotify_init open_by_handle_at
"""
_F_SETSIG = 10
"""fcntl's command that chooses the signal of asynchronous input. It, `timer_create` and `mq_notify` could choose
SIGCONT: the kernel itself would then wake a sandbox that we have stopped."""
_INT = 0xFFFFFFFF
"""The kernel reads 32 bits of an `int`; a filter that compares 64 lets `10 | 1 << 32` through."""
_FAMILIES = frozenset({socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK})
"""Kinds of sockets. Not all others belong to a network namespace: AF_VSOCK reaches the host of a virtual machine."""


@contextlib.contextmanager
def seccomp_filter() -> Iterator[IO[bytes]]:
    """The filter as a file that a child inherits, read from its start.

    Raises:
        InfrastructureError: libseccomp cannot make it.
    """
    with tempfile.TemporaryFile() as file:
        try:
            _rules().export_bpf(file)
        except (RuntimeError, OSError, ValueError) as error:
            raise InfrastructureError(
                f"the system-call filter cannot be made: {error}\n{OWNER}: install libseccomp 2.4 or newer"
            ) from error
        file.flush()
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        os.set_inheritable(file.fileno(), True)  # noqa: FBT003 - its only signature
        yield file


def _rules() -> pyseccomp.SyscallFilter:
    rules = pyseccomp.SyscallFilter(defaction=pyseccomp.ALLOW)
    deny = pyseccomp.ERRNO(1)
    for name in _DENIED.split():
        # Systems without one of these calls have nothing to deny.
        if pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name) >= 0:
            rules.add_rule(deny, name)
    rules.add_rule(deny, "fcntl", pyseccomp.Arg(1, pyseccomp.MASKED_EQ, _INT, _F_SETSIG))
    known = range(max(_FAMILIES) + 1)
    for family in sorted(set(known) - _FAMILIES):
        rules.add_rule(deny, "socket", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, _INT, family))
    # Compared whole: what lies beyond 32 bits is no family either.
    rules.add_rule(deny, "socket", pyseccomp.Arg(0, pyseccomp.GT, max(_FAMILIES)))
    return rules
