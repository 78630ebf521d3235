import threading

import pytest

from bot.forge.refusals import BODY_LIMIT, RequestRefusedError
from bot.forge.repository import Repository
from bot.forge.state import ForgeState


def _refused(status: int) -> "pytest.RaisesExc[RequestRefusedError]":
    return pytest.raises(RequestRefusedError, check=lambda error: error.status == status)


def _names(state: ForgeState) -> list[str]:
    return [f"{event.name}.{event.payload.get('action', '')}".rstrip(".") for event in state.events]


def test_label_by_a_reader_is_refused_and_leaves_no_trace(state):
    issue = state.open_issue("mallory", "Faster, please", "")
    with _refused(403):
        state.label("mallory", issue.number, "optimize")
    assert state.issue(issue.number).labels == ()
    assert _names(state) == ["issues.opened"]


def test_label_twice_is_one_label_and_one_event(state):
    number = state.open_issue("alice", "Faster", "").number
    state.label("tom", number, "optimize")
    state.label("alice", number, "optimize")
    assert [label.name for label in state.issue(number).labels] == ["optimize"]
    assert _names(state) == ["issues.opened", "issues.labeled"]
    assert state.events[-1].payload["sender"]["login"] == "tom"
    assert state.events[-1].payload["label"]["name"] == "optimize"


def test_comment_on_a_pull_request_says_so_in_the_payload(state):
    pull = state.open_pull("rachel", "Faster", "", head="faster", base="main")
    state.comment("mallory", pull.number, "/rerun-bench")
    payload = state.events[-1].payload
    assert payload["issue"]["pull_request"]["url"].endswith(f"/pulls/{pull.number}")
    assert payload["comment"]["body"] == "/rerun-bench"
    issue = state.open_issue("alice", "Other", "")
    state.comment("alice", issue.number, "hello")
    assert "pull_request" not in state.events[-1].payload["issue"]


def test_events_of_the_actions_bot_are_recorded_but_not_delivered(state):
    heard: list[str] = []
    state.subscribe(lambda name, payload: heard.append(payload["sender"]["login"]))
    number = state.open_issue("alice", "Faster", "").number
    state.comment("github-actions[bot]", number, "report")
    assert heard == ["alice"]
    assert [event.delivered for event in state.events] == [True, False]


def test_subscribers_are_called_without_the_lock(state):
    def comment_from_another_thread(name: str, payload: dict[str, object]) -> None:
        if name == "issues":
            other = threading.Thread(target=state.comment, args=("github-actions[bot]", 1, "on it"))
            other.start()
            other.join(timeout=5)
            assert not other.is_alive()

    state.subscribe(comment_from_another_thread)
    state.open_issue("alice", "Faster", "")
    assert [comment.body for comment in state.comments(1)] == ["on it"]


def test_body_one_character_over_the_limit_is_refused(state):
    number = state.open_issue("alice", "Faster", "x" * BODY_LIMIT).number
    state.comment("alice", number, "x" * BODY_LIMIT)
    with _refused(422):
        state.comment("alice", number, "x" * (BODY_LIMIT + 1))
    with _refused(422):
        state.comment("alice", number, " \n")
    assert state.issue(number).comments == 1


def test_own_pull_request_can_be_commented_but_not_approved(state):
    number = state.open_pull("rachel", "Faster", "", head="faster", base="main").number
    with _refused(422):
        state.review("rachel", number, "APPROVED")
    state.review("rachel", number, "COMMENTED", "mine")
    state.review("alice", number, "APPROVED")
    assert [(review.user.login, review.state) for review in state.reviews(number)] == [
        ("rachel", "COMMENTED"),
        ("alice", "APPROVED"),
    ]
    assert state.events[-1].payload["review"]["state"] == "approved"


def test_second_pull_request_for_a_branch_is_refused_until_the_first_is_closed(state):
    first = state.open_pull("rachel", "Faster", "", head="faster", base="main")
    with _refused(422):
        state.open_pull("rachel", "Again", "", head="acme:faster", base="main")
    state.edit_issue("rachel", first.number, state="closed")
    assert state.open_pull("rachel", "Again", "", head="faster", base="main").number == 2


@pytest.mark.parametrize(("head", "base"), [("main", "main"), ("nowhere", "main"), ("faster", "nowhere")])
def test_pull_request_without_new_commits_or_branches_is_refused(state, head, base):
    with _refused(422):
        state.open_pull("rachel", "Faster", "", head=head, base=base)


def test_pull_request_from_a_fork_needs_no_role_and_names_the_fork(state, work, git):
    git("push", "--quiet", str(state.repository.path), "faster:refs/forks/mallory/fast", cwd=work)
    number = state.open_pull("mallory", "Faster", "", head="mallory:fast", base="main").number
    head = state.events[-1].payload["pull_request"]["head"]
    assert (head["repo"]["full_name"], head["repo"]["fork"], head["label"]) == ("mallory/kernels", True, "mallory:fast")
    assert state.pull(number)[1].head_owner == "mallory"


def test_deleting_the_head_branch_closes_the_pull_request(state):
    number = state.open_pull("rachel", "Faster", "", head="faster", base="main").number
    state.delete_ref("rachel", "refs/heads/faster")
    assert state.issue(number).state == "closed"
    assert _names(state)[-1] == "pull_request.closed"


def test_only_one_of_many_claims_of_a_ref_succeeds(state):
    sha = state.repository.refs()["refs/heads/main"]
    outcomes: list[str] = []

    def claim() -> None:
        try:
            state.create_ref("rachel", "refs/proctor/claims/issue-1", sha)
            outcomes.append("mine")
        except RequestRefusedError as refusal:
            outcomes.append(str(refusal))

    threads = [threading.Thread(target=claim) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["Reference already exists"] * 3 + ["mine"]


@pytest.mark.parametrize("ref", ["heads/x", "refs/x", "refs/heads/a..b", "refs/pull/1/head", "refs/heads/-x y"])
def test_bad_ref_names_are_refused(state, ref):
    with _refused(422):
        state.create_ref("rachel", ref, state.repository.refs()["refs/heads/main"])


def test_status_of_an_unknown_commit_or_with_a_long_description_is_refused(state):
    sha = state.repository.refs()["refs/heads/main"]
    with _refused(422):
        state.set_status("rachel", "0" * 40, "success")
    with _refused(422):
        state.set_status("rachel", sha, "success", description="x" * 141)
    state.set_status("rachel", sha, "success", description="x" * 140)
    assert len(state.statuses(sha)) == 1


def test_newest_status_of_each_context_counts(state):
    sha = state.repository.refs()["refs/heads/main"]
    for verdict, context in (("pending", "a"), ("success", "b"), ("success", "a")):
        state.set_status("rachel", sha, verdict, context=context)
    assert {each.context: each.state for each in state.latest_statuses(sha)} == {"a": "success", "b": "success"}
    assert [each.state for each in state.statuses(sha)] == ["success", "success", "pending"]


def test_private_repository_does_not_exist_for_strangers(tmp_path):
    private = ForgeState(Repository.create(tmp_path / "private.git", "main"), private=True)
    private.add_user("alice", "admin", "a")
    private.add_user("mallory", "none", "m")
    assert private.accounts.role("mallory") == "none"
    private.open_issue("alice", "Secret", "")
    with _refused(404):
        private.comment("mallory", 1, "hello")
    with _refused(404):
        private.accounts.admit(None)
