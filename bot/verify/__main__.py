"""The verifier's process: one Job on standard input, JSON lines out, the last of them an Evaluation or what broke."""

import sys

from pydantic import ValidationError

from bot.contract.load import problems_of
from bot.errors import DataError, InfrastructureError, UsageError
from bot.evaluation import Broken, Commitment, Finished, Job, Progress


def _say(message: Progress | Commitment | Finished | Broken) -> None:
    sys.stdout.write(message.model_dump_json() + "\n")
    sys.stdout.flush()


def main() -> int:
    """Examine; 0 when there is an evaluation, 2 when not."""
    # Imported here: torch takes a second, and a job that does not parse should not pay it.
    from bot.verify.conduct import examine  # noqa: PLC0415

    try:
        job = Job.model_validate_json(sys.stdin.buffer.read())
        _say(Finished(evaluation=examine(job, _say)))
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
