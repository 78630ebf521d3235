"""What a pull request is to the exam, and the two statuses that the ruleset requires of each.

A pull request that touches no kernel has no exam, and must not wait for one: it is told so at once. Nothing of it is
fetched or run: the names of the files it changes decide, asked of two commits rather than of the pull request, whose
base can be moved between two requests.
"""

import re
from collections.abc import Mapping, Sequence

from bot.github.api import GitHub, Pull, PullFile, Status, StatusState
from bot.github.push import Remote, default_branch
from bot.github.refusals import (
    EVIDENCE_TOUCHED,
    FORK,
    KERNEL_FILES,
    KERNEL_NAME,
    KERNEL_TEXT,
    NO_RECORD,
    NOT_EXAMINED,
    OTHER_FILES,
    SHARED_HEAD,
    TOO_MANY_FILES,
    RefusedError,
)
from bot.handlers.approve import LOOKS, weigh
from bot.handlers.evidence import APPROVAL, EXAM
from bot.handlers.stale import newest_statuses, say

NO_KERNEL = "not a kernel change"
RULES = f"{NO_KERNEL}: contracts, judge or workflows, which their owners review"
_NEVER_EXAMINED = frozenset(
    refusal.code
    for refusal in (TOO_MANY_FILES, EVIDENCE_TOUCHED, FORK, KERNEL_FILES, OTHER_FILES, KERNEL_NAME, KERNEL_TEXT)
)
_NEVER_APPROVED = frozenset(refusal.code for refusal in (NO_RECORD, SHARED_HEAD))
_FREE = re.compile(r"kernels/(?:README\.md|wiki/[^/]+\.md)")
_RECORD = re.compile(r"reports/[^/]+/(?:issue|pull)-")
_RULES = ("contracts/", "bot/", ".github/", "constraints.txt", "pyproject.toml")


def kind_of(files: Sequence[PullFile] | None) -> str | None:
    """What to say of a change that needs no exam; None: it touches a kernel.

    Raises:
        RefusedError: it has more files than can be looked at, or writes records.
    """
    if files is None:
        raise TOO_MANY_FILES.error()
    paths = {file.path for file in files} | {file.previous for file in files if file.previous is not None}
    if any(path.startswith("kernels/") and not _FREE.fullmatch(path) for path in paths):
        return None
    if any(_RECORD.match(path) for path in paths):
        raise EVIDENCE_TOUCHED.error()
    return RULES if any(path.startswith(_RULES) for path in paths) else NO_KERNEL


def look(pull: Pull, github: GitHub, remote: Remote) -> str:
    """Bring both statuses of a pull request's head up to date; returns one line that says how it stands.

    Raises:
        GitHubError: GitHub did not do what it should.
    """
    said, line = _look(pull, github, remote)
    for _ in range(LOOKS):
        if not said:
            break
        # Somebody may have had it examined before that was said.
        said, line = _look(github.pull(pull.number), github, remote)
    return line


def _look(pull: Pull, github: GitHub, remote: Remote) -> tuple[bool, str]:
    """Whether something was said that may not hold by now, and how the pull request stands. `weigh` sees to that
    itself, and which files two commits differ in never changes."""
    if pull.state != "open":
        return False, "closed"
    there = newest_statuses(pull.head_sha, github)
    if _ordinary(there):
        return False, NO_KERNEL
    _, base = default_branch(remote)
    try:
        kind = kind_of(github.changed(base, pull.head_sha))
        if kind is None and not pull.same_repository:
            raise FORK.error()
        if kind is None:
            return False, weigh(pull.number, github, remote).why
    except RefusedError as refused:
        there = newest_statuses(pull.head_sha, github)
        return say(pull.head_sha, _refusing(refused, there), there, github), f"refused: {refused.line}"
    wanted: Mapping[str, tuple[StatusState, str]] = dict.fromkeys((EXAM, APPROVAL), ("success", kind))
    say(pull.head_sha, wanted, there, github)
    return False, kind


def _refusing(refused: RefusedError, there: Mapping[str, Status]) -> Mapping[str, tuple[StatusState, str]]:
    """What the statuses have to say of a pull request that is refused."""
    failed: tuple[StatusState, str] = ("failure", refused.line)
    if refused.code in _NEVER_EXAMINED:
        return dict.fromkeys((EXAM, APPROVAL), failed)
    if refused.code == NOT_EXAMINED.code and EXAM not in there:
        return {EXAM: failed}
    return {APPROVAL: failed} if refused.code in _NEVER_APPROVED else {}


def _ordinary(there: Mapping[str, Status]) -> bool:
    """Whether both statuses say already that there is no kernel: of one commit that cannot change."""
    return all(
        context in there and there[context].state == "success" and there[context].description.startswith(NO_KERNEL)
        for context in (EXAM, APPROVAL)
    )
