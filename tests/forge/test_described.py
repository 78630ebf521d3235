"""The check against GitHub's description notices what it is for: each way in which a forge or a bot can be wrong."""

import re
from typing import Any

import pytest

from bot.forge import shapes
from bot.forge.app import API, bare_app
from bot.forge.state import ForgeState
from tests.forge.cut import EVENTS, served, shape
from tests.forge.described import description, held_to_the_description

ISSUE = "GET /repos/{}/{}/issues/{}"


def problems(schema: Any, value: Any) -> list[str]:
    return list(description().problems(schema, value, "it"))


def test_every_address_of_the_forge_is_one_of_githubs():
    assert {f"{method} {address}" for method, address in served()} == set(description().operations)
    assert shape("/repos/<owner>/<name>/git/ref/<path:ref>") == shape("/repos/{owner}/{repo}/git/ref/{ref}")


def test_every_event_of_the_forge_has_a_form():
    assert {f"{name} {action}" for name, actions in EVENTS.items() for action in actions} == set(description().events)


def test_a_missing_an_invented_and_a_wrong_field_are_noticed(state: ForgeState):
    issue = shapes.issue(state.site, state.open_issue("alice", "Faster", ""))
    form = description().operations[ISSUE]["answers"]["200"]
    assert problems(form, issue) == []
    (missing,) = problems(form, {k: v for k, v in issue.items() if k != "comments_url"})
    assert "'comments_url' is a required property" in missing
    (wrong,) = problems(form, issue | {"number": "1"})
    assert wrong.startswith("it, number: '1' is not of type 'integer'")
    label = shapes.label(state.site, state.label("alice", 1, "optimize").labels[0])
    assert problems({"$ref": "#/components/schemas/label"}, label) == []
    (invented,) = problems({"$ref": "#/components/schemas/label"}, label | {"colour": "red"})
    assert "'colour' was unexpected" in invented


def test_null_is_taken_where_github_says_so_and_nowhere_else():
    assert problems({"$ref": "#/components/schemas/nullable-simple-user"}, None) == []
    assert problems({"$ref": "#/components/schemas/simple-user"}, None) != []


@pytest.fixture(autouse=True)
def described() -> None:
    """Here is what is wrong on purpose: the check is not to fail these tests too."""


WRONG = {
    "GET /repos/acme/kernels/issues/1": (200, "'comments_url' is a required property"),
    "GET /repos/acme/kernels/issues/1?colour=red": (404, ""),
    "GET /repos/acme/kernels/issues?colour=red": (200, "there is no query parameter 'colour'"),
    "GET /repos/acme/kernels/issues?page=two": (200, "parameter page: 'two' is not of type integer"),
    "POST /repos/acme/kernels/issues": (201, "body is missing"),
    "POST /repos/acme/kernels/statuses/abc": (202, "the description has no answer 202"),
    "GET /repos/acme/kernels/invented": (200, "the operation is not in the description"),
    "DELETE /repos/acme/kernels/git/refs/heads/x": (204, "answer 204 has no body in the description"),
}


@pytest.mark.parametrize("line", WRONG)
def test_an_exchange_that_github_does_not_describe_fails_the_test(state: ForgeState, line: str):
    method, address = line.split(" ")
    status, complaint = WRONG[line]
    app = bare_app(state)
    rule = {"issues": "issues", "statuses": "statuses/<sha>", "git": "git/refs/<path:ref>"}
    part = address.partition("?")[0].split("/")[4]
    ending = "issues/<int:number>" if address.partition("?")[0].endswith("/1") else rule.get(part, part)
    app.add_url_rule(
        f"{API}/repos/<owner>/<name>/{ending}",
        view_func=lambda **_: ({"message": "?"}, status),
        methods=[method],
    )

    def play() -> None:
        with held_to_the_description():
            app.test_client().open(f"{API}{address}", method=method)

    if complaint:
        with pytest.raises(AssertionError, match=re.escape(complaint)):
            play()
    else:
        play()


def test_a_webhook_that_github_does_not_describe_fails_the_test(state: ForgeState):
    state.open_issue("alice", "Faster", "")
    payload = state.events[0].payload
    assert list(description().event("issues", payload)) == []
    assert list(description().event("issues", payload | {"action": "invented"}))
    wrong = list(description().event("issues", payload | {"sender": {"login": "alice"}}))
    assert "event issues opened, sender: 'id' is a required property" in wrong
