"""Names that are the same for everybody who handles the same event: branches and claim refs. Pure."""

import re

from bot.errors import UsageError

EVIDENCE_BRANCH = "proctor/evidence"
"""Where evaluations of reruns go; the pull request's own branch holds the evaluation that opened it."""

_KEY = re.compile(r"[A-Za-z0-9-]{1,80}")


def issue_branch(number: int) -> str:
    """The one branch on which the bot works for an issue."""
    return f"proctor/issue-{number}"


def issue_of(branch: str) -> int | None:
    """The issue a branch of ours belongs to; None for any other branch."""
    match = re.fullmatch(r"proctor/issue-([1-9]\d{0,9})", branch)
    return int(match[1]) if match else None


def claim_ref(number: int, key: str) -> str:
    """The git ref that whoever handles this event of this issue creates first; `key` is the event's `key`."""
    if not _KEY.fullmatch(key):
        raise UsageError(f"{key!r} is not the key of an event")
    return f"refs/proctor/claims/{number}/{key}"
