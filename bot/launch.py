"""Job → verifier process → Evaluation: the control plane's only way to the verifier, a foreign program to it."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from bot.errors import InfrastructureError, UsageError
from bot.evaluation import MESSAGES, Broken, Commitment, Evaluation, Finished, Job, Progress

Watch = Callable[[Progress | Commitment], None]
_LOG_KEPT = 4000


def _nobody(_: Progress | Commitment) -> None:
    """Watch nothing."""


class Launcher(Protocol):
    """Runs one job; `watch` sees progress and the salt commitment as they come.

    Raises:
        UsageError: the job names something that does not exist or is wrong.
        InfrastructureError: the verifier could not do its work.
    """

    def __call__(self, job: Job, watch: Watch = _nobody) -> Evaluation:
        """Run the job and return the facts."""
        ...


def launch(job: Job, watch: Watch = _nobody) -> Evaluation:
    """Run the verifier on this machine, without our environment: it holds tokens, and the verifier needs none."""
    root = Path(__file__).resolve().parents[1]
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LANG") if name in os.environ}
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(
            [sys.executable, "-m", "bot.verify"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**environment, "PYTHONPATH": str(root)},
            start_new_session=True,
        ) as process,
    ):
        assert process.stdin is not None  # noqa: S101 - asked for above
        assert process.stdout is not None  # noqa: S101
        try:
            process.stdin.write(job.model_dump_json())
            process.stdin.close()
            for line in process.stdout:
                match _parse(line):
                    case Finished(evaluation=evaluation):
                        return evaluation
                    case Broken(cause="usage", text=text):
                        raise UsageError(text)
                    case Broken(text=text):
                        raise InfrastructureError(text)
                    case (Progress() | Commitment()) as message:
                        watch(message)
        finally:
            process.kill()
        log.seek(0)
        said = log.read()[-_LOG_KEPT:].decode("utf-8", "replace").strip()
        raise InfrastructureError(f"the verifier ended without an evaluation\n{said}".strip())


def _parse(line: str) -> Progress | Commitment | Finished | Broken:
    try:
        return MESSAGES.validate_json(line)
    except ValidationError:
        raise InfrastructureError(f"the verifier said something that is no message: {line[:200]!r}") from None
