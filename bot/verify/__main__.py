"""The verifier's process: one Job on standard input, JSON lines out, the last of them an Evaluation or what broke."""

import sys
from pathlib import Path

from pydantic import ValidationError

from bot.contract.load import load_contract, problems_of
from bot.errors import DataError, InfrastructureError, UsageError
from bot.evaluation import Broken, Finished, Job
from bot.verify.program import say, waiting
from bot.verify.start import start_worker, turn_on


def main() -> int:
    """Examine; 0 when there is an evaluation, 2 when not."""
    try:
        job = Job.model_validate_json(sys.stdin.buffer.read())
        loaded = load_contract(Path(job.contracts_dir), job.contract)
        with turn_on(job.device, waiting), start_worker(loaded.contract, job.device, job.sandbox) as worker:
            # Imported only now: torch takes a second here and in the worker, which can be the same second.
            from bot.verify.conduct import examine  # noqa: PLC0415

            say(Finished(evaluation=examine(job, loaded, worker, say)))
    except ValidationError as error:
        say(Broken(cause="usage", text=str(DataError("job", problems_of(error)))))
    except UsageError as error:
        say(Broken(cause="usage", text=str(error)))
    except InfrastructureError as error:
        say(Broken(cause="infrastructure", text=str(error)))
    else:
        return 0
    return 2


if __name__ == "__main__":
    sys.exit(main())
