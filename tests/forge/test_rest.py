import json
import urllib.error
import urllib.request

import pytest
from github import GithubException
from github.Repository import Repository

from bot.forge.server import Forge


def _refused(status: int) -> "pytest.RaisesExc[GithubException]":
    return pytest.raises(GithubException, check=lambda error: error.status == status)


def _raw(forge: Forge, path: str, token: str = "", body: bytes | None = None) -> tuple[int, dict[str, str], object]:
    headers = {"Authorization": token} if token else {}
    request = urllib.request.Request(forge.api_url + path, body, headers)  # noqa: S310
    try:
        answer = urllib.request.urlopen(request, timeout=10)  # noqa: S310
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        return answer.status or 0, dict(answer.headers), json.load(answer)


def _label(repo: Repository, number: int, *names: str) -> None:
    """As GitHub describes it; PyGithub sends a bare list, which GitHub takes too but does not say."""
    repo.requester.requestJsonAndCheck("POST", f"{repo.url}/issues/{number}/labels", input={"labels": list(names)})


def test_story_of_an_issue_through_pygithub(client, state):
    number = state.open_issue("mallory", "Faster", "### Contract\n\nrmsnorm").number
    repo = client("bot").get_repo("acme/kernels")
    issue = repo.get_issue(number)
    assert (issue.title, issue.user.login, issue.body) == ("Faster", "mallory", "### Contract\n\nrmsnorm")
    comment = issue.create_comment("on it")
    comment.create_reaction("eyes")
    issue.create_reaction("rocket")
    comment.edit("done")
    _label(repo, number, "optimize", "needs-info")
    issue.remove_from_labels("needs-info")
    assert [label.name for label in issue.get_labels()] == ["optimize"]
    assert issue.get_comment(comment.id).body == "done"
    assert issue.get_comment(comment.id).raw_data["reactions"]["eyes"] == 1
    issue.edit(state="closed")
    assert repo.get_issue(number).state == "closed"
    with _refused(404):
        issue.remove_from_labels("never-there")
    with _refused(404):
        repo.get_issue(99)


def test_story_of_a_pull_request_through_pygithub(client):
    repo = client("bot").get_repo("acme/kernels")
    pull = repo.create_pull(base="main", head="faster", title="Faster", body="Report")
    assert (pull.commits, pull.changed_files, pull.additions, pull.deletions) == (1, 2, 2, 1)
    assert {file.filename: file.status for file in pull.get_files()} == {"kernel.py": "modified", "notes.md": "added"}
    assert "return x * 1" in next(iter(pull.get_files())).patch
    assert [found.number for found in repo.get_pulls(head="acme:faster")] == [pull.number]
    assert repo.get_pulls(head="acme:other").totalCount == 0
    pull.as_issue().create_comment("report")
    assert [comment.body for comment in pull.get_issue_comments()] == ["report"]
    for state in ("pending", "success"):
        repo.get_commit(pull.head.sha).create_status(state, context="proctor/exam", description="fine")
    combined = repo.get_commit(pull.head.sha).get_combined_status()
    assert (combined.state, [status.context for status in combined.statuses]) == ("success", ["proctor/exam"])
    _, said = repo.requester.requestJsonAndCheck("GET", f"/repos/acme/kernels/commits/{pull.head.sha}/statuses")
    assert [status["state"] for status in said] == ["success", "pending"]
    reviewed = client("rachel").get_repo("acme/kernels").get_pull(pull.number).create_review(event="APPROVE")
    assert (reviewed.state, reviewed.commit_id) == ("APPROVED", pull.head.sha)
    assert [review.user.login for review in pull.get_reviews()] == ["rachel"]
    with _refused(422):
        pull.create_review(event="APPROVE")
    with _refused(422):
        repo.create_pull(base="main", head="faster", title="Again", body="")
    pull.edit(state="closed", title="Renamed")
    assert (repo.get_pull(pull.number).state, repo.get_pull(pull.number).title) == ("closed", "Renamed")


def test_refs_made_through_rest_are_refs_of_the_repository(client, state, git):
    repo = client("bot").get_repo("acme/kernels")
    sha = repo.get_branch("main").commit.sha
    ref = repo.create_git_ref("refs/proctor/claims/issue-1", sha)
    assert git("--git-dir", str(state.repository.path), "rev-parse", "refs/proctor/claims/issue-1") == sha
    with pytest.raises(GithubException, match="Reference already exists"):
        repo.create_git_ref("refs/proctor/claims/issue-1", sha)
    assert repo.get_git_ref("proctor/claims/issue-1").object.sha == sha
    assert [each.ref for each in repo.get_git_matching_refs("proctor/")] == ["refs/proctor/claims/issue-1"]
    ref.delete()
    with _refused(404):
        repo.get_git_ref("proctor/claims/issue-1").object  # noqa: B018 - the property asks the server
    with _refused(404):
        repo.get_branch("nowhere")


@pytest.mark.parametrize(
    ("login", "permission", "role"),
    [
        ("alice", "admin", "admin"),
        ("rachel", "write", "write"),
        ("tom", "read", "triage"),
        ("mallory", "read", "read"),
    ],
)
def test_permission_folds_roles_and_keeps_the_exact_one(client, login, permission, role):
    repo = client("bot").get_repo("acme/kernels")
    assert repo.get_collaborator_permission(login) == permission
    assert repo.get_collaborator_role_name(login) == role


def test_permission_of_apps_and_strangers_is_not_found(client):
    repo = client("bot").get_repo("acme/kernels")
    with pytest.raises(GithubException, match="is not a user"):
        repo.get_collaborator_permission("github-actions[bot]")
    with _refused(404):
        repo.get_collaborator_permission("nobody")


def test_comments_come_in_pages_and_pygithub_reads_them_all(client, forge, state):
    number = state.open_issue("alice", "Faster", "").number
    for each in range(7):
        state.comment("alice", number, str(each))
    github = client("bot")
    github.per_page = 3
    assert [c.body for c in github.get_repo("acme/kernels").get_issue(number).get_comments()] == list("0123456")
    path = f"/repos/acme/kernels/issues/{number}/comments"
    _, headers, first = _raw(forge, f"{path}?per_page=3")
    assert isinstance(first, list)
    assert len(first) == 3
    assert f'<{forge.api_url}{path}?per_page=3&page=2>; rel="next"' in headers["Link"]
    assert f'<{forge.api_url}{path}?per_page=3&page=3>; rel="last"' in headers["Link"]
    assert 'rel="prev"' not in headers["Link"]
    assert _raw(forge, f"{path}?per_page=3&page=4")[2] == []
    assert "Link" not in _raw(forge, path)[1]


def test_token_decides_who_asks(forge):
    assert _raw(forge, "/user", "Bearer token-alice")[2]["login"] == "alice"  # type: ignore[index]
    assert _raw(forge, "/user", "token token-tom")[2]["login"] == "tom"  # type: ignore[index]
    assert _raw(forge, "/user")[0] == 401
    assert _raw(forge, "/user", "token wrong")[0] == 401
    assert _raw(forge, "/user", "nonsense")[0] == 401
    assert _raw(forge, "/user", "token token-bot")[0] == 403
    assert _raw(forge, "/repos/acme/kernels")[0] == 200
    assert _raw(forge, "/repos/acme/kernels", "token wrong")[0] == 401


def test_reader_may_comment_and_nothing_else(client, state):
    number = state.open_issue("alice", "Faster", "").number
    repo = client("mallory").get_repo("acme/kernels")
    sha = repo.get_branch("faster").commit.sha
    repo.get_issue(number).create_comment("please")
    for act in (
        lambda: repo.create_git_ref("refs/heads/mine", sha),
        lambda: repo.get_commit(sha).create_status("success"),
        lambda: repo.create_pull(base="main", head="faster", title="Mine", body=""),
        lambda: _label(repo, number, "optimize"),
        lambda: repo.get_issue(number).edit(state="closed"),
    ):
        with _refused(403):
            act()
    assert [comment.user.login for comment in state.comments(number)] == ["mallory"]


@pytest.mark.parametrize(
    ("body", "status"), [(b"{", 400), (b"{}", 422), (b'{"body": 3}', 422), (b'{"body": "  "}', 422), (b"[]", 422)]
)
def test_bodies_that_are_not_what_is_wanted_are_refused(forge, state, body, status):
    number = state.open_issue("alice", "Faster", "").number
    code, _, answer = _raw(forge, f"/repos/acme/kernels/issues/{number}/comments", "token token-alice", body)
    assert code == status
    assert "message" in answer  # type: ignore[operator]


@pytest.mark.parametrize("path", ["/repos/acme/other", "/repos/acme/kernels/nothing", "/repos/acme/kernels/issues/x"])
def test_unknown_addresses_answer_in_json(forge, path):
    code, _, answer = _raw(forge, path)
    assert (code, answer["message"]) == (404, "Not Found")  # type: ignore[index]


def test_every_address_in_an_answer_begins_with_the_forge(client, forge):
    pull = client("bot").get_repo("acme/kernels").create_pull(base="main", head="faster", title="Faster", body="")

    def addresses(value: object) -> list[str]:
        if isinstance(value, dict):
            return [
                found
                for key, each in value.items()
                for found in ([each] if key.endswith("url") and each else addresses(each))
            ]
        return [found for each in value for found in addresses(each)] if isinstance(value, list) else []

    found = addresses(pull.raw_data)
    assert len(found) > 100
    assert [each for each in found if not each.startswith(forge.url)] == []
