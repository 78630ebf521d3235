"""The verifier that stays: torch is imported once, and a quick exam is ready before the file arrives.

One JSON object a line on standard input: first whom to be ready for, then jobs. Each job is answered as bot.verify
answers it. What is prepared serves `quick` alone, which decides nothing for the record: its salt is drawn, and its
draws and expected values computed, before the candidate exists; every other mode draws anew. A worker serves one
candidate, whatever the mode, and was started before any secret of its exam was.
"""

import contextlib
import sys
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from bot.contract.load import LoadedContract, load_contract
from bot.errors import InfrastructureError, UsageError
from bot.evaluation import Broken, Evaluation, Finished, Job, Preparation
from bot.verify.calls import Worker
from bot.verify.conduct import examine, hold, open_exam
from bot.verify.exam import Exam
from bot.verify.program import say, waiting
from bot.verify.start import start_worker, turn_on


@dataclass
class Readiness:
    """One exam in waiting."""

    wanted: Preparation
    files: tuple[tuple[str, int], ...]
    loaded: LoadedContract
    worker: Worker
    exam: Exam

    def close(self) -> None:
        """End the worker that waits."""
        self.worker.close()


def _files(wanted: Preparation) -> tuple[tuple[str, int], ...]:
    """The contract's files with their times: whether it is the one that was prepared for."""
    folder = Path(wanted.contracts_dir) / wanted.contract
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    return tuple((str(path), path.stat().st_mtime_ns) for path in paths)


def prepare(wanted: Preparation) -> Readiness:
    """A worker that has imported torch, and a quick exam with all its questions.

    Raises:
        UsageError: the contract is wrong.
        InfrastructureError: no worker could be started.
    """
    files, loaded = _files(wanted), load_contract(Path(wanted.contracts_dir), wanted.contract)
    with turn_on(wanted.device, lambda _: None):
        return _prepared(wanted, files, loaded)


def _prepared(wanted: Preparation, files: tuple[tuple[str, int], ...], loaded: LoadedContract) -> Readiness:
    worker = start_worker(loaded.contract, wanted.device, wanted.sandbox)
    try:
        job = Job(
            contracts_dir=wanted.contracts_dir,
            contract=wanted.contract,
            candidate_name="",
            source="",
            mode="quick",
            device=wanted.device,
            sandbox=wanted.sandbox,
        )
        exam = open_exam(job, loaded, worker, lambda _: None, prepared=True)
        for index in range(len(exam.checks)):
            exam.question(index)
        worker.ready()
        worker.stop()
    except BaseException:
        worker.close()
        raise
    return Readiness(wanted, files, loaded, worker, exam)


def obey(job: Job, ready: Readiness) -> Evaluation:
    """One job with what waits for it.

    Raises:
        UsageError: the job names something that is not there or is wrong.
        InfrastructureError: the exam could not be held.
    """
    with turn_on(job.device, waiting), ready.worker:
        if job.mode != "quick":
            return examine(job, ready.loaded, ready.worker, say)
        ready.exam.job, ready.exam.watch = job, say
        return hold(ready.exam)


def renewed(ready: Readiness) -> Readiness:
    """What was prepared and not used, with another worker."""
    with turn_on(ready.wanted.device, lambda _: None):
        worker = start_worker(ready.loaded.contract, ready.wanted.device, ready.wanted.sandbox)
        if ready.wanted.device != "cpu":
            worker.ready()  # It makes its context while the device is ours.
    worker.allowance, worker.spent = ready.exam.allowance, ready.exam.spent
    ready.exam.waiting = worker
    return Readiness(ready.wanted, ready.files, ready.loaded, worker, ready.exam)


def _fits(job: Job, wanted: Preparation) -> bool:
    asked = Preparation(contracts_dir=job.contracts_dir, contract=job.contract, device=job.device, sandbox=job.sandbox)
    return asked == wanted


class _Resident:
    """What waits, and what it is for."""

    def __init__(self, wanted: Preparation) -> None:
        """Nothing waits yet."""
        self.wanted = wanted
        self.ready: Readiness | None = None

    def prepare(self) -> None:
        """Be ready for the next job."""
        if self.ready is None:
            self.ready = prepare(self.wanted)

    def take(self, job: Job) -> Readiness:
        """What waits, for this job.

        Raises:
            UsageError: it is for others.
        """
        if not _fits(job, self.wanted):
            raise UsageError(f"this verifier is ready for {self.wanted.contract} on {self.wanted.device} only")
        if self.ready is not None and _files(self.wanted) != self.ready.files:
            self.close()
        self.prepare()
        taken, self.ready = self.ready, None
        assert taken is not None  # noqa: S101 - just prepared
        return taken

    def close(self) -> None:
        """Nothing waits any more."""
        if self.ready is not None:
            self.ready.close()
            self.ready = None


def main() -> int:
    """Until standard input ends."""
    resident = _Resident(Preparation.model_validate_json(sys.stdin.readline()))
    with contextlib.closing(resident):
        while True:
            try:
                resident.prepare()
            except (UsageError, InfrastructureError):
                # The next job meets the same, and is told.
                resident.close()
            line = sys.stdin.readline()
            if not line:
                return 0
            try:
                job = Job.model_validate_json(line)
                taken = resident.take(job)
                say(Finished(evaluation=obey(job, taken)))
                if job.mode != "quick":
                    resident.ready = renewed(taken)
            except ValidationError as error:
                say(Broken(cause="usage", text=f"not a job: {error.error_count()} mistakes"))
            except UsageError as error:
                say(Broken(cause="usage", text=str(error)))
            except InfrastructureError as error:
                say(Broken(cause="infrastructure", text=str(error)))


if __name__ == "__main__":
    sys.exit(main())
