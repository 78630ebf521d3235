"""How a program of the verifier's answers: one order on standard input, one JSON line out."""

import sys
from collections.abc import Callable
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from bot.contract.load import problems_of
from bot.errors import DataError, InfrastructureError, UsageError
from bot.evaluation import Broken

Order = TypeVar("Order", bound=BaseModel)


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
    sys.stdout.write(said.model_dump_json() + "\n")
    sys.stdout.flush()
    return 2 if isinstance(said, Broken) else 0
