"""`proctor sanitize`: what compute-sanitizer says of a kernel file."""

from bot.sanitizer import Outcome, Sanitized

_REFUSED: frozenset[Outcome] = frozenset({"errors", "raised"})


def exit_code(found: Sanitized) -> int:
    """1: some tool found errors, or the kernel raised; 2: some tool did not come to its end; 0: all found nothing."""
    outcomes = {one.outcome for one in found.watched}
    if outcomes & _REFUSED:
        return 1
    return 0 if outcomes == {"clean"} else 2
