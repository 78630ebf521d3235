"""Job → verifier process → Evaluation: the control plane's only way to the verifier, a foreign program to it."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol, TypeVar

from pydantic import TypeAdapter, ValidationError

from bot import sanitizer
from bot.contract import appraisal
from bot.errors import InfrastructureError, UsageError
from bot.evaluation import (
    MESSAGES,
    Broken,
    Commitment,
    Evaluation,
    Finding,
    Finished,
    Inspected,
    Inspection,
    Job,
    Message,
    Preparation,
    Progress,
    Rechecked,
)

Said = TypeVar("Said")
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
        return _finished(program, watch)


def _finished(program: "_Program", watch: Watch) -> Evaluation:
    """What a verifier says until it has finished a job."""
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


class Resident:
    """A verifier that stays: examines as `launch` does, a quick one in the time that the candidate takes. Use as a
    context manager; it starts with the first job, and again after it broke."""

    def __init__(self, wanted: Preparation) -> None:
        """Be ready for these jobs."""
        self._wanted = wanted
        self._stack = contextlib.ExitStack()
        self._program: _Program | None = None

    def start(self) -> None:
        """Start it now, so that it is ready when the first job comes."""
        if self._program is None:
            self._program = self._stack.enter_context(_verifier("bot.verify.resident", None))
            self._program.write(self._wanted.model_dump_json())

    def __call__(self, job: Job, watch: Watch = _nobody) -> Evaluation:
        """Run the job and return the facts; one that this verifier is not ready for gets a verifier of its own.

        Raises:
            UsageError, InfrastructureError: as `launch`.
        """
        asked = Preparation(
            contracts_dir=job.contracts_dir, contract=job.contract, device=job.device, sandbox=job.sandbox
        )
        if asked != self._wanted:
            return launch(job, watch)
        self.start()
        program = self._program
        assert program is not None  # noqa: S101 - just started
        try:
            program.write(job.model_dump_json())
            return _finished(program, watch)
        except InfrastructureError:
            self.close()
            raise

    def close(self) -> None:
        """End it."""
        self._program = None
        self._stack.close()

    def __enter__(self) -> "Resident":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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


def inspect(order: Inspection) -> Inspected:
    """Have the verifier compile a candidate without a GPU, and read its machine code.

    Raises:
        UsageError: the order names something that does not exist or is wrong.
        InfrastructureError: the verifier could not do its work.
    """
    with _verifier("bot.verify.inspect", order.model_dump_json()) as program:
        for line in program.lines:
            match _parse(line):
                case Inspected() as found:
                    return found
                case Broken(cause="usage", text=text):
                    raise UsageError(text)
                case Broken(text=text):
                    raise InfrastructureError(text)
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
            match _parsed(appraisal.LINES, line):
                case appraisal.Step() as step:
                    watch(step)
                case appraisal.Broken(cause="usage", text=text):
                    raise UsageError(text)
                case appraisal.Broken(text=text):
                    raise InfrastructureError(text)
                case result:
                    return result
        raise program.silent()


def sanitize(order: sanitizer.Sanitation) -> sanitizer.Sanitized:
    """Have compute-sanitizer watch a candidate on this machine's GPU.

    Raises:
        UsageError: the order names something that does not exist or is wrong.
        InfrastructureError: no GPU, no compute-sanitizer, or the verifier could not do its work.
    """
    with _verifier("bot.verify.sanitizer", order.model_dump_json()) as program:
        for line in program.lines:
            match _parsed(sanitizer.LINES, line):
                case sanitizer.Sanitized() as found:
                    return found
                case Broken(cause="usage", text=text):
                    raise UsageError(text)
                case Broken(text=text):
                    raise InfrastructureError(text)
        raise program.silent()


@dataclass(frozen=True, slots=True)
class _Program:
    """A verifier that runs: what it says, what it is told, and what it leaves in its log."""

    lines: IO[str]
    orders: IO[str]
    log: IO[bytes]

    def write(self, line: str) -> None:
        """Tell it something.

        Raises:
            InfrastructureError: it does not listen any more.
        """
        try:
            self.orders.write(line + "\n")
            self.orders.flush()
        except OSError:
            raise self.silent() from None

    def silent(self) -> InfrastructureError:
        """It ended without a result; the end of its log says why."""
        self.log.seek(0)
        said = self.log.read()[-_LOG_KEPT:].decode("utf-8", "replace").strip()
        return InfrastructureError(f"the verifier ended without a result\n{said}".strip())


@contextlib.contextmanager
def _verifier(module: str, order: str | None) -> Iterator[_Program]:
    """Start one of the verifier's programs without our environment: it holds tokens, and the verifier needs none. With
    an order that is all it is told."""
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
            if order is not None:
                process.stdin.write(order)
                process.stdin.close()
            yield _Program(process.stdout, process.stdin, log)
        finally:
            process.kill()


def _parse(line: str) -> Message:
    return _parsed(MESSAGES, line)


def _parsed(kinds: TypeAdapter[Said], line: str) -> Said:
    try:
        return kinds.validate_json(line)
    except ValidationError:
        raise InfrastructureError(f"the verifier said something that is no message: {line[:200]!r}") from None
