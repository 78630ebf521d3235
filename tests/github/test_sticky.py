"""The sticky comment: one of a kind, never set back."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.errors import GitHubError
from bot.github.api import BODY_LIMIT, Comment
from bot.github.sticky import Create, Keep, Update, marked, plan
from tests.github.records import comment

BOT = "proctor[bot]"


def report(number: int, run: int, text: str = "old", author: str = BOT) -> Comment:
    return comment(number, marked("report", run, text), author)


def test_the_first_run_creates_it_with_the_marker_at_the_end():
    assert plan([], BOT, "report", 3, "Improved.") == Create("Improved.\n\n<!-- proctor:report run=3 -->")


def test_a_later_phase_or_run_updates_it():
    text = marked("report", 3, "new")
    assert plan([report(7, 3)], BOT, "report", 3, "new") == Update(7, text, ())
    assert plan([report(7, 2)], BOT, "report", 3, "new") == Update(7, text, ())


def test_a_newer_one_is_kept_and_moves_to_the_oldest_when_a_twin_holds_it():
    assert plan([report(7, 4)], BOT, "report", 3, "new") == Keep(7, ())
    newer = report(9, 4)
    assert plan([report(7, 1), newer], BOT, "report", 3, "new") == Update(7, newer.body, (9,))


def test_the_same_text_is_not_written_again():
    assert plan([report(7, 3, "same")], BOT, "report", 3, "same") == Keep(7, ())


@pytest.mark.parametrize(
    "other",
    [
        report(1, 9, author="mallory"),
        comment(1, marked("agent", 9, "x"), BOT),
        comment(1, marked("report", 9, "x") + "\nbut then more", BOT),
        comment(1, "> " + marked("report", 9, "x").replace("\n", "\n> ") + "\n\nquoted", BOT),
        comment(1, "<!-- proctor:report run=x -->", BOT),
    ],
)
def test_other_peoples_and_other_kinds_comments_are_not_ours(other: Comment):
    assert isinstance(plan([other], BOT, "report", 1, "x"), Create)


def test_a_marker_inside_the_body_does_not_count():
    text = marked("report", 1, "candidate printed <!-- proctor:report run=99 -->")
    assert isinstance(plan([comment(1, text, BOT)], BOT, "report", 2, "x"), Update)


def test_a_body_that_github_would_not_take_is_refused():
    longest = "x" * (BODY_LIMIT - len(marked("report", 1, "")))
    assert len(marked("report", 1, longest)) == BODY_LIMIT
    with pytest.raises(GitHubError, match="65536"):
        marked("report", 1, longest + "x")


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 9)), unique_by=lambda pair: pair[0]), st.integers(1, 9))
def test_the_newest_run_is_never_overwritten(found: list[tuple[int, int]], run: int):
    comments: Sequence[Comment] = [report(number, by) for number, by in found]
    match plan(comments, BOT, "report", run, "new"):
        case Create():
            assert not found
        case Update(comment_id=chosen, twins=twins, body=body):
            newest = max(run, *(by for _, by in found))
            assert body.endswith(f"<!-- proctor:report run={newest} -->")
            assert sorted([chosen, *twins]) == sorted(number for number, _ in found)
            assert chosen == min(number for number, _ in found)
        case Keep(comment_id=chosen):
            assert run < max(by for _, by in found)
            assert chosen == min(number for number, _ in found)
