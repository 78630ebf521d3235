"""`proctor verify --resident`: examine a file whenever it is written, with a verifier that stays."""

import time
from collections.abc import Callable
from pathlib import Path

from bot.errors import UsageError
from bot.evaluation import Evaluation, Job
from bot.launch import Launcher

POLL_SECONDS = 0.02
"""How often the file's time is looked at: a person notices a tenth of a second."""

Examined = Callable[[Evaluation, float], None]
"""What to do with an evaluation and the seconds from the file's change to it."""


def watch_file(
    file: Path, job_of: Callable[[], Job], launcher: Launcher, tell: Examined, wrong: Callable[[str], None]
) -> None:
    """Examine `file` as it is, and again after each change, until interrupted. A file that cannot be examined is told
    to `wrong`, and waited for.

    Raises:
        InfrastructureError: the verifier could not do its work.
    """
    seen: tuple[int, int] | None = None
    while True:
        state = _state(file)
        if state == seen or state is None:
            time.sleep(POLL_SECONDS)
            continue
        begun, seen = time.monotonic(), state
        try:
            evaluation = launcher(job_of())
        except UsageError as error:
            wrong(str(error))
            continue
        tell(evaluation, time.monotonic() - begun)


def _state(file: Path) -> tuple[int, int] | None:
    """Changes with every write; None while there is no file, as between an editor's two renames."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
