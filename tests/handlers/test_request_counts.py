"""How many requests of GitHub's interface an answer costs: a rate limit is shared by all that a repository runs."""

import re
from collections.abc import Iterator
from functools import partial
from typing import get_args

import pytest

from bot.github.commands import (
    Approve,
    BenchStatus,
    CancelBench,
    Command,
    Focus,
    Go,
    Help,
    Hint,
    RerunBench,
    SetBudget,
    StopRun,
    Verify,
)
from bot.handlers.demo import BOT
from tests.github.flaky import Request
from tests.handlers.interleaved import City, Run, city
from tests.verify.conftest import HONEST

ACKNOWLEDGED = 6
RERUN = 25


@pytest.fixture
def place() -> Iterator[City]:
    """A city with one pull request of the bot's."""
    with city() as place:
        place.open_issue()
        asks(place, "maintainer", "issues/1/labels", labels=["optimize"])
        yield place


@pytest.fixture(scope="module")
def persons() -> Iterator[City]:
    """A city with a person's pull request of one kernel as well, which the tests share."""
    with city() as place:
        place.open_issue()
        asks(place, "maintainer", "issues/1/labels", labels=["optimize"])
        place.push("faster", {"kernels/center/torch_y.py": HONEST}, "main")
        place.acts(
            lambda: place.person("maintainer").post("pulls", title="Faster", head="faster", base="main", body="")
        )
        place.drain()
        yield place


def asks(place: City, who: str, path: str, **body: object) -> Run:
    """Somebody asks, and the run that this starts goes to its end."""
    (run,) = place.acts(lambda: place.person(who).post(path, **body))
    place.drain()
    assert run.error is None
    return run


def requests(run: Run) -> list[Request]:
    """What went to the interface; git's own requests do not count there."""
    return [request for request in run.sent if ".git/" not in request.path]


def until_answered(run: Run) -> int:
    """Requests up to and with the one that people see first: a reaction or a comment."""
    seen = ("/reactions", "/comments")
    numbers = (n for n, r in enumerate(requests(run), 1) if r.method == "POST" and r.path.endswith(seen))
    return next(numbers)


def test_a_label_is_answered_soon(place: City) -> None:
    (labelled,) = place.runs
    assert until_answered(labelled) <= ACKNOWLEDGED
    (again,) = [asks(place, "visitor", f"issues/{place.open_issue()}/labels", labels=["optimize"])]
    assert "E_NOT_A_WRITER" in again.why


SENT: dict[type[Command], str] = {
    RerunBench: "/rerun-bench",
    CancelBench: "/cancel-bench",
    BenchStatus: "/bench-status",
    Verify: "/verify",
    Approve: "/approve 0123456789abcdef",
    Go: "/go",
    Hint: "/hint Keep it in registers.",
    Focus: "/focus nowhere",
    SetBudget: "/budget turns=3",
    StopRun: "/stop",
    Help: "/help",
}


@pytest.mark.parametrize("text", [*SENT.values(), "/nonsense", "/rerun-bench n=99"])
def test_a_command_is_taken_by_the_second_request_wherever_it_is_sent(persons: City, text: str) -> None:
    """On an issue, on the bot's pull request and on a person's, whether followed or refused: the same sign, once."""
    assert set(SENT) == set(get_args(Command))
    for number in (1, 2, 3):
        run = asks(persons, "maintainer", f"issues/{number}/comments", body=text)
        assert (requests(run)[1].method, until_answered(run)) == ("POST", 2), run.why
        (asked,) = (c for c in persons.state.comments(number) if c.body == text)
        assert [(each.content, each.user.login) for each in asked.reactions] == [("eyes", BOT)]


def test_an_approval_that_counts_is_taken_as_soon(place: City) -> None:
    named = re.search(r"`(/approve [0-9a-f]{16})`", place.state.comments(2)[0].body)
    assert named is not None
    run = asks(place, "reviewer", "issues/2/comments", body=named[1])
    assert run.why == "approved by reviewer"
    assert until_answered(run) <= ACKNOWLEDGED


@pytest.mark.parametrize(
    ("ask", "where", "text"),
    [("/rerun-bench", 2, "/cancel-bench"), ("/rerun-bench", 2, "/bench-status"), ("", 1, "/stop"), ("", 1, "/hint x")],
)
def test_what_concerns_a_run_that_goes_on_is_answered_soon(ask: str, where: int, text: str) -> None:
    with city() as place:
        place.open_issue()
        begins = partial(place.person("maintainer").post, "issues/1/labels", labels=["optimize"])
        (run,) = place.acts(begins)
        if ask:
            place.finish(run)
            (run,) = place.acts(lambda: place.person("maintainer").post("issues/2/comments", body=ask))
        while run.stage != "verify":
            place.step(run)
        (asked,) = place.acts(lambda: place.person("maintainer").post(f"issues/{where}/comments", body=text))
        place.finish(asked)
        assert asked.why == "answered"
        assert until_answered(asked) <= ACKNOWLEDGED
        ended = place.state.run(run.id).conclusion == "cancelled"
        assert ended == (text in ("/cancel-bench", "/stop"))
        place.drain()


@pytest.mark.parametrize("text", ["/rerun-bench", "/approve 0123456789abcdef"])
def test_whoever_may_not_costs_two_requests(place: City, text: str) -> None:
    assert len(requests(asks(place, "visitor", "issues/2/comments", body=text))) == 2


def test_a_rerun_costs_few_requests_from_end_to_end(place: City) -> None:
    run = asks(place, "maintainer", "issues/2/comments", body="/rerun-bench")
    assert run.why == "run 2 of pull request 2"
    assert len(requests(run)) <= RERUN
