"""Job → verifier process → Evaluation: the control plane's only way to the verifier, a foreign program to it."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from pydantic import ValidationError

from bot.contract import appraisal
from bot.errors import InfrastructureError, UsageError
from bot.evaluation import (
    MESSAGES,
    Broken,
    Commitment,
    Evaluation,
    Finding,
    Finished,
    Job,
    Message,
    Progress,
    Rechecked,
)

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
    """Run the verifier on this machine."""
    with _verifier("bot.verify", job.model_dump_json()) as program:
        for line in program.lines:
            match _parse(line):
                case Finished(evaluation=evaluation):
                    return evaluation
                case Broken(cause="usage", text=text):
                    raise UsageError(text)
                case Broken(text=text):
                    raise InfrastructureError(text)
                case (Progress() | Commitment()) as message:
                    watch(message)
        raise program.silent()


def recheck(bundle: Path) -> list[Finding]:
    """Have the verifier look again at a bundle's counterexample, without running the candidate.

    Raises:
        UsageError: the bundle is not one.
        InfrastructureError: the verifier could not do its work.
    """
    with _verifier("bot.verify.recheck", str(bundle.resolve())) as program:
        for line in program.lines:
            match _parse(line):
                case Rechecked(findings=findings):
                    return findings
                case Broken(cause="usage", text=text):
                    raise UsageError(text)
                case _:
                    break
        raise program.silent()


def _no_steps(_: appraisal.Step) -> None:
    """Watch nothing."""


def appraise(order: appraisal.Order, watch: Callable[[appraisal.Step], None] = _no_steps) -> appraisal.Result:
    """Have a contract itself appraised by the verifier on this machine.

    Raises:
        UsageError: the order names something that does not exist or is wrong.
        InfrastructureError: the verifier could not do its work.
    """
    with _verifier("bot.verify.appraisal", order.model_dump_json()) as program:
        for line in program.lines:
            match _parse_appraisal(line):
                case appraisal.Step() as step:
                    watch(step)
                case appraisal.Broken(cause="usage", text=text):
                    raise UsageError(text)
                case appraisal.Broken(text=text):
                    raise InfrastructureError(text)
                case result:
                    return result
        raise program.silent()


@dataclass(frozen=True, slots=True)
class _Program:
    """A verifier that runs: what it says, and what it leaves in its log."""

    lines: IO[str]
    log: IO[bytes]

    def silent(self) -> InfrastructureError:
        """It ended without a result; the end of its log says why."""
        self.log.seek(0)
        said = self.log.read()[-_LOG_KEPT:].decode("utf-8", "replace").strip()
        return InfrastructureError(f"the verifier ended without a result\n{said}".strip())


@contextlib.contextmanager
def _verifier(module: str, order: str) -> Iterator[_Program]:
    """Start one of the verifier's programs without our environment: it holds tokens, and the verifier needs none."""
    root = Path(__file__).resolve().parents[1]
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LANG") if name in os.environ}
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(
            [sys.executable, "-m", module],
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
            process.stdin.write(order)
            process.stdin.close()
            yield _Program(process.stdout, log)
        finally:
            process.kill()


def _parse(line: str) -> Message:
    try:
        return MESSAGES.validate_json(line)
    except ValidationError:
        raise InfrastructureError(f"the verifier said something that is no message: {line[:200]!r}") from None


def _parse_appraisal(line: str) -> appraisal.Line:
    try:
        return appraisal.LINES.validate_json(line)
    except ValidationError:
        raise InfrastructureError(f"the verifier said something that is no message: {line[:200]!r}") from None
