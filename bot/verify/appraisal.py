"""The verifier's other program: one Order on standard input, JSON lines out, the last of them a result or what broke.

A contract is appraised here because the oracle and the sandbox are; no candidate is ever involved.
"""

import contextlib
import secrets
import sys
from pathlib import Path
from typing import TextIO

from pydantic import ValidationError

from bot.contract.appraisal import Broken, Line, Order, Result, Step
from bot.contract.load import LoadedContract, load_contract, problems_of
from bot.errors import DataError, InfrastructureError, UsageError
from bot.verify.memory import keep_freed


def _obey(order: Order, loaded: LoadedContract, say: "Voice") -> Result:
    # Imported by need: torch takes a second, and a sketch does without.
    salt = order.salt or secrets.token_hex(32)
    if order.task == "sketch":
        from bot.verify.sketch import sketch  # noqa: PLC0415

        return sketch(loaded, order, salt)
    import torch  # noqa: PLC0415

    torch.set_num_threads(1)
    keep_freed()
    if order.task == "check":
        from bot.verify.appraise import appraise  # noqa: PLC0415

        return appraise(loaded, order, salt, say)
    if order.task == "soak":
        from bot.verify.soak import soak  # noqa: PLC0415

        return soak(loaded, order, salt, say)
    from bot.verify.calibrate import calibrate  # noqa: PLC0415

    return calibrate(loaded, order, salt, say)


class Voice:
    """Standard output as it was: what an oracle prints must not end up among our lines."""

    def __init__(self, stream: TextIO) -> None:
        """Speak to `stream`."""
        self._stream = stream

    def __call__(self, line: Line | Step) -> None:
        """One line."""
        self._stream.write(line.model_dump_json() + "\n")
        self._stream.flush()


def main() -> int:
    """Appraise; 0 when there is a result, 2 when not."""
    say = Voice(sys.stdout)
    with contextlib.redirect_stdout(sys.stderr):
        try:
            order = Order.model_validate_json(sys.stdin.buffer.read())
            say(_obey(order, load_contract(Path(order.contracts_dir), order.contract), say))
        except ValidationError as error:
            say(Broken(cause="usage", text=str(DataError("order", problems_of(error)))))
        except UsageError as error:
            say(Broken(cause="usage", text=str(error)))
        except InfrastructureError as error:
            say(Broken(cause="infrastructure", text=str(error)))
        else:
            return 0
    return 2


if __name__ == "__main__":
    sys.exit(main())
