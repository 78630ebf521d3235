"""Whether a pull request's evidence is approved: reads reviews and comments anew and puts the answer on the head."""

from collections.abc import Sequence
from dataclasses import dataclass

from bot.errors import UsageError
from bot.github import sticky
from bot.github.api import Comment, GitHub, Pull, Review, Status, StatusState
from bot.github.approvals import Evidence, Rule, decide, objectors, voices
from bot.github.claims import EVIDENCE_BRANCH
from bot.github.commands import Approve
from bot.github.events import CommentCreated
from bot.github.push import Remote, branch_tip, default_branch
from bot.github.refusals import (
    CLOSED,
    FORK,
    NO_RECORD,
    NOT_EXAMINED,
    NOT_ON_PULL,
    OTHER_EVIDENCE,
    OWN_OBJECTION,
    OWN_REQUEST,
    SHARED_HEAD,
    STALE,
    RefusedError,
)
from bot.handlers.asked import Gate, Passed
from bot.handlers.evidence import (
    APPROVAL,
    REPORT,
    Record,
    authors_of,
    kernel_of,
    load_record,
    load_verified,
    operation_of,
    read_kernel,
    untouched,
)
from bot.handlers.reporting import bring_up
from bot.handlers.rule import rule_at
from bot.handlers.stale import base_of, newest_of, remedy, renew, say, stale_because, void
from bot.sanitize import code_span, plain_line


@dataclass(frozen=True, slots=True)
class Standing:
    """How it stands: `why` is the line for a log. `without` count for nothing here, `objecting` have said no."""

    evidence: Evidence
    why: str
    without: frozenset[str]
    objecting: frozenset[str]


def approve(number: int, github: GitHub, remote: Remote) -> str:
    """Set the approval status of a pull request's head; returns the line that says why.

    Raises:
        GitHubError: GitHub did not do what it should.
    """
    try:
        return weigh(number, github, remote).why
    except RefusedError as refused:
        return f"refused: {refused.line}"


def weigh(number: int, github: GitHub, remote: Remote) -> Standing:
    """Set the approval status of a pull request's head, and say how it stands.

    GitHub takes no status on condition, so that what was read may have changed by the time it is answered: whoever has
    said anything reads once more, and looks again where something is another now. Whoever changes something later
    looks later.

    Raises:
        RefusedError: there is nothing to approve.
        GitHubError: GitHub did not do what it should.
    """
    seen = _seen(number, github, remote)
    said, answer = _look(seen, github, remote)
    for _ in range(LOOKS):
        if not said or (now := _seen(number, github, remote)) == seen:
            break
        seen = now
        said, answer = _look(seen, github, remote)
    if isinstance(answer, RefusedError):
        raise answer
    return answer


LOOKS = 4
"""A look at what changes each time is not repeated for ever; the reconciler comes later."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """All that an answer rests on and that may change, but what a person may: nobody tells of that. `sharing`: the
    open pull requests of its head."""

    pull: Pull
    sharing: Sequence[int]
    comments: Sequence[Comment]
    reviews: Sequence[Review]
    evidence: str | None
    base: str


def _seen(number: int, github: GitHub, remote: Remote) -> _Seen:
    """What there is now.

    Raises:
        RefusedError: the pull request is closed, or a fork's.
        GitHubError: GitHub did not do what it should.
    """
    pull = github.pull(number)
    if pull.state != "open":
        raise CLOSED.error(what="pull request", act="approve")
    if not pull.same_repository:
        raise FORK.error()
    # A status belongs to a commit, so that two pull requests of one head would be approved by one vote.
    sharing = sorted(other.number for other in github.open_pulls() if other.head_sha == pull.head_sha)
    _, base = default_branch(remote)
    evidence = branch_tip(remote, EVIDENCE_BRANCH)
    return _Seen(pull, sharing, github.comments(number), github.reviews(number), evidence, base)


def _look(seen: _Seen, github: GitHub, remote: Remote) -> tuple[bool, Standing | RefusedError]:
    """Say how a pull request stands; whether anything had to be said, and the answer."""
    pull = seen.pull
    statuses = github.statuses(pull.head_sha)
    there = newest_of(statuses, github.bot_login())
    try:
        if len(seen.sharing) > 1:
            raise SHARED_HEAD.error(pulls=", ".join(f"#{number}" for number in seen.sharing))
        record = _record(pull, statuses, github, remote)
    except RefusedError as refused:
        said = False
        if pull.author == github.bot_login() or refused.code == SHARED_HEAD.code:
            said = say(pull.head_sha, {APPROVAL: ("failure", refused.line)}, there, github)
        if refused.code == NOT_EXAMINED.code and sticky.find(seen.comments, github.bot_login(), REPORT) is not None:
            said |= void(pull, "the branch was pushed to since", "`/verify` examines what is there now", github)
        return said, refused
    try:
        base = base_of(remote, seen.base, record.newest.contract, record.newest.device)
    except RefusedError as refused:
        return False, refused
    try:
        rule: Rule | RefusedError = rule_at(remote, seen.base)
    except RefusedError as refused:
        rule = refused
    needed = rule.needed if isinstance(rule, Rule) else Rule().needed
    told = bring_up(pull, record, needed, seen.comments, github)
    if reasons := stale_because(record, base, pull.head_sha, remote):
        changed = base.contract != record.evaluations[-1].contract_digest
        why, what_to_do = "; ".join(reasons), remedy(record, contract_changed=changed)
        told |= void(pull, why, what_to_do, github)
        return told, STALE.error(why=why, what_to_do=what_to_do[0].upper() + what_to_do[1:])
    told |= renew(pull, record, seen.comments, there, github)
    if isinstance(rule, RefusedError):
        return say(pull.head_sha, {APPROVAL: ("failure", rule.line)}, there, github) or told, rule
    standing, granted = _standing(seen, record, rule, github)
    wanted: tuple[StatusState, str] = ("success" if granted else "pending", standing.why)
    return say(pull.head_sha, {APPROVAL: wanted}, there, github) or told, standing


def _standing(seen: _Seen, record: Record, rule: Rule, github: GitHub) -> tuple[Standing, bool]:
    """How evidence of today stands, and whether that is enough."""
    pull, order = seen.pull, record.order
    evidence = record.evidence(pull.head_sha)
    voted = voices(evidence, seen.reviews, seen.comments)
    permissions = {login: github.permission(login) for login in voted}
    # Whoever had somebody else's kernel examined may approve it; whoever asked an agent for one, or wrote it, may not.
    verified = order.kind == "verify"
    requester = "" if verified else order.requester
    # Commits since the exam that left the kernel alone have authors too.
    authors = {*order.authors, *(authors_of(pull, github) if verified else ())}
    answer = decide(evidence, seen.reviews, seen.comments, permissions, requester=requester, rule=rule, authors=authors)
    without = frozenset(login.casefold() for login in (requester, *authors))
    return Standing(evidence, answer.why, without, frozenset(objectors(seen.reviews))), answer.granted


def _record(pull: Pull, statuses: Sequence[Status], github: GitHub, remote: Remote) -> Record:
    files = github.pull_files(pull.number)
    if untouched(pull, github, statuses):
        operation = operation_of([file.path for file in files])
        try:
            return load_record(pull, operation, remote)
        except UsageError as error:
            raise NO_RECORD.error(detail=code_span(plain_line(str(error)))) from None
    path = kernel_of(files, by_bot=pull.author == github.bot_login())
    try:
        record = load_verified(pull.number, read_kernel(remote, pull.head_sha, path), remote)
    except RefusedError:
        raise
    except UsageError as error:
        raise NO_RECORD.error(detail=code_span(plain_line(str(error)))) from None
    if record is None:
        raise NOT_EXAMINED.error()
    return record


def approved(event: CommentCreated, command: Approve, tools: Gate) -> Passed:
    """Take an approval by comment, or say why it does not count.

    Raises:
        RefusedError: it does not.
    """
    if not event.on_pull:
        raise NOT_ON_PULL.error(command="/approve")
    standing = weigh(event.number, tools.github, tools.remote)
    who = event.author.casefold()
    if not standing.evidence.digest.startswith(command.digest):
        raise OTHER_EVIDENCE.error(named=code_span(command.digest))
    if who in standing.without:
        raise OWN_REQUEST.error(who=event.author)
    if who in standing.objecting:
        raise OWN_OBJECTION.error(who=event.author)
    return Passed(standing.why)
