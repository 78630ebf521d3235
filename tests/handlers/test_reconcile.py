"""What was abandoned is said to be interrupted, once its run has ended and not before."""

import time
from datetime import UTC, datetime, timedelta

from bot.github.client import connect
from bot.handlers.asked import PROGRESS
from bot.handlers.demo import BOT
from bot.handlers.evidence import EXAM
from bot.handlers.reconcile import reconcile
from tests.github.flaky import line_to
from tests.handlers.conftest import PATH
from tests.handlers.street import Street
from tests.verify.conftest import HONEST

LATER = timedelta(hours=1)


def reconciled(street: Street, after: timedelta = LATER) -> list[str]:
    return reconcile(street.town.github, street.town.remote, datetime.now(UTC) + after)


def begun(street: Street, number: int, workflow: str = "commands") -> int:
    """A run of a workflow whose gate is about to answer the newest event; its id."""
    return street.town.forge.state.begin_run(workflow, f"{workflow} #{number}", "issue_comment").id


def gated(street: Street, run: int, number: int, text: str = "") -> None:
    """The gate of that run, on a label or a comment."""
    town = street.town
    if text:
        town.person("maintainer").post(f"issues/{number}/comments", body=text)
    else:
        town.person("maintainer").post(f"issues/{number}/labels", labels=["optimize"])
    assert town.gate(run=run, run_url=f"{town.forge.url}/acme/kernels/actions/runs/{run}")[0].go


def test_a_run_that_died_is_interrupted_and_its_issue_says_what_to_do(street: Street) -> None:
    issue = street.town.open_issue()
    run = begun(street, issue, "optimize")
    gated(street, run, issue)
    assert reconciled(street) == [], "it lives"
    street.town.forge.state.end_run(run, "failure")
    assert reconciled(street, timedelta()) == [], "GitHub's lists may be older than that"
    assert reconciled(street) == [f"#{issue}: run {run} was interrupted"]
    (said,) = street.town.said(issue)
    assert said.startswith(f"**Interrupted.** Workflow run {run} ended without a result")
    assert "take the label `optimize` off this issue and put it on again" in said
    assert reconciled(street) == []
    assert street.town.said(issue) == [said], "saying it once is enough"


def test_a_later_run_is_not_said_to_be_interrupted(street: Street) -> None:
    issue = street.town.open_issue()
    first = begun(street, issue, "optimize")
    gated(street, first, issue)
    street.town.forge.state.end_run(first, "failure")
    street.town.forge.state.unlabel("maintainer", issue, "optimize")
    time.sleep(1.1)  # GitHub's times are whole seconds, and one names the act
    second = begun(street, issue, "optimize")
    gated(street, second, issue)
    assert reconciled(street) == []
    assert street.town.said(issue)[0].startswith("Working on")
    assert f"proctor:{PROGRESS} run={second}" in street.town.said(issue)[0]


def test_an_exam_that_died_leaves_an_error_with_what_to_send(street: Street) -> None:
    number = street.proposal({PATH: HONEST})
    run = begun(street, number)
    gated(street, run, number, "/verify")
    assert street.statuses(number)[EXAM][0] == "pending"
    reconciled(street)
    assert street.statuses(number)[EXAM][0] == "pending", "it lives"
    street.town.forge.state.end_run(run, "cancelled")
    assert f"#{number}: run {run} was interrupted" in reconciled(street)
    state, text = street.statuses(number)[EXAM]
    assert (state, text) == ("error", "interrupted: run 1 ended without a result; /verify begins anew")


def test_the_next_command_reconciles_too(street: Street) -> None:
    town, number = street.town, street.proposal({PATH: HONEST})
    run = begun(street, number)
    gated(street, run, number, "/verify")
    town.forge.state.end_run(run, "failure")
    town.person("maintainer").post(f"issues/{number}/comments", body="/help")
    town.gate(now=datetime.now(UTC) + LATER)
    assert street.statuses(number)[EXAM][0] == "error"


def test_status_says_what_was_interrupted(street: Street) -> None:
    town, number = street.town, street.proposal({PATH: HONEST})
    run = begun(street, number)
    gated(street, run, number, "/verify")
    town.forge.state.end_run(run, "failure")
    town.person("maintainer").post(f"issues/{number}/comments", body="/bench-status")
    town.gate(now=datetime.now(UTC) + LATER)
    assert "`proctor/exam` is error: `interrupted: run 1 ended" in town.said(number)[-1]


def test_what_came_of_a_run_meanwhile_is_not_overwritten(street: Street) -> None:
    """The report arrives between reading the status and asking which runs go on."""
    town, number = street.town, street.proposal({PATH: HONEST})
    run_id = begun(street, number)
    town.person("maintainer").post(f"issues/{number}/comments", body="/verify")
    _, run = town.gate(run=run_id, run_url=f"{town.forge.url}/acme/kernels/actions/runs/{run_id}")

    def finishes() -> None:
        street.finish(run)
        town.forge.state.end_run(run_id, "success")

    with line_to(town.forge.api_url) as line:
        github = connect(line.api_url, "bot-token", "acme/kernels", login=BOT)
        line.overtake = ("GET /api/v3/repos/acme/kernels/actions/runs", finishes)
        reconcile(github, town.remote, datetime.now(UTC) + LATER)
    assert street.statuses(number)[EXAM] == ("success", "improved, 1 runs")


def test_a_run_that_is_repeated_claims_its_event_again(street: Street) -> None:
    town, issue = street.town, street.town.open_issue()
    town.person("maintainer").post(f"issues/{issue}/labels", labels=["optimize"])
    assert town.gate(run=7)[0].go
    assert not town.gate(run=7)[0].go, "the same attempt twice is a duplicate"
    assert town.gate(run=7, attempt=2, rerun_by="maintainer")[0].go
    refused, _ = town.gate(run=7, attempt=3, rerun_by="visitor")
    assert "E_NOT_A_WRITER" in refused.why


def test_an_issue_that_is_withdrawn_ends_its_run(street: Street) -> None:
    town = street.town
    acts = {
        "took the label `optimize` off": lambda n: town.forge.state.unlabel("maintainer", n, "optimize"),
        "closed this issue": lambda n: town.forge.state.edit_issue("maintainer", n, state="closed"),
        "edited this issue": lambda n: town.forge.state.edit_issue("maintainer", n, body="Other."),
    }
    for said, act in acts.items():
        issue = town.open_issue()
        run = begun(street, issue, "optimize")
        gated(street, run, issue)
        town.forge.state.set_job(run, "gate", "completed", "success")
        town.forge.state.set_job(run, "agent", "in_progress")
        act(issue)
        assert town.gate()[0].why == f"stopped run {run}"
        assert town.forge.state.run(run).conclusion == "cancelled"
        assert said in town.said(issue)[0]
        assert town.gate()[0].why == "ignored: no run of this issue goes on"
