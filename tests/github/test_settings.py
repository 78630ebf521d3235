"""Settings over HTTP: complete lists, other answers refused, a write that broke off found by the next look."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.errors import GitHubError
from bot.forge.server import Forge
from bot.forge.state import ForgeState
from bot.github.settings import Rule, Settings, connect_settings
from tests.github.flaky import Line, line_to
from tests.github.test_client import first_commit


@pytest.fixture
def state(tmp_path: Path) -> ForgeState:
    state = ForgeState.create(tmp_path)
    state.add_user("alice", "admin", "token-alice")
    first_commit(state.repository.path)
    return state


@pytest.fixture
def line(state: ForgeState) -> Iterator[Line]:
    with Forge.serving(state) as forge, line_to(forge.api_url) as line:
        yield line


@pytest.fixture
def settings(line: Line) -> Settings:
    return connect_settings(line.api_url, "token-alice", "acme/kernels")


def test_the_repository_says_what_we_may(settings: Settings):
    facts = settings.facts()
    assert (facts.full_name, facts.default_branch, facts.private) == ("acme/kernels", "main", False)
    assert facts.permissions["admin"]


def test_variables_are_read_over_all_pages(settings: Settings, state: ForgeState, line: Line):
    state.settings.variables |= {f"PROCTOR_{number}": str(number) for number in range(70)}
    assert [variable.value for variable in settings.variables()] == [str(number) for number in range(70)]
    assert line.sent("GET") == 3


def test_an_environment_s_name_cannot_reach_another_address(settings: Settings, line: Line):
    assert settings.environment("../actions/variables?x=") is None
    assert line.requests[-1].path.endswith("/environments/..%2Factions%2Fvariables%3Fx%3D")


def test_a_write_that_broke_off_is_seen_by_the_next_look(settings: Settings, line: Line):
    line.faults["PUT"] = ["drop after"]
    with pytest.raises(GitHubError, match="no answer"):
        settings.set_workflow_rights(default="read", pull_requests=True)
    assert settings.workflow_rights().can_approve_pull_request_reviews


def test_an_answer_of_another_form_is_refused(settings: Settings, line: Line):
    line.faults["GET"] = ["nonsense"]
    with pytest.raises(GitHubError):
        settings.variables()
    rule = Rule(type="required_status_checks", parameters={"required_status_checks": [{"context": 3}]})
    with pytest.raises(GitHubError, match="not of the documented form"):
        _ = rule.checks
    assert Rule(type="deletion", parameters={"required_status_checks": 3}).checks == []
