"""A repository's settings through PyGithub: what is kept, what is refused, and to whom."""

import pytest
from github import GithubException


def _refused(status: int) -> "pytest.RaisesExc[GithubException]":
    return pytest.raises(GithubException, check=lambda error: error.status == status)


def _send(repo, method, path, document=None):
    return repo.requester.requestJsonAndCheck(method, f"{repo.url}/{path}", input=document)[1]


@pytest.fixture
def repo(client):
    return client("alice").get_repo("acme/kernels")


def test_labels_are_made_once_and_listed_with_their_description(client, repo):
    assert repo.create_label("optimize", "0e8a16", "Write a faster kernel").description == "Write a faster kernel"
    assert [(label.name, label.color) for label in repo.get_labels()] == [("optimize", "0e8a16")]
    with _refused(422):
        repo.create_label("Optimize", "0e8a16")
    with _refused(422):
        repo.create_label("other", "#0e8a16")
    with _refused(422):
        repo.create_label("other", "0e8a16", "x" * 101)
    with _refused(403):
        client("tom").get_repo("acme/kernels").create_label("mine", "0e8a16")


def test_variables_are_made_changed_and_read_in_pages(client, repo):
    for number in range(35):
        repo.create_variable(f"PROCTOR_{number}", str(number))
    assert len(list(repo.get_variables())) == 35
    _send(repo, "PATCH", "actions/variables/PROCTOR_3", {"value": "three"})
    assert {v.name: v.value for v in repo.get_variables()}["PROCTOR_3"] == "three"
    with _refused(409):
        repo.create_variable("PROCTOR_3", "again")
    with _refused(404):
        _send(repo, "PATCH", "actions/variables/NOWHERE", {"value": "x"})
    for name in ("GITHUB_X", "3", "A B"):
        with _refused(422):
            repo.create_variable(name, "x")
    with _refused(403):
        client("rachel").get_repo("acme/kernels").create_variable("A", "x")
    assert len(list(client("rachel").get_repo("acme/kernels").get_variables())) == 35
    with _refused(403):
        list(client("bot").get_repo("acme/kernels").get_variables())


def test_a_ruleset_shows_its_rules_alone_and_on_its_branch(client, repo):
    document = {
        "name": "proctor",
        "target": "branch",
        "enforcement": "active",
        "conditions": {"ref_name": {"include": ["~DEFAULT_BRANCH"], "exclude": []}},
        "rules": [{"type": "deletion"}],
        "bypass_actors": [{"actor_id": 5, "actor_type": "RepositoryRole", "bypass_mode": "always"}],
    }
    number = _send(repo, "POST", "rulesets", document)["id"]
    assert [each["name"] for each in _send(repo, "GET", "rulesets")] == ["proctor"]
    assert "rules" not in _send(repo, "GET", "rulesets")[0]
    assert _send(repo, "GET", f"rulesets/{number}")["rules"] == [{"type": "deletion"}]
    other = client("rachel").get_repo("acme/kernels")
    assert "bypass_actors" not in _send(other, "GET", f"rulesets/{number}")
    assert _send(repo, "GET", "rules/branches/main") == [{"type": "deletion", "ruleset_id": number}]
    assert _send(repo, "GET", "rules/branches/faster") == []
    _send(repo, "PUT", f"rulesets/{number}", {"enforcement": "disabled"})
    assert _send(repo, "GET", "rules/branches/main") == []
    with _refused(422):
        _send(repo, "POST", "rulesets", document)
    with _refused(422):
        _send(repo, "POST", "rulesets", {"name": "x"})
    with _refused(404):
        _send(repo, "GET", "rulesets/9")
    with _refused(403):
        _send(other, "POST", "rulesets", document | {"name": "mine"})


def test_an_environment_has_its_branches(repo):
    with _refused(404):
        _send(repo, "GET", "environments/proctor-agent")
    policy = {"protected_branches": False, "custom_branch_policies": True}
    _send(repo, "PUT", "environments/proctor-agent", {"deployment_branch_policy": policy})
    assert _send(repo, "GET", "environments/proctor-agent")["deployment_branch_policy"] == policy
    path = "environments/proctor-agent/deployment-branch-policies"
    _send(repo, "POST", path, {"name": "main"})
    assert [each["name"] for each in _send(repo, "GET", path)["branch_policies"]] == ["main"]
    with _refused(422):
        _send(repo, "PUT", "environments/x", {"deployment_branch_policy": dict.fromkeys(policy, True)})


def test_workflow_rights_are_for_administrators(client, repo):
    assert _send(repo, "GET", "actions/permissions/workflow")["can_approve_pull_request_reviews"] is False
    _send(repo, "PUT", "actions/permissions/workflow", {"can_approve_pull_request_reviews": True})
    assert _send(repo, "GET", "actions/permissions/workflow")["can_approve_pull_request_reviews"] is True
    with _refused(403):
        _send(client("rachel").get_repo("acme/kernels"), "GET", "actions/permissions/workflow")


def test_runners_are_listed_with_their_labels_for_administrators(client, repo, state):
    state.settings.runners = {f"runner-{number}": ["self-hosted", "b200"] for number in range(35)}
    found = list(repo.get_self_hosted_runners())
    assert len(found) == 35
    assert [label["name"] for label in found[0].labels] == ["self-hosted", "b200"]
    with _refused(403):
        list(client("rachel").get_repo("acme/kernels").get_self_hosted_runners())


def test_a_repository_says_what_the_asker_may(client):
    assert client("alice").get_repo("acme/kernels").permissions.admin
    assert not client("tom").get_repo("acme/kernels").permissions.push


@pytest.mark.parametrize("document", [[], {"name": 3}, {}])
def test_bodies_that_are_not_what_is_wanted_are_refused(repo, document):
    with pytest.raises(GithubException, check=lambda error: error.status in {400, 422}):
        _send(repo, "POST", "actions/variables", document)
