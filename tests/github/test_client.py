"""The client against the forge, over HTTP, on a line that fails when told to."""

import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bot.errors import GitHubError, UsageError
from bot.forge.repository import Repository
from bot.forge.server import Forge
from bot.forge.state import ForgeState
from bot.github.api import GitHub, PullFile
from bot.github.claims import claim_ref
from bot.github.client import connect
from bot.github.push import Change, Identity, Remote, push_files
from bot.github.sticky import marked, upsert
from tests.github.flaky import Fault, Line, line_to

BOT = "proctor[bot]"
BRANCH = "proctor/issue-1"
UNKNOWN: list[Fault] = ["502 after", "502 instead", "drop after", "drop instead"]


def first_commit(bare: Path) -> str:
    """A commit on main."""

    def git(*arguments: str) -> str:
        who = ("-c", "user.name=alice", "-c", "user.email=alice@example.org")
        command = ["git", "--git-dir", str(bare), *who, *arguments]
        return subprocess.run(command, input="", capture_output=True, text=True, check=True).stdout.strip()

    sha = git("commit-tree", git("mktree"), "-m", "Start")
    git("update-ref", "refs/heads/main", sha)
    return sha


@pytest.fixture
def state(tmp_path: Path) -> ForgeState:
    state = ForgeState.create(tmp_path)
    state.add_user("alice", "maintain", "token-alice")
    state.add_user("bob", "admin", "token-bob")
    state.add_user("carol", "triage", "token-carol")
    state.add_user("dave", "none", "token-dave")
    state.add_user(BOT, "write", "token-bot")
    first_commit(state.repository.path)
    state.open_issue("alice", "Faster rmsnorm", "### Contract\n\nrmsnorm")
    return state


@pytest.fixture
def line(state: ForgeState) -> Iterator[Line]:
    with Forge.serving(state) as forge, line_to(forge.api_url) as line:
        yield line


@pytest.fixture
def github(line: Line) -> GitHub:
    return connect(line.api_url, "token-bot", "acme/kernels")


@pytest.fixture
def head(state: ForgeState, github: GitHub) -> str:
    """The bot's branch, pushed."""
    base = state.repository.refs()["refs/heads/main"]
    author = Identity("proctor", "proctor@example.org")
    files = {"kernels/rmsnorm/torch_fused.py": b"x\n"}
    change = Change(operation="rmsnorm", base_sha=base, files=files, message="Add", author=author)
    return push_files(Remote(str(state.repository.path)), BRANCH, change)


def test_an_issue_is_read(github: GitHub):
    issue = github.issue(1)
    assert (issue.title, issue.state, issue.author, issue.labels) == ("Faster rmsnorm", "open", "alice", [])


@pytest.mark.parametrize(
    ("login", "permission"),
    [("alice", "write"), ("bob", "admin"), ("carol", "read"), ("dave", "read"), ("nobody", "none"), (BOT, "none")],
)
def test_permission_is_what_the_endpoint_says(github: GitHub, login: str, permission: str):
    assert github.permission(login) == permission


def test_a_login_cannot_reach_another_address(github: GitHub, line: Line):
    assert github.permission("../../../user?x=") == "none"
    assert line.requests[-1].path == "/api/v3/repos/acme/kernels/collaborators/..%2F..%2F..%2Fuser%3Fx%3D/permission"


@pytest.mark.parametrize("fault", ["502 instead", "403 plain", "403 limit", "nonsense"])
def test_permission_fails_closed(github: GitHub, line: Line, fault: Fault):
    line.faults["GET"] = [fault] * 4
    with pytest.raises(GitHubError):
        github.permission("bob")


def test_reading_is_tried_again(github: GitHub, line: Line):
    line.faults["GET"] = ["502 instead", "drop instead"]
    assert github.permission("bob") == "admin"
    assert line.sent("GET") == 3


def test_who_we_are_is_asked_once(github: GitHub, line: Line):
    assert github.bot_login() == github.bot_login() == BOT
    assert line.sent("GET") == 1


def test_a_workflow_token_is_known_by_its_name(state: ForgeState, line: Line):
    state.add_user("github-actions[bot]", "write", "token-actions", actions_bot=True)
    assert connect(line.api_url, "token-actions", "acme/kernels").bot_login() == "github-actions[bot]"
    named = connect(line.api_url, "token-actions", "acme/kernels", login="proctor-app[bot]")
    assert named.bot_login() == "proctor-app[bot]"


def test_a_rate_limit_does_not_change_who_we_are(github: GitHub, line: Line):
    line.faults["GET"] = ["403 limit"]
    with pytest.raises(GitHubError) as caught:
        github.bot_login()
    assert caught.value.retryable
    assert github.bot_login() == BOT


def test_comments_are_read_over_all_pages(github: GitHub, state: ForgeState, line: Line):
    for number in range(205):
        state.comment("alice", 1, f"comment {number}")
    assert [c.body for c in github.comments(1)] == [f"comment {number}" for number in range(205)]
    assert line.sent("GET") == 3


def test_a_comment_is_written_reacted_to_and_rewritten(github: GitHub, state: ForgeState):
    written = github.create_comment(1, "First")
    github.react(written.id, "eyes")
    github.react(written.id, "eyes")
    assert github.update_comment(written.id, "Second").body == "Second"
    (stored,) = state.comments(1)
    assert stored.body == "Second"
    assert [r.content for r in stored.reactions] == ["eyes"]


@pytest.mark.parametrize("fault", UNKNOWN)
def test_a_comment_whose_fate_is_unknown_is_written_once(github: GitHub, state: ForgeState, line: Line, fault: Fault):
    state.comment("alice", 1, "Report")
    line.faults["POST"] = [fault]
    written = github.create_comment(1, "Report")
    assert [c.id for c in state.comments(1) if c.user.login == BOT] == [written.id]


def test_a_write_that_keeps_failing_ends_in_an_error(github: GitHub, state: ForgeState, line: Line):
    line.faults["POST"] = ["502 instead", "502 instead"]
    with pytest.raises(GitHubError, match="502") as caught:
        github.create_comment(1, "Report")
    assert (caught.value.status, caught.value.retryable, line.sent("POST")) == (502, True, 2)


def test_a_refusal_is_not_tried_again_and_says_what_is_wrong(github: GitHub, line: Line):
    with pytest.raises(GitHubError, match="too long") as caught:
        github.create_comment(1, "x" * 65_537)
    assert (caught.value.status, caught.value.retryable, line.sent("POST")) == (422, False, 1)
    with pytest.raises(GitHubError) as caught:
        github.issue(99)
    assert caught.value.status == 404


def test_a_wrong_token_is_an_error_that_does_not_show_it(line: Line):
    with pytest.raises(GitHubError) as caught:
        connect(line.api_url, "ghp_wrong", "acme/kernels").issue(1)
    assert caught.value.status == 401
    assert "ghp_wrong" not in str(caught.value)


def test_a_claim_is_given_once(github: GitHub, state: ForgeState):
    sha = state.repository.refs()["refs/heads/main"]
    ref = claim_ref(1, "labeled-20261130T120000Z")
    assert [github.claim(ref, sha), github.claim(ref, sha)] == [True, False]
    assert state.repository.refs()[ref] == sha
    with pytest.raises(GitHubError) as caught:
        github.claim(claim_ref(1, "comment-1"), "0" * 40)
    assert caught.value.status == 422


@pytest.mark.parametrize("fault", UNKNOWN)
def test_a_claim_whose_fate_is_unknown_is_ours(github: GitHub, state: ForgeState, line: Line, fault: Fault):
    sha = state.repository.refs()["refs/heads/main"]
    line.faults["POST"] = [fault]
    assert github.claim(claim_ref(1, "comment-1"), sha)
    assert not github.claim(claim_ref(1, "comment-1"), sha)


def test_a_claim_lost_to_somebody_else_while_its_fate_is_unknown_is_not_ours(
    github: GitHub, state: ForgeState, line: Line, head: str
):
    ref = claim_ref(1, "comment-1")
    state.create_ref("alice", ref, head)
    line.faults["POST"] = ["drop instead"]
    assert not github.claim(ref, state.repository.refs()["refs/heads/main"])


@pytest.mark.parametrize("fault", [None, *UNKNOWN])
def test_a_pull_request_is_opened_once(github: GitHub, state: ForgeState, line: Line, head: str, fault: Fault | None):
    line.faults["POST"] = [fault] if fault else []
    opened = github.open_pull(BRANCH, "main", "Faster", "Report")
    again = github.open_pull(BRANCH, "main", "Faster", "Report")
    assert len(state.pulls()) == 1
    assert opened == again == github.pull(opened.number) == github.find_pull(BRANCH)
    assert (opened.head_sha, opened.base_ref, opened.author, opened.state) == (head, "main", BOT, "open")
    assert opened.same_repository
    assert github.find_pull("proctor/issue-2") is None


def test_a_pull_request_that_cannot_be_opened_is_an_error(github: GitHub, head: str):
    with pytest.raises(GitHubError) as caught:
        github.open_pull("proctor/issue-2", "main", "Faster", "Report")
    assert caught.value.status == 422


def test_files_reviews_and_statuses_of_a_pull_request_are_read(github: GitHub, state: ForgeState, head: str):
    number = github.open_pull(BRANCH, "main", "Faster", "Report").number
    state.review("bob", number, "APPROVED")
    github.set_status(head, "proctor/approval", "pending", "x" * 200)
    github.set_status(head, "proctor/approval", "success", "approved by bob", "https://example.org")
    assert github.pull_files(number) == [PullFile(path="kernels/rmsnorm/torch_fused.py", status="added")]
    (review,) = github.reviews(number)
    assert (review.reviewer, review.state, review.commit, review.by_person) == ("bob", "APPROVED", head, True)
    assert review.submitted_at is not None
    assert [status.state for status in github.statuses(head)] == ["success", "pending"]
    assert len(github.statuses(head)[1].description) == 140


def test_labels_are_put_on_and_taken_off(github: GitHub):
    github.add_label(1, "needs info?")
    github.add_label(1, "needs info?")
    assert [label.name for label in github.issue(1).labels] == ["needs info?"]
    github.remove_label(1, "needs info?")
    github.remove_label(1, "needs info?")
    assert github.issue(1).labels == []


def test_an_edited_comment_is_known_as_such(tmp_path: Path):
    minutes = (datetime(2026, 11, 30, 12, minute, tzinfo=UTC) for minute in range(60))
    state = ForgeState(Repository.create(tmp_path / "acme" / "kernels.git", "main"), now=lambda: next(minutes))
    state.add_user("bob", "write", "token-bob")
    state.open_issue("bob", "Faster", "")
    edited = state.comment("bob", 1, "Fine")
    state.edit_comment("bob", edited.id, "Not fine")
    with Forge.serving(state) as forge:
        assert [comment.edited for comment in connect(forge.api_url, "token-bob", "acme/kernels").comments(1)] == [True]


def test_a_sticky_comment_is_created_then_updated_then_left_alone(github: GitHub, state: ForgeState):
    state.comment("alice", 1, marked("report", 9, "a quotation"))
    created = upsert(github, 1, "report", 1, "First")
    assert (created.action, created.twins) == ("created", ())
    assert upsert(github, 1, "report", 2, "Second").action == "updated"
    assert upsert(github, 1, "report", 1, "Late").action == "kept"
    (ours,) = [c for c in state.comments(1) if c.user.login == BOT]
    assert (ours.id, ours.body) == (created.comment_id, marked("report", 2, "Second"))


@pytest.mark.parametrize(("theirs", "body"), [((1, 2), "new"), ((1, 5), "old 5"), ((5, 1), "old 5")])
def test_of_twins_the_oldest_stays_and_says_what_the_newest_run_found(
    github: GitHub, state: ForgeState, theirs: tuple[int, int], body: str
):
    first, second = (state.comment(BOT, 1, marked("report", run, f"old {run}")) for run in theirs)
    done = upsert(github, 1, "report", 3, "new")
    assert (done.comment_id, done.twins) == (first.id, (second.id,))
    (left,) = state.comments(1)
    assert (left.id, left.body) == (first.id, marked("report", max(3, *theirs), body))


@pytest.mark.parametrize(("rival", "action", "text"), [(2, "updated", "ours"), (4, "kept", "rival")])
def test_two_runs_that_create_at_once_agree_on_the_oldest(
    github: GitHub, state: ForgeState, line: Line, rival: int, action: str, text: str
):
    line.overtake = ("POST", lambda: state.comment(BOT, 1, marked("report", rival, "rival")))
    done = upsert(github, 1, "report", 3, "ours")
    (left,) = state.comments(1)
    assert (done.comment_id, done.action, len(done.twins)) == (left.id, action, 1)
    assert left.body.startswith(text)


LIMITED: list[Fault] = ["403 wait", "429 wait", "403 secondary", "429"]


@pytest.mark.parametrize("fault", LIMITED)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_what_a_limit_stopped_is_sent_again_after_as_long_as_github_asks(
    github: GitHub, state: ForgeState, line: Line, fault: Fault, method: str, monkeypatch: pytest.MonkeyPatch
):
    """With `Retry-After` a second here, without it a minute."""
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    line.faults = {method: [fault]}
    github.comments(1)
    github.create_comment(1, "once")
    assert [comment.body for comment in state.comments(1)] == ["once"]
    assert 1 <= sum(waited) <= 61
    assert any(second >= (1 if "wait" in fault else 59) for second in waited)


def test_a_limit_that_lasts_is_said_at_once(github: GitHub, state: ForgeState, line: Line):
    line.faults = {"POST": ["403 limit"]}
    with pytest.raises(GitHubError, match="rate limit") as caught:
        github.create_comment(1, "never")
    assert (caught.value.retryable, state.comments(1), line.sent("POST")) == (True, [], 1)


def test_a_refusal_is_no_limit(github: GitHub, state: ForgeState, line: Line):
    line.faults = {"POST": ["403 plain"]}
    with pytest.raises(GitHubError, match="not accessible") as caught:
        github.create_comment(1, "never")
    assert (caught.value.retryable, line.sent("POST")) == (False, 1)


@pytest.mark.parametrize("fault", [None, *UNKNOWN])
def test_a_comment_is_removed_once_and_one_that_is_gone_is_no_error(
    github: GitHub, state: ForgeState, line: Line, fault: Fault | None
):
    theirs = state.comment(BOT, 1, "twin").id
    line.faults = {"DELETE": [fault]} if fault else {}
    github.delete_comment(theirs)
    github.delete_comment(theirs)
    assert state.comments(1) == []


@pytest.mark.parametrize("repo", ["", "acme", "acme/", "/kernels", "acme/kernels/x"])
def test_a_repository_that_is_none_is_refused(repo: str):
    with pytest.raises(UsageError):
        connect("http://127.0.0.1:9", "x", repo)


def test_an_unreachable_host_is_an_error_worth_retrying():
    with pytest.raises(GitHubError, match="no answer") as caught:
        connect("http://127.0.0.1:9", "x", "acme/kernels").issue(1)
    assert caught.value.retryable


def test_open_issues_are_those_with_the_label_and_no_pull_requests(github: GitHub, state: ForgeState):
    for number in (1, state.open_issue("alice", "Another", "").number):
        state.label("alice", number, "optimize")
    state.edit_issue("alice", 2, state="closed")
    state.open_issue("alice", "Without", "")
    assert [issue.number for issue in github.open_issues("optimize")] == [1]


def test_a_comparison_is_of_commits_and_says_when_it_is_too_long(github: GitHub, state: ForgeState, tmp_path: Path):
    base = state.repository.refs()["refs/heads/main"]
    remote, author = Remote(str(state.repository.path)), Identity("alice", "alice@example.org")

    def push(branch: str, count: int) -> str:
        files = {f"kernels/rmsnorm/f{number}.py": b"x" for number in range(count)}
        change = Change(operation="rmsnorm", base_sha=base, files=files, message="Add", author=author)
        return push_files(remote, branch, change)

    few, many = push("few", 2), push("many", 300)
    files = github.changed(base, few)
    assert files is not None
    assert [file.path for file in files] == ["kernels/rmsnorm/f0.py", "kernels/rmsnorm/f1.py"]
    assert github.changed(few, base) == []
    assert github.changed(base, many) is None
    state.open_pull("alice", "Few", "", head="few", base="main")
    assert [pull.head_sha for pull in github.open_pulls()] == [few]
