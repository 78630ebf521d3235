"""The verifier's process: one Job on standard input, JSON lines out, the last of them an Evaluation or what broke."""

import sys
from pathlib import Path

from pydantic import ValidationError

from bot.contract.load import load_contract, problems_of
from bot.errors import DataError, InfrastructureError, UsageError
from bot.evaluation import Broken, Commitment, Finished, Job, Progress
from bot.verify.start import start_worker, turn_on


def _say(message: Progress | Commitment | Finished | Broken) -> None:
    sys.stdout.write(message.model_dump_json() + "\n")
    sys.stdout.flush()


def _wait(text: str) -> None:
    _say(Progress(stage="build", done=0, total=0, text=text))


def main() -> int:
    """Examine; 0 when there is an evaluation, 2 when not."""
    try:
        job = Job.model_validate_json(sys.stdin.buffer.read())
        loaded = load_contract(Path(job.contracts_dir), job.contract)
        with turn_on(job.device, _wait), start_worker(loaded.contract, job.device, job.sandbox) as worker:
            # Imported only now: torch takes a second here and in the worker, which can be the same second.
            from bot.verify.conduct import examine  # noqa: PLC0415

            _say(Finished(evaluation=examine(job, loaded, worker, _say)))
    except ValidationError as error:
        _say(Broken(cause="usage", text=str(DataError("job", problems_of(error)))))
    except UsageError as error:
        _say(Broken(cause="usage", text=str(error)))
    except InfrastructureError as error:
        _say(Broken(cause="infrastructure", text=str(error)))
    else:
        return 0
    return 2


if __name__ == "__main__":
    sys.exit(main())
