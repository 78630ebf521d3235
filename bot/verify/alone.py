"""One exam at a time on a device: whoever comes later waits, and says for whom. The system lets go of a lock whose
holder died.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from bot.errors import OWNER, InfrastructureError


@contextmanager
def alone_with(device: str, say: Callable[[str], None], folder: Path | None = None) -> Iterator[None]:
    """Hold the lock of a device, by its UUID, against every user's verifiers on this machine.

    Raises:
        InfrastructureError: the lock's file cannot be written.
    """
    place = folder or Path(tempfile.gettempdir()) / "proctor-devices"
    path = place / f"{device}.lock"
    try:
        place.mkdir(exist_ok=True)
        with suppress(PermissionError):  # Somebody else's, made so by them.
            place.chmod(0o1777)
        lock = FileLock(path, mode=0o666)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            say(f"waiting for {_holder(path)}, which has the device")
            lock.acquire()
    except OSError as error:
        raise InfrastructureError(f"the lock of the device cannot be had: {error}. {OWNER}: see {place}") from error
    try:
        path.with_suffix(".holder").write_text(f"process {os.getpid()}", encoding="utf-8")
        yield
    finally:
        lock.release()


def _holder(path: Path) -> str:
    try:
        return path.with_suffix(".holder").read_text(encoding="utf-8") or "another exam"
    except OSError:
        return "another exam"
