"""What a doctor found: one line a check, and below whatever is wrong who must act and how."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

State = Literal["well", "note", "mend", "unseen"]

_WORDS: dict[State, str] = {"well": "well  ", "note": "note  ", "mend": "MEND  ", "unseen": "unseen"}


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at. `note` is worth knowing and no fault; `unseen` could not be looked at."""

    state: State
    what: str
    detail: str = ""
    remedy: str = ""


def exit_code(checks: Sequence[Check]) -> int:
    """0: all well; 1: something to mend; 2: nothing to mend was found, but something could not be looked at."""
    states = {check.state for check in checks}
    return 1 if "mend" in states else 2 if "unseen" in states else 0


def lines(checks: Sequence[Check]) -> Iterator[str]:
    """The checks as text, then how many were what."""
    for check in checks:
        first, *rest = check.detail.splitlines() or [""]
        yield f"{_WORDS[check.state]}  {check.what}{': ' if first else ''}{first}"
        yield from (f"          {line}" for line in rest)
        yield from (f"        > {line}" for line in check.remedy.splitlines())
    counts = {word: sum(check.state == word for check in checks) for word in _WORDS}
    yield (
        f"{counts['well']} well, {counts['mend']} to mend, {counts['unseen']} could not be looked at, "
        f"{counts['note']} to know"
    )
