"""`proctor inspect`: what a kernel file becomes as machine code, without a GPU."""

from pathlib import Path
from typing import Protocol

from bot.evaluation import Inspected, Inspection


class Inspector(Protocol):
    """Has one file compiled and read in the verifier (launch.py)."""

    def __call__(self, order: Inspection) -> Inspected:
        """Obey and return what was found."""
        ...


def inspect(order: Inspection, inspector: Inspector, json_out: Path | None) -> Inspected:
    """Look at a file, and keep what was found where a path is given.

    Raises:
        UsageError: the contract is unknown or has mistakes.
        InfrastructureError: nothing could be compiled here.
    """
    found = inspector(order)
    if json_out is not None:
        json_out.write_text(found.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return found
