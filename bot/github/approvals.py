"""Whether enough people approved this evidence at this head. Pure: reads records, asks nobody.

Two ways in: a review of the head commit that approves, and a comment `/approve DIGEST`. A push and a rerun that changes
the verdict both change the digest, and so void what was said before.
Reviews: https://docs.github.com/en/rest/pulls/reviews
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from bot import digest
from bot.errors import UsageError
from bot.evaluation import Evaluation
from bot.github.api import Comment, Permission, Review
from bot.github.commands import Approve, read_command
from bot.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is to be approved. A review from before `since`, when this digest was published, saw another verdict."""

    digest: str
    head_sha: str
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A repository's configuration: how many people, and whether the one who asked counts."""

    needed: int = 1
    requester_may_approve: bool = False

    def __post_init__(self) -> None:
        """Refuse a rule under which nobody decides."""
        if self.needed < 1:
            raise UsageError("at least one person must approve")


@dataclass(frozen=True, slots=True)
class Approval:
    """The answer: who counts, and one line that says why or what is missing."""

    granted: bool
    by: tuple[str, ...]
    why: str


def evidence_digest(evaluation: Evaluation, verdict: Verdict, head_sha: str) -> str:
    """Digest over candidate, contract, judge, verdict and head: a rerun that finds the same again keeps it."""
    return digest.of_document(
        {
            "candidate": evaluation.candidate_digest,
            "contract": evaluation.contract_digest,
            "judge": evaluation.judge_digest,
            "verdict": verdict.kind.value,
            "head": head_sha,
        }
    )


def voices(evidence: Evidence, reviews: Sequence[Review], comments: Sequence[Comment]) -> list[str]:
    """Who approved this evidence at this head, in alphabetical order, whatever their permission."""
    approving = {login for login, review in _latest(reviews).items() if _approves(review, evidence)}
    approving |= set(_by_comment(evidence, comments))
    return sorted(approving - objectors(reviews))


def objectors(reviews: Sequence[Review]) -> set[str]:
    """Whose standing review asks for changes, in small letters."""
    return {login for login, review in _latest(reviews).items() if review.state == "CHANGES_REQUESTED"}


def decide(
    evidence: Evidence,
    reviews: Sequence[Review],
    comments: Sequence[Comment],
    permissions: Mapping[str, Permission],
    *,
    requester: str,
    rule: Rule,
    authors: Collection[str] = (),
) -> Approval:
    """Whether the rule is met; `permissions` must hold everybody in `voices`, and who is missing may do nothing.

    `authors` of a person's kernel never count, whatever the rule.
    """
    known = {login.casefold(): permission for login, permission in permissions.items()}
    said = voices(evidence, reviews, comments)
    people = [login for login in said if known.get(login, "none") in ("write", "admin")]
    wrote = {login.casefold() for login in authors}
    counted = tuple(p for p in people if p not in wrote and (rule.requester_may_approve or p != requester.casefold()))
    if len(counted) >= rule.needed:
        return Approval(granted=True, by=counted, why=f"approved by {', '.join(counted)}")
    why = f"{len(counted)} of {rule.needed} approvals of {evidence.digest[: digest.APPROVAL_DIGITS]} at this head"
    if own := [p for p in people if p in wrote]:
        why += f"; {', '.join(own)} wrote this and does not count"
    if len(counted) + len(own) < len(people):
        why += f"; {requester} asked for this and does not count"
    if powerless := sorted(set(said) - set(people)):
        why += f"; no write access: {', '.join(powerless)}"
    return Approval(granted=False, by=counted, why=why)


def _latest(reviews: Sequence[Review]) -> dict[str, Review]:
    """The standing review of each person; a mere comment leaves an earlier decision standing, as on GitHub."""
    latest: dict[str, Review] = {}
    for review in sorted(reviews, key=lambda review: review.id):
        if review.by_person and review.state not in ("COMMENTED", "PENDING"):
            latest[review.reviewer.casefold()] = review
    return latest


def _approves(review: Review, evidence: Evidence) -> bool:
    # GitHub's times are whole seconds.
    saw_it = review.submitted_at is not None and review.submitted_at >= evidence.since.replace(microsecond=0)
    return review.state == "APPROVED" and review.commit == evidence.head_sha and saw_it


def _by_comment(evidence: Evidence, comments: Sequence[Comment]) -> Iterator[str]:
    """Authors of unedited `/approve` comments that name the digest."""
    for comment in comments:
        if comment.by_person and not comment.edited:
            match read_command(comment.body):
                case Approve(digest=named) if evidence.digest.startswith(named):
                    yield comment.author.casefold()
                case _:
                    pass
