"""The plan and what comes of it, over HTTP against the forge: twice is once, and what is not allowed is named."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.contract.load import parse_yaml
from bot.errors import GitHubError
from bot.forge.server import Forge
from bot.forge.state import ForgeState
from bot.github.settings import connect_settings
from bot.handlers import setup
from bot.handlers.doctor import KEY
from bot.handlers.setup import (
    APP_ID,
    APP_KEY,
    BOT_ENVIRONMENT,
    BOT_LOGIN,
    ENVIRONMENT,
    RULESET,
    Plan,
    Wanted,
    carry_out,
    make_plan,
)
from bot.handlers.tokens import token_kind
from tests.github.flaky import Line, line_to
from tests.github.test_client import first_commit

ROOT = Path(__file__).parents[2]
ADMIN = "ghp_alice"


@pytest.fixture
def state(tmp_path: Path) -> ForgeState:
    state = ForgeState.create(tmp_path)
    state.add_user("alice", "admin", "ghp_alice")
    state.add_user("rachel", "write", "ghp_rachel")
    state.add_user("mallory", "none", "ghp_mallory")
    state.add_user("github-actions[bot]", "write", "ghs_actions", actions_bot=True)
    first_commit(state.repository.path)
    return state


@pytest.fixture
def line(state: ForgeState) -> Iterator[Line]:
    with Forge.serving(state) as forge, line_to(forge.api_url) as line:
        yield line


def plan_of(line: Line, token: str = ADMIN, wanted: Wanted | None = None) -> Plan:
    return make_plan(connect_settings(line.api_url, token, "acme/kernels"), wanted or Wanted())


def done(plan: Plan) -> list[str]:
    said: list[str] = []
    assert carry_out(plan, said.append) == []
    return said


def test_an_administrator_sets_everything_up_once(line: Line, state: ForgeState):
    plan = plan_of(line)
    assert state.settings.writes == 0, "a plan is made by reading"
    assert len(plan.changes) == 9
    assert len(done(plan)) == 9
    settings = state.settings
    assert [label.name for label in state.labels()] == ["optimize", "needs-info"]
    assert settings.variables == {
        "PROCTOR_RUNNER": "b200",
        "PROCTOR_AGENT_RUNNER": "b200-agent",
        "PROCTOR_DEVICE": "cuda",
    }
    assert settings.branch_policies == {ENVIRONMENT: ["main"], BOT_ENVIRONMENT: ["main"]}
    assert settings.workflow_rights["can_approve_pull_request_reviews"] is True
    (ruleset,) = settings.rulesets.values()
    checks = next(rule for rule in ruleset["rules"] if rule["type"] == "required_status_checks")["parameters"]
    assert [check["context"] for check in checks["required_status_checks"]] == ["proctor/exam", "proctor/approval"]
    writes = settings.writes
    again = plan_of(line)
    assert (again.changes, again.denied) == ([], [])
    assert "  nothing to do" in setup.told(again)
    assert done(again) == []
    assert settings.writes == writes
    assert line.sent("PUT") == 3


def test_what_is_asked_for_is_set_and_what_people_set_stays(line: Line, state: ForgeState):
    state.settings.variables |= {"PROCTOR_DEVICE": "cpu", "PROCTOR_RUNNER": "old", "OTHER": "x"}
    done(plan_of(line, wanted=Wanted(variables={"PROCTOR_RUNNER": "h200", "PROCTOR_MODEL": "anthropic:x"})))
    assert state.settings.variables == {
        "PROCTOR_DEVICE": "cpu",
        "PROCTOR_RUNNER": "h200",
        "PROCTOR_AGENT_RUNNER": "b200-agent",
        "PROCTOR_MODEL": "anthropic:x",
        "OTHER": "x",
    }
    assert plan_of(line).changes == []


def test_the_app_is_named_and_rules_of_others_stay(line: Line, state: ForgeState):
    done(plan_of(line, wanted=Wanted(default_app=15368)))
    (number,) = state.settings.rulesets
    ruleset = state.settings.rulesets[number]
    ruleset["rules"] = [rule for rule in ruleset["rules"] if rule["type"] != "pull_request"]
    ruleset["rules"].append({"type": "required_linear_history"})
    checks = next(rule for rule in ruleset["rules"] if rule["type"] == "required_status_checks")["parameters"]
    checks["required_status_checks"].append({"context": "ci / test", "integration_id": 15368})
    done(plan_of(line, wanted=Wanted(app=77)))
    (after,) = state.settings.rulesets.values()
    assert {rule["type"] for rule in after["rules"]} == {
        "deletion",
        "non_fast_forward",
        "pull_request",
        "required_linear_history",
        "required_status_checks",
    }
    checks = next(rule for rule in after["rules"] if rule["type"] == "required_status_checks")["parameters"]
    named = {check["context"]: check["integration_id"] for check in checks["required_status_checks"]}
    assert named == {"proctor/exam": 77, "proctor/approval": 77, "ci / test": 15368}
    assert after["bypass_actors"] == ruleset["bypass_actors"]
    # Without --app-id the App that is named there is right.
    assert plan_of(line, wanted=Wanted(default_app=15368)).changes == []


def test_statuses_that_anybody_may_set_are_a_note(line: Line):
    done(plan_of(line))
    assert "--app-id" in plan_of(line).notes[0]


def test_a_workflow_token_does_what_it_can_and_the_rest_is_named(line: Line, state: ForgeState):
    plan = plan_of(line, "ghs_actions")
    assert {denied.needs for denied in plan.denied} == {"Variables: read", "Administration: read"}
    said: list[str] = []
    failed = carry_out(plan, said.append)
    assert said == ["done: create the label `optimize`", "done: create the label `needs-info`"]
    assert [denied.needs.partition(" (")[0] for denied in failed] == ["Administration: write"] * 3
    for text in [str(each) for each in [*plan.denied, *failed]]:
        assert "An administrator must act" in text
        assert "needed to" in text
    assert "GITHUB_TOKEN can make labels" in token_kind("ghs_actions")
    assert state.settings.rulesets == {}


def test_somebody_with_write_access_is_told_at_the_write(line: Line):
    plan = plan_of(line, "ghp_rachel")
    failed = carry_out(plan, lambda _: None)
    assert "Variables: write" in {denied.needs for denied in failed}


def test_a_stranger_and_a_wrong_token_end_it(line: Line, state: ForgeState):
    with pytest.raises(GitHubError, match="401"):
        plan_of(line, "ghp_wrong")
    assert {denied.what for denied in plan_of(line, "ghp_mallory").denied} >= {"variables"}


def test_a_failure_of_github_ends_it_and_a_second_run_goes_on(line: Line, state: ForgeState):
    line.faults["POST"] = ["502 after", "502 instead"]
    with pytest.raises(GitHubError, match="502"):
        carry_out(plan_of(line), lambda _: None)
    assert [label.name for label in state.labels()] == ["optimize"]
    line.faults.clear()
    assert "create the label `optimize`" not in "".join(done(plan_of(line)))
    assert plan_of(line).changes == []


SHARDS = "PROCTOR_SHARDS"


def test_shards_are_set_shown_and_set_once(line: Line, state: ForgeState):
    done(plan_of(line))
    state.settings.runners = {"one": ["self-hosted", "h200"], "two": ["H200"], "agent": ["b200"]}
    asked = Wanted(variables={SHARDS: "2", "PROCTOR_RUNNER": "h200"})
    plan = plan_of(line, wanted=asked)
    assert f"  to do  set the variable {SHARDS} to 2\n         takes Variables: write" in setup.told(plan)
    assert plan.faults == []
    assert "2 runners carry the label h200, for 2 parts of an exam" in plan.right
    done(plan)
    assert state.settings.variables[SHARDS] == "2"
    again = plan_of(line)
    assert f"variable {SHARDS} = 2" in again.right
    assert (again.changes, again.faults) == ([], [])


def test_more_shards_than_runners_are_set_and_said(line: Line, state: ForgeState):
    state.settings.runners = {f"runner-{number}": ["b200"] for number in range(3)} | {"other": ["b2000"]}
    plan = plan_of(line, wanted=Wanted(variables={SHARDS: "4"}))
    (fault,) = plan.faults
    assert fault.what == f"{SHARDS} is 4, and of the repository's own runners 3 carry the label b200"
    assert any(text.startswith(f"  WRONG  {fault.what}: ") for text in setup.told(plan))
    done(plan)
    assert state.settings.variables[SHARDS] == "4"


def test_runners_of_an_organisation_are_not_listed(line: Line, state: ForgeState):
    state.settings.variables[SHARDS] = "4"
    plan = plan_of(line)
    assert plan.faults == []
    assert any("no runner of the repository's own carries the label b200" in note for note in plan.notes)


@pytest.mark.parametrize("value", ["0", "17", "-1", "four", "2.0", "", " 2", "٣", "1e1", "9" * 300, "\u202e2"])
def test_what_is_no_number_of_shards_is_wrong_and_no_other_setting_suffers(line: Line, state: ForgeState, value: str):
    state.settings.variables |= {SHARDS: value, "PROCTOR_MODEL": "anthropic:x"}
    plan = plan_of(line)
    (fault,) = plan.faults
    assert fault.why == "it must be a number from 1 to 16"
    assert fault.remedy == "`proctor setup --shards N`, N from 1 to 16"
    assert len(fault.what) < 100
    assert fault.what.isprintable()
    assert "variable PROCTOR_MODEL = anthropic:x" in plan.right
    assert "  nothing to do" not in setup.told(plan)
    done(plan_of(line, wanted=Wanted(variables={SHARDS: "1"})))
    assert state.settings.variables[SHARDS] == "1"
    assert plan_of(line).faults == []


def test_agents_without_a_runner_are_a_note(line: Line, state: ForgeState):
    def notes() -> list[str]:
        return [note for note in plan_of(line).notes if "at which an agent waits" in note]

    assert notes() == [], "all of them may be the organisation's"
    state.settings.runners = {"exams": ["b200"]}
    (note,) = notes()
    assert note.startswith("no runner of the repository's own carries the label b200-agent")
    assert "`proctor setup --agent-runner LABEL`" in note
    state.settings.runners["agents"] = ["self-hosted", "B200-agent"]
    assert notes() == []
    state.settings.variables["PROCTOR_AGENT_RUNNER"] = "b200"
    assert notes() == [], "one runner may do both"


@pytest.mark.parametrize(
    ("variables", "secrets", "said"),
    [
        ({}, [], []),
        ({"PROCTOR_APP_ID": "77", "PROCTOR_BOT_LOGIN": "kernels[bot]"}, ["PROCTOR_APP_KEY"], []),
        (
            {"PROCTOR_APP_ID": "77", "PROCTOR_BOT_LOGIN": "kernels[bot]"},
            [KEY],
            ["PROCTOR_APP_ID is set, and there is no secret PROCTOR_APP_KEY"],
        ),
        ({}, ["PROCTOR_APP_KEY"], ["there is a secret PROCTOR_APP_KEY, and PROCTOR_APP_ID is not set"]),
        (
            {"PROCTOR_APP_ID": ""},
            ["PROCTOR_APP_KEY"],
            ["there is a secret PROCTOR_APP_KEY, and PROCTOR_APP_ID is not set"],
        ),
        ({"PROCTOR_APP_ID": "77"}, ["PROCTOR_APP_KEY"], ["PROCTOR_APP_ID is set, and PROCTOR_BOT_LOGIN is not"]),
    ],
)
def test_half_an_app_is_wrong(variables: dict[str, str], secrets: list[str], said: list[str]):
    assert [fault.what for fault in setup.app_faults(variables, secrets)] == said


def test_setup_looks_at_the_apps_key_where_an_app_is_named(line: Line, state: ForgeState):
    state.settings.secrets[BOT_ENVIRONMENT] = ["PROCTOR_APP_KEY"]
    done(plan_of(line, wanted=Wanted(variables={"PROCTOR_BOT_LOGIN": "kernels[bot]"}, app=15368)))
    assert plan_of(line).faults == []
    state.settings.variables["PROCTOR_APP_ID"] = "77"
    (other,) = plan_of(line).faults
    assert other.what == "PROCTOR_APP_ID is 77, and the required statuses count from 15368"
    done(plan_of(line, wanted=Wanted(app=77)))
    assert plan_of(line).faults == []
    state.settings.secrets.clear()
    assert [fault.remedy.partition(" <")[0] for fault in plan_of(line).faults] == [
        "`gh secret set PROCTOR_APP_KEY --env proctor-bot"
    ]
    assert "the App's key" in {denied.what for denied in plan_of(line, "ghp_rachel").denied}


def test_who_may_not_see_runners_is_told_so(line: Line, state: ForgeState):
    state.settings.variables[SHARDS] = "2"
    denied = {each.what: each for each in plan_of(line, "ghp_rachel").denied}
    assert denied["runners"].needs == "Administration: read"
    assert denied["runners"].why == "compare the labels with them"


def test_kernels_are_kept_to_an_app_where_github_can(line: Line, state: ForgeState):
    asked = Wanted(app=77, restrict_kernels=True)
    assert any("private" in note for note in plan_of(line, wanted=asked).notes)
    state.site = state.site.__class__(**{k: getattr(state.site, k) for k in state.site.__slots__} | {"private": True})
    done(plan_of(line, wanted=asked))
    push = next(each for each in state.settings.rulesets.values() if each["target"] == "push")
    assert push["rules"][0]["parameters"]["restricted_file_paths"] == ["kernels/**/*.py"]
    assert push["bypass_actors"][0] == {"actor_id": 77, "actor_type": "Integration", "bypass_mode": "always"}
    assert plan_of(line, wanted=asked).changes == []


def test_defaults_are_what_the_workflows_take_without_them():
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / ".github" / "workflows").glob("*.yml"))
    for name, value in setup.DEFAULTS.items():
        assert f"vars.{name} || '{value}'" in text
    optimize = parse_yaml((ROOT / ".github" / "workflows" / "optimize.yml").read_text(encoding="utf-8"), "optimize")
    assert optimize["jobs"]["agent"]["environment"] == ENVIRONMENT
    assert optimize["jobs"]["gate"]["environment"] == f"${{{{ vars.{APP_ID} && '{BOT_ENVIRONMENT}' || '' }}}}"
    assert f"secrets.{APP_KEY}" in text
    assert f"vars.{BOT_LOGIN} ||" in text
    assert RULESET == "proctor"
    assert f"secrets.{KEY}" in text
