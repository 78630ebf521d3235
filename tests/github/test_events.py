"""Decoding of webhook payloads: real examples, and everything that may be wrong with one."""

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.errors import DataError
from bot.forge.shapes import REACTIONS
from bot.github.events import (
    PAYLOAD_LIMIT,
    CommentCreated,
    Ignored,
    IssueLabeled,
    IssueUnlabeled,
    IssueWithdrawn,
    PullsChanged,
    ReviewSubmitted,
    decode_event,
    read_event,
)
from tests.forge.cut import EXAMPLES as WEBHOOKS
from tests.forge.described import description

ACTED_ON: dict[tuple[str, str], type | tuple[type, ...]] = {
    ("issues", "labeled"): IssueLabeled,
    ("issues", "unlabeled"): IssueUnlabeled,
    ("issues", "closed"): IssueWithdrawn,
    ("issues", "deleted"): IssueWithdrawn,
    ("issues", "transferred"): IssueWithdrawn,
    # Of neither title nor text, in one of them.
    ("issues", "edited"): (IssueWithdrawn, Ignored),
    ("issue_comment", "created"): CommentCreated,
    ("pull_request_review", "submitted"): ReviewSubmitted,
}
EXAMPLES: dict[str, list[dict[str, Any]]] = json.loads(gzip.decompress(WEBHOOKS.read_bytes()))
"""Payloads that GitHub sent, by event."""


def payload(event: str, action: str, *, on_pull: bool = False) -> dict[str, Any]:
    """The first example of an act. There is none of a comment on a pull request: it is made as GitHub describes it."""
    document = copy.deepcopy(next(each for each in EXAMPLES[event] if each.get("action") == action))
    if on_pull:
        page = document["issue"]["html_url"].replace("/issues/", "/pull/")
        links = {"html_url": page, "diff_url": f"{page}.diff", "patch_url": f"{page}.patch"}
        url = document["issue"]["url"].replace("/issues/", "/pulls/")
        document["issue"]["pull_request"] = {"url": url, **links, "merged_at": None}
        # Fields that are newer than the example.
        counts = dict.fromkeys(("total_count", *REACTIONS), 0)
        document["issue"] |= {"draft": False, "active_lock_reason": None, "reactions": {"url": url, **counts}}
        document["comment"] |= {"performed_via_github_app": None, "reactions": {"url": url, **counts}}
        for label in document["issue"]["labels"]:
            label["description"] = None
    return document


def kept(folder: Path, document: object) -> Path:
    """A payload as a workflow run finds it."""
    place = folder / "event.json"
    place.write_text(json.dumps(document), encoding="utf-8")
    return place


@pytest.mark.parametrize("event", sorted(EXAMPLES))
def test_every_example_of_githubs_is_one_of_our_events(event: str):
    for document in EXAMPLES[event]:
        decoded = decode_event(event, document)
        acted_on = ACTED_ON.get((event, document.get("action") or ""), Ignored)
        assert isinstance(decoded, acted_on), document.get("action")
        if not isinstance(decoded, Ignored):
            assert decoded.repo == document["repository"]["full_name"]


def test_a_comment_on_a_pull_request_is_of_the_form_that_github_describes():
    made = payload("issue_comment", "created", on_pull=True)
    assert list(description().event("issue_comment", made)) == []
    made["issue"]["pull_request"]["url"] = 7
    assert list(description().event("issue_comment", made))


def test_a_label_on_an_issue_is_decoded_with_the_text_of_that_moment(tmp_path: Path):
    assert read_event("issues", kept(tmp_path, payload("issues", "labeled"))) == IssueLabeled(
        repo="Codertocat/Hello-World",
        number=1,
        title="Spelling error in the README file",
        body="It looks like you accidently spelled 'commit' with two 't's.",
        label="bug",
        is_open=True,
        author="Codertocat",
        sender="Codertocat",
        sender_id=21031067,
        key="labeled-20190515T152018Z",
        labels=("bug",),
    )


def test_a_label_taken_away_is_decoded():
    event = decode_event("issues", payload("issues", "unlabeled"))
    assert isinstance(event, IssueUnlabeled)
    assert (event.number, event.label) == (1, "bug")
    assert event.key.startswith("unlabeled-")


def test_a_comment_on_an_issue_and_one_on_a_pull_request_are_told_apart():
    on_issue = decode_event("issue_comment", payload("issue_comment", "created"))
    on_pull = decode_event("issue_comment", payload("issue_comment", "created", on_pull=True))
    assert isinstance(on_issue, CommentCreated)
    assert isinstance(on_pull, CommentCreated)
    assert (on_issue.on_pull, on_pull.on_pull) == (False, True)
    assert (on_pull.key, on_pull.by_person) == ("comment-492700400", True)


@pytest.mark.parametrize("kind", ["Bot", "Organization", "Mannequin", "user"])
def test_only_a_user_account_is_a_person(kind: str):
    document = payload("issue_comment", "created")
    document["comment"]["user"]["type"] = kind
    event = decode_event("issue_comment", document)
    assert isinstance(event, CommentCreated)
    assert not event.by_person


def test_a_review_is_decoded_with_the_head_it_was_given_at():
    event = decode_event("pull_request_review", payload("pull_request_review", "submitted"))
    assert isinstance(event, ReviewSubmitted)
    assert (event.number, event.state) == (2, "commented")
    assert event.head_sha == "ec26c3e57ca3a959ca5aad62de7213c562f8c821"


def test_the_same_act_has_the_same_key_and_the_next_one_another():
    first, again = payload("issues", "labeled"), payload("issues", "labeled")
    later = payload("issues", "labeled")
    later["issue"]["updated_at"] = "2019-05-15T15:20:19Z"
    keys = [decode_event("issues", document) for document in (first, again, later)]
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize(
    ("name", "example", "reason"),
    [
        ("issue_comment", ("issue_comment", "edited"), "only new comments"),
        ("issues", ("issues", "opened"), "'issues', action 'opened'"),
        ("pull_request_review", ("pull_request_review", "dismissed"), "action 'dismissed'"),
        ("push", ("issues", "labeled"), "'push', action 'labeled'"),
        ("Issues", ("issues", "labeled"), "'Issues'"),
        ("issues\u202e", ("issues", "labeled"), "does not act on"),
        ("", ("issues", "labeled"), "does not act on ''"),
    ],
)
def test_what_the_bot_does_not_act_on_is_ignored_with_a_reason(name: str, example: tuple[str, str], reason: str):
    event = decode_event(name, payload(*example))
    assert isinstance(event, Ignored)
    assert reason in event.reason


def test_a_label_on_a_pull_request_starts_nothing():
    document = payload("issues", "labeled")
    document["issue"]["pull_request"] = {}
    assert decode_event("issues", document) == Ignored("labels on pull requests start nothing")


def test_an_event_without_an_action_is_ignored():
    assert isinstance(decode_event("schedule", {"schedule": "0 * * * *"}), Ignored)


def test_a_malformed_payload_names_every_problem_with_its_path():
    document = payload("issues", "labeled")
    document["issue"]["number"] = "1"
    del document["sender"]["login"]
    document["label"] = None
    with pytest.raises(DataError) as caught:
        decode_event("issues", document)
    assert {problem.path for problem in caught.value.problems} == {"issue.number", "sender.login", "label"}


@pytest.mark.parametrize("document", [None, [], "labeled", 7, {"action": 3}])
def test_a_payload_that_is_no_object_is_refused(document: object):
    with pytest.raises(DataError):
        decode_event("issues", document)


@pytest.mark.parametrize("text", ['{"action": ', "[" * 100_000, '"\\ud800', "\x00"])
def test_a_file_that_is_not_json_is_refused(tmp_path: Path, text: str):
    (tmp_path / "event.json").write_text(text)
    with pytest.raises(DataError):
        read_event("issues", tmp_path / "event.json")


def test_a_missing_and_an_oversized_file_are_refused(tmp_path: Path):
    with pytest.raises(DataError, match="cannot be read"):
        read_event("issues", tmp_path / "event.json")
    with (tmp_path / "event.json").open("wb") as file:
        file.truncate(PAYLOAD_LIMIT + 1)
    with pytest.raises(DataError, match="at most"):
        read_event("issues", tmp_path / "event.json")


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda s: st.lists(s, max_size=2))


@given(st.data())
def test_a_payload_with_any_one_value_replaced_is_decoded_or_refused(data: st.DataObject):
    name, action = data.draw(
        st.sampled_from([("issues", "labeled"), ("issue_comment", "created"), ("workflow_run", "completed")])
    )
    document = payload(name, action)
    place: Any = document
    for _ in range(data.draw(st.integers(0, 3))):
        key = data.draw(st.sampled_from(sorted(place)))
        if not isinstance(place[key], dict) or not place[key]:
            break
        place = place[key]
    place[data.draw(st.sampled_from(sorted(place)))] = data.draw(JSON)
    try:
        event = decode_event(name, document)
    except DataError:
        return
    assert isinstance(event, IssueLabeled | CommentCreated | PullsChanged | Ignored)
