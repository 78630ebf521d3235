"""Deliveries that come twice, and what the interleavings found, each as a story of its own."""

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial

import pytest

from bot.forge.state import ForgeState
from bot.handlers.demo import BOT
from tests.handlers.interleaved import City, Run, city
from tests.handlers.test_interleavings import look


@pytest.fixture
def place() -> Iterator[City]:
    """A city with one pull request of the bot's."""
    with city() as place:
        place.open_issue()
        place.acts(lambda: place.person("maintainer").post("issues/1/labels", labels=["optimize"]))
        place.drain()
        yield place


def says(place: City, text: str, number: int = 2, who: str = "maintainer") -> Run:
    """A comment; the run that it starts has not begun."""
    (run,) = place.acts(lambda: place.person(who).post(f"issues/{number}/comments", body=text))
    return run


def by_bot(state: ForgeState, number: int) -> list[str]:
    return [comment.body for comment in state.comments(number) if comment.user.login == BOT]


@pytest.mark.parametrize("text", ["/help", "/nonsense", "/bench-status", "/rerun-bench n=99"])
def test_a_command_that_is_delivered_again_is_answered_once(place: City, text: str) -> None:
    says(place, text)
    place.drain()
    before = by_bot(place.state, 2)
    place.deliver(*place.events[-1])
    place.drain()
    assert by_bot(place.state, 2) == before


def test_a_command_that_is_delivered_twice_at_once_leaves_one_answer(place: City) -> None:
    """Both find no answer, both write one, and they agree on the older."""
    place.groups = False
    first = says(place, "/help")
    (second,) = place.deliver(*place.events[-1])
    for run in (first, second):
        place.step(run)
        while run.waiting is not None and not (run.waiting.method == "POST" and run.waiting.path.endswith("/comments")):
            place.step(run)
    place.drain()
    assert len(by_bot(place.state, 2)) == 2, "the report and one answer"


def test_a_label_that_is_delivered_again_starts_and_says_nothing_more(place: City) -> None:
    labelled = next((name, payload) for name, payload in place.events if payload["action"] == "labeled")
    for _ in range(2):
        place.deliver(*labelled)
        place.drain()
    assert len(place.state.pulls()) == 1
    refusals = [body for body in by_bot(place.state, 1) if body.startswith("Not started")]
    assert len(refusals) == 1
    look(place)


def test_two_people_refused_in_one_second_are_answered_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A label's act has no id of its own: the second it came in names it, and who set it."""
    with city() as place:
        monkeypatch.setattr(place.state, "_now", lambda: datetime(2026, 12, 1, tzinfo=UTC))
        place.state.add_user("another", "triage", "another-token")
        place.open_issue()
        for who in ("visitor", "another"):
            place.acts(partial(place.person(who).post, "issues/1/labels", labels=["optimize"]))
            place.drain()
        assert [who in body for body, who in zip(by_bot(place.state, 1), ("visitor", "another"), strict=True)] == [
            True
        ] * 2


def test_a_rerun_that_is_delivered_again_is_one_run(place: City) -> None:
    says(place, "/rerun-bench")
    place.drain()
    (again,) = place.deliver(*place.events[-1])
    place.drain()
    assert again.why == "ignored: this event has been handled"
    look(place)
