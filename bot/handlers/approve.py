"""Whether a pull request's evidence is approved: reads reviews and comments anew and puts the answer on the head."""

from collections.abc import Sequence
from dataclasses import dataclass

from bot.errors import UsageError
from bot.github.api import Comment, GitHub, Pull, Status
from bot.github.approvals import Evidence, Rule, decide, objectors, voices
from bot.github.commands import Approve
from bot.github.events import CommentCreated
from bot.github.push import Remote, default_branch
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
    Record,
    authors_of,
    kernel_of,
    load_record,
    load_verified,
    operation_of,
    read_kernel,
    untouched,
)
from bot.handlers.stale import base_of, newest_of, remedy, renew, reported, say, stale_because, void
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

    Raises:
        RefusedError: there is nothing to approve.
        GitHubError: GitHub did not do what it should.
    """
    pull = github.pull(number)
    if pull.state != "open":
        raise CLOSED.error(what="pull request", act="approve")
    if not pull.same_repository:
        raise FORK.error()
    ours = pull.author == github.bot_login()
    statuses = github.statuses(pull.head_sha)
    there = newest_of(statuses, github.bot_login())
    try:
        _alone(pull, github)
        record = _record(pull, statuses, github, remote)
    except RefusedError as refused:
        if ours or refused.code == SHARED_HEAD.code:
            say(pull.head_sha, {APPROVAL: ("failure", refused.line)}, there, github)
        if refused.code == NOT_EXAMINED.code and reported(pull, github):
            void(pull, "the branch was pushed to since", "`/verify` examines what is there now", github)
        raise
    evidence = record.evidence(pull.head_sha)
    comments = github.comments(number)
    _still_valid(pull, record, comments, github, remote)
    reviews = github.reviews(number)
    permissions = {login: github.permission(login) for login in voices(evidence, reviews, comments)}
    order = record.order
    # Whoever had somebody else's kernel examined may approve it; whoever asked an agent for one, or wrote it, may not.
    verified = order.kind == "verify"
    requester = "" if verified else order.requester
    # Commits since the exam that left the kernel alone have authors too.
    authors = {*order.authors, *(authors_of(pull, github) if verified else ())}
    answer = decide(evidence, reviews, comments, permissions, requester=requester, rule=Rule(), authors=authors)
    say(pull.head_sha, {APPROVAL: ("success" if answer.granted else "pending", answer.why)}, there, github)
    without = frozenset(login.casefold() for login in (requester, *authors))
    return Standing(evidence, answer.why, without, frozenset(objectors(reviews)))


def _alone(pull: Pull, github: GitHub) -> None:
    """A status belongs to a commit, so that two pull requests of one head would be approved by one vote."""
    others = [other.number for other in github.open_pulls() if other.head_sha == pull.head_sha]
    if shared := [number for number in others if number != pull.number]:
        raise SHARED_HEAD.error(pull=min(shared))


def _still_valid(pull: Pull, record: Record, comments: Sequence[Comment], github: GitHub, remote: Remote) -> None:
    order = record.newest
    _, sha = default_branch(remote)
    base = base_of(remote, sha, order.contract, order.device)
    reasons = stale_because(record, base, pull.head_sha, remote)
    if not reasons:
        renew(pull, record, comments, github)
        return
    changed = base.contract != record.evaluations[-1].contract_digest
    why, what_to_do = "; ".join(reasons), remedy(record, contract_changed=changed)
    void(pull, why, what_to_do, github)
    raise STALE.error(why=why, what_to_do=what_to_do[0].upper() + what_to_do[1:])


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
    tools.github.react(event.comment_id, "+1")
    return Passed(standing.why)
