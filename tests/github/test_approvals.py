"""Who counts as having approved what."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.errors import UsageError
from bot.evaluation import Evaluation
from bot.github.api import Comment, Permission, Review
from bot.github.approvals import Approval, Evidence, Rule, decide, evidence_digest
from bot.verdict import Kind, Verdict
from tests.github.records import START, comment, review

HEAD = "a" * 40
DIGEST = "0123456789abcdef" * 4
EVIDENCE = Evidence(digest=DIGEST, head_sha=HEAD, since=START)
PERMISSIONS: dict[str, Permission] = {"alice": "write", "bob": "admin", "carol": "read", "dave": "none", "App": "write"}
APPROVE = f"/approve {DIGEST[:16]}"


def granted(
    reviews: Sequence[Review] = (),
    comments: Sequence[Comment] = (),
    *,
    requester: str = "alice",
    rule: Rule | None = None,
) -> Approval:
    return decide(EVIDENCE, reviews, comments, PERMISSIONS, requester=requester, rule=rule or Rule())


def test_one_person_with_write_access_who_did_not_ask_is_enough():
    assert granted([review("bob")]) == Approval(granted=True, by=("bob",), why="approved by bob")
    assert granted(comments=[comment(1, APPROVE, "Bob")]).by == ("bob",)


@pytest.mark.parametrize(
    ("refused", "why"),
    [
        (granted(), "0 of 1 approvals of 0123456789abcdef at this head"),
        (granted([review("alice")]), "alice asked for this"),
        (granted(comments=[comment(1, APPROVE, "Alice")]), "alice asked for this"),
        (granted([review("carol"), review("dave"), review("erin")]), "no write access: carol, dave, erin"),
        (granted([review("bob", commit="b" * 40)]), "0 of 1"),
        (granted([review("bob", commit=None)]), "0 of 1"),
        (granted([review("bob", at=-1)]), "0 of 1"),
        (granted([review("bob", "COMMENTED")]), "0 of 1"),
        (granted([review("bob", at=1), review("bob", "DISMISSED", at=2)]), "0 of 1"),
        (granted([review("bob", at=1), review("bob", "CHANGES_REQUESTED", at=2)]), "0 of 1"),
        (granted([review("App", account="Bot")]), "0 of 1"),
        (granted(comments=[comment(1, APPROVE, "App", account="Bot")]), "0 of 1"),
        (granted(comments=[comment(1, APPROVE, "bob", edited=True)]), "0 of 1"),
        (granted(comments=[comment(1, "/approve " + "f" * 16, "bob")]), "0 of 1"),
        (granted(comments=[comment(1, f"> {APPROVE}", "bob")]), "0 of 1"),
        (granted([review("bob", "CHANGES_REQUESTED")], [comment(9, APPROVE, "bob")]), "0 of 1"),
        (granted([review("bob")], [comment(1, APPROVE, "bob")], rule=Rule(needed=2)), "1 of 2"),
    ],
)
def test_everything_else_is_not_and_says_why(refused: Approval, why: str):
    assert not refused.granted
    assert why in refused.why


def test_a_mere_comment_leaves_an_approval_standing():
    assert granted([review("bob", at=1), review("bob", "COMMENTED", at=2)]).granted


def test_the_latest_review_counts_whatever_order_they_come_in():
    assert granted([review("bob", at=3), review("bob", "CHANGES_REQUESTED", at=2)]).granted


def test_a_repository_may_let_the_requester_approve_or_ask_for_more_people():
    assert granted([review("alice")], rule=Rule(requester_may_approve=True)).by == ("alice",)
    assert granted([review("bob")], [comment(1, APPROVE, "alice")], requester="x", rule=Rule(needed=2)).by == (
        "alice",
        "bob",
    )


def test_a_rule_under_which_nobody_decides_is_refused():
    with pytest.raises(UsageError):
        Rule(needed=0)


def test_another_digest_or_head_or_a_later_publication_voids_the_approval():
    reviews, comments = [review("bob")], [comment(1, APPROVE, "bob")]
    pushed = Evidence(digest="f" * 64, head_sha="b" * 40, since=START)
    assert not decide(pushed, reviews, comments, PERMISSIONS, requester="alice", rule=Rule()).granted
    rerun = Evidence(digest="f" * 64, head_sha=HEAD, since=START + timedelta(hours=1))
    assert not decide(rerun, reviews, comments, PERMISSIONS, requester="alice", rule=Rule()).granted


def test_a_digest_changes_with_candidate_contract_judge_verdict_and_head_and_with_nothing_else():
    def digest(head: str = HEAD, kind: Kind = Kind.IMPROVED, **changed: str) -> str:
        digests = {"candidate_digest": "c", "contract_digest": "k", "judge_digest": "j", "salt": "s", **changed}
        return evidence_digest(
            Evaluation.model_construct(None, **digests), Verdict.model_construct(None, kind=kind), head
        )

    others = [
        digest(candidate_digest="x"),
        digest(contract_digest="x"),
        digest(judge_digest="x"),
        digest(kind=Kind.MIXED),
        digest(head="b" * 40),
    ]
    assert digest(salt="another run") == digest()
    assert len({digest(), *others}) == 6


STATES = st.sampled_from(["APPROVED", "CHANGES_REQUESTED", "COMMENTED", "DISMISSED"])
PEOPLE = st.sampled_from(["alice", "bob", "carol", "App"])
REVIEWS = st.lists(
    st.builds(review, PEOPLE, STATES, commit=st.sampled_from([HEAD, "b" * 40]), at=st.integers(-5, 50)),
    unique_by=lambda r: r.id,
    max_size=6,
)


@given(REVIEWS, st.integers(1, 2))
def test_nobody_counts_who_may_not_and_never_fewer_than_needed(reviews: list[Review], needed: int):
    approval = granted(reviews, rule=Rule(needed=needed))
    assert approval.granted == (len(approval.by) >= needed)
    for login in approval.by:
        assert login in {"bob", "app"}
        assert any(r.reviewer.casefold() == login and r.state == "APPROVED" and r.commit == HEAD for r in reviews)
