"""How a program of the verifier's speaks: JSON lines on standard output, of a single order the last one."""

import sys
from collections.abc import Callable
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from bot.contract.load import problems_of
from bot.errors import DataError, InfrastructureError, UsageError
from bot.evaluation import Broken, Progress

Order = TypeVar("Order", bound=BaseModel)


def say(message: BaseModel) -> None:
    """Tell whoever started this."""
    sys.stdout.write(message.model_dump_json() + "\n")
    sys.stdout.flush()


def waiting(text: str) -> None:
    """Say what an exam waits for before it begins."""
    say(Progress(stage="build", done=0, total=0, text=text))


def obey(kind: type[Order], work: Callable[[Order], BaseModel], name: str) -> int:
    """Do what was ordered; 0 when there is a result, 2 when there is none, and who must act is told. `name`: of the
    order, for its mistakes."""
    said: BaseModel
    try:
        said = work(kind.model_validate_json(sys.stdin.buffer.read()))
    except ValidationError as error:
        said = Broken(cause="usage", text=str(DataError(name, problems_of(error))))
    except UsageError as error:
        said = Broken(cause="usage", text=str(error))
    except InfrastructureError as error:
        said = Broken(cause="infrastructure", text=str(error))
    say(said)
    return 2 if isinstance(said, Broken) else 0
