"""Whether a report still speaks of what is on the default branch, and what is said on GitHub when it does not.

A report is of one head, contract, judge and incumbent. When one of them is another now, nobody can approve it: the
comment says STALE and why, and both statuses say so too.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bot import digest
from bot.contract.schema import Device
from bot.errors import UsageError
from bot.evaluation import BaselineSource
from bot.github import sticky
from bot.github.api import DESCRIPTION_LIMIT, Comment, GitHub, Pull, Status, StatusState
from bot.github.push import Remote, list_files, read_files
from bot.handlers.evidence import APPROVAL, EXAM, REPORT, Record, exam_status, incumbents_at
from bot.sanitize import shorten

_BANNER = "> ⚠️ **STALE"
_STALE = "stale: "
INTERRUPTED = re.compile(r"interrupted: run (\d{1,6}) ")
"""Begins what a status says of an exam whose runner was lost."""
BANNER_LIMIT = 800
"""Characters; a report leaves room for its marker and this (report/comment.py)."""


@dataclass(frozen=True, slots=True)
class Base:
    """What a commit of the default branch examines a contract's kernels by; None: it has no such contract."""

    sha: str
    judge: str
    contract: str | None
    incumbents: Mapping[str, BaselineSource]


def base_of(remote: Remote, sha: str, contract: str, device: Device) -> Base:
    """What a commit of the default branch would judge by.

    Raises:
        RefusedError: its index of merged kernels has mistakes.
        GitHubError: git could not read it.
    """
    return Base(
        sha, digest.of_judge(), contract_digest(remote, sha, contract), incumbents_at(remote, sha, contract, device)
    )


def contract_digest(remote: Remote, sha: str, name: str) -> str | None:
    """The digest of a contract at a commit, as `load_contract` takes it from a folder.

    Raises:
        GitHubError: git could not read it.
    """
    folder = f"contracts/{name}"
    paths = [p for p in list_files(remote, sha, folder) if p.endswith(".py") or p == f"{folder}/contract.yaml"]
    if f"{folder}/contract.yaml" not in paths:
        return None
    try:
        files = read_files(remote, sha, paths)
    except UsageError:
        return None
    return digest.of_files({path.removeprefix(f"{folder}/"): data for path, data in files.items()})


def stale_because(record: Record, base: Base, head_sha: str, remote: Remote) -> list[str]:
    """Why a report is not of today any more, one phrase each; empty when it is.

    Raises:
        GitHubError: git could not read the incumbent that it was measured against.
    """
    newest, order = record.evaluations[-1], record.newest
    found = []
    if order.head_sha is not None and order.head_sha != head_sha:
        found.append(f"the head was {order.head_sha[:12]} when it was examined")
    if base.contract != newest.contract_digest:
        found.append("the contract has changed on the default branch")
    if base.judge != newest.judge_digest:
        found.append("the judge has changed on the default branch")
    if not found and base.sha != order.base_sha:
        then = incumbents_at(remote, order.base_sha, order.contract, order.device)
        targets = {run.environment.target for run in record.evaluations}
        if any(then.get(target) != base.incumbents.get(target) for target in targets):
            found.append("another kernel is the incumbent on the default branch")
    return found


def remedy(record: Record, *, contract_changed: bool) -> str:
    """What to send to have a stale report renewed."""
    if record.order.kind == "verify":
        return "`/verify` examines it again"
    return "close this pull request and label the issue again" if contract_changed else "`/rerun-bench` measures again"


def void(pull: Pull, why: str, what_to_do: str, github: GitHub) -> bool:
    """Say on GitHub that the report of a pull request is stale; whether it had to be said, which it has once.

    Raises:
        GitHubError: GitHub did not do what it should.
    """
    there = newest_statuses(pull.head_sha, github)
    wanted: dict[str, tuple[StatusState, str]] = {APPROVAL: ("failure", f"{_STALE}{why}")}
    # An exam that goes on will say how it is today.
    if EXAM not in there or there[EXAM].state != "pending":
        wanted[EXAM] = ("error", f"{_STALE}{why}")
    said = say(pull.head_sha, wanted, there, github)
    banner = f"{_BANNER}**: {why}, so that this report cannot be approved any more. To renew it: {what_to_do}."
    return _rewrite(github.comments(pull.number), shorten(banner, BANNER_LIMIT), github) or said


def renew(pull: Pull, record: Record, comments: Sequence[Comment], there: Mapping[str, Status], github: GitHub) -> bool:
    """Take back what does not hold of a report that is of today; whether there was anything.

    That is what `void` said, as after a change that was reverted, and a status of the exam which somebody set who had
    looked before the newest run was on record. That an exam goes on, or was cancelled, is not in the record.

    Raises:
        GitHubError: GitHub did not do what it should.
    """
    found = sticky.find(comments, github.bot_login(), REPORT)
    banner = found is not None and found[0].body.startswith(_BANNER)
    said = banner and _rewrite(github.comments(pull.number), "", github)
    known = there.get(EXAM)
    if known is None or not _of_the_record(known, record.numbers):
        return said
    wanted = exam_status(record.verdict, assisted=record.newest.assisted)
    return say(pull.head_sha, {EXAM: wanted}, there, github) or said


def _of_the_record(known: Status, numbers: Sequence[int]) -> bool:
    """Whether the record decides what a status of the exam has to say."""
    interrupted = INTERRUPTED.match(known.description)
    lost = interrupted is not None and int(interrupted[1]) in numbers
    return known.state in ("success", "failure") or lost or known.description.startswith(_STALE)


def newest_statuses(sha: str, github: GitHub) -> dict[str, Status]:
    """Our newest status of each context.

    Raises:
        GitHubError: GitHub did not do what it should.
    """
    return newest_of(github.statuses(sha), github.bot_login())


def newest_of(statuses: Sequence[Status], login: str) -> dict[str, Status]:
    """The newest status of each context that somebody set; `statuses` are newest first."""
    return {status.context: status for status in reversed(statuses) if status.creator == login}


def say(sha: str, wanted: Mapping[str, tuple[StatusState, str]], there: Mapping[str, Status], github: GitHub) -> bool:
    """Set statuses, each unless it says this already; whether one did not.

    Raises:
        GitHubError: GitHub did not do what it should.
    """
    said = False
    for context, (state, text) in wanted.items():
        known, line = there.get(context), shorten(text, DESCRIPTION_LIMIT)
        if known is None or (known.state, known.description) != (state, line):
            github.set_status(sha, context, state, line)
            said = True
    return said


def _rewrite(comments: Sequence[Comment], banner: str, github: GitHub) -> bool:
    """The report's comment below another banner, or without one; whether it had another before."""
    found = sticky.find(comments, github.bot_login(), REPORT)
    if found is None:
        return False
    comment, run = found
    body = _without_banner(comment)
    text = sticky.marked(REPORT, run, f"{banner}\n\n{body}" if banner else body)
    if text == comment.body.strip():
        return False
    github.update_comment(comment.id, text)
    return True


def _without_banner(comment: Comment) -> str:
    body = sticky.unmarked(comment.body)
    return body.partition("\n\n")[2] if body.startswith(_BANNER) else body
