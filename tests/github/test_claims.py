"""Deterministic names."""

import pytest

from bot.errors import UsageError
from bot.github.claims import claim_ref, issue_branch, issue_of


def test_a_branch_leads_back_to_its_issue():
    assert issue_branch(12) == "proctor/issue-12"
    assert issue_of(issue_branch(12)) == 12


@pytest.mark.parametrize(
    "branch", ["main", "proctor/issue-", "proctor/issue-0", "proctor/issue-1x", "x/proctor/issue-1"]
)
def test_other_branches_lead_to_no_issue(branch: str):
    assert issue_of(branch) is None


def test_a_claim_is_named_after_issue_and_event():
    assert claim_ref(12, "comment-7") == "refs/proctor/claims/12/comment-7"


@pytest.mark.parametrize("key", ["", "a/b", "..", "a b", "a" * 81])
def test_a_key_that_is_no_part_of_a_ref_is_refused(key: str):
    with pytest.raises(UsageError):
        claim_ref(1, key)
