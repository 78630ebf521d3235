"""A repository says in a file of its default branch how many must approve."""

import pytest

from bot.handlers.evidence import APPROVAL
from bot.handlers.rule import FILE
from tests.handlers.street import Street
from tests.handlers.test_standing import approve_digest, looked


def test_a_repository_may_ask_for_two_people_or_let_the_requester_approve(street: Street) -> None:
    number = street.bots()
    street.town.forge.state.add_user("second", "write", "second-token")
    named = approve_digest(street, number)
    street.push("main", {FILE: "needed: 2\n"})
    street.town.comment(number, f"/approve {named}", "reviewer")
    assert street.statuses(number)[APPROVAL] == ("pending", f"1 of 2 approvals of {named} at this head")
    street.town.comment(number, f"/approve {named}", "second")
    assert street.statuses(number)[APPROVAL] == ("success", "approved by reviewer, second")
    street.push("main", {FILE: "needed: 3\nrequester_may_approve: true\n"})
    looked(street, number)
    assert street.statuses(number)[APPROVAL][0] == "pending", "what was enough is not any more"
    street.town.comment(number, f"/approve {named}", "maintainer")
    assert street.statuses(number)[APPROVAL] == ("success", "approved by maintainer, reviewer, second")


def test_the_report_says_how_many_must_approve_and_is_renewed_when_the_rule_changes(street: Street) -> None:
    street.push("main", {FILE: "needed: 2\n"})
    number = street.bots()
    named = approve_digest(street, number)
    assert f"needs 2 approvals, each by `/approve {named}` or an approving review" in street.town.said(number)[0]
    street.push("main", {FILE: "needed: 3\n"})
    looked(street, number)
    assert f"needs 3 approvals, each by `/approve {named}`" in street.town.said(number)[0]
    street.push("main", {FILE: "needed: 1\n"})
    looked(street, number)
    assert f"needs one approval: `/approve {named}` or an approving review" in street.town.said(number)[0]


@pytest.mark.parametrize("text", ["needed: 0\n", "needed: many\n", "people: 2\n", "- 1\n", "needed: [\n", "\x00", ""])
def test_a_rule_with_mistakes_lets_nothing_pass(street: Street, text: str) -> None:
    number = street.bots()
    named = approve_digest(street, number)
    street.town.comment(number, f"/approve {named}", "reviewer")
    assert street.statuses(number)[APPROVAL][0] == "success"
    street.push("main", {FILE: text})
    assert "E_RULE_BROKEN" in looked(street, number)
    assert street.statuses(number)[APPROVAL][0] == "failure"
    assert street.refused(number, f"/approve {named}", "reviewer") == "E_RULE_BROKEN"
    street.push("main", {FILE: "needed: 1\n"})
    assert looked(street, number) == "approved by reviewer"
