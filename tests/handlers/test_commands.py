"""The commands against the forge, over HTTP and git: what each starts, ends or says, and why it is refused.

Exams are played here by a launcher that finds what it is told to; the last test holds a real one.
"""

import re
import time
from datetime import timedelta
from typing import ClassVar

import pytest
from typing_extensions import override

from bot.agent.replay import ReplayModel
from bot.agent.task import Budget
from bot.contract.load import load_contract
from bot.errors import InfrastructureError
from bot.evaluation import Evaluation, Job
from bot.forge.actions import Actions
from bot.github.claims import issue_branch
from bot.github.client import connect
from bot.github.events import decode_event
from bot.github.push import Identity
from bot.handlers.agent import AgentTools, agent
from bot.handlers.demo import BOT, REPOSITORY
from bot.handlers.evidence import APPROVAL, EXAM, load_record, load_verified, read_kernel
from bot.handlers.examine import examine
from bot.handlers.gate import Gate, Passed, gate
from bot.handlers.publish import Publisher, publish
from bot.handlers.run import RunFolder
from bot.launch import Watch, launch
from bot.verdict import Kind
from tests.github.flaky import line_to
from tests.handlers.conftest import FORM, PATH, recording
from tests.handlers.street import BOTS_OWN, PERSON, Street
from tests.verify.conftest import HONEST

# /rerun-bench


def test_n_exams_are_held_and_pooled(street: Street) -> None:
    number = street.bots()
    passed, run = street.town.comment(number, "/rerun-bench n=3")
    assert passed.go
    assert street.reactions(number) == ["eyes"]
    assert street.statuses(number)[EXAM] == ("pending", "run 2 goes on")
    done = street.finish(run)
    assert done.verdict is not None
    assert done.verdict.runs == 4
    pull = street.town.github.pull(number)
    record = load_record(pull, "center", street.town.remote)
    assert record.numbers == (1, 2, 3, 4)
    assert street.statuses(number)[EXAM] == ("success", "improved, 4 runs")
    assert "run 4 of 4, pooled" in street.town.said(number)[0]
    _, run = street.town.comment(number, "/rerun-bench")
    assert run.order().run_number == 5


def test_an_exam_that_cannot_be_held_leaves_those_before_it(street: Street) -> None:
    number = street.bots()
    _, run = street.town.comment(number, "/rerun-bench n=3")
    held = street.examiner

    def breaks(job: Job, watch: Watch = lambda _: None) -> Evaluation:
        if len(held.jobs) >= 2:
            raise InfrastructureError("the device fell off the bus")
        return held(job, watch)

    examine(run, street.town.project, breaks, lambda _: None)
    assert sorted(run.numbered()) == [1, 2]


def test_against_the_report_is_against_the_incumbent_it_began_with(street: Street) -> None:
    """The other is of the commit that the gate saw, whatever a runner that had to wait has checked out."""
    town, number = street.town, street.bots()
    index = "incumbents:\n  cpu: torch_new.py\n"
    street.push("main", {"kernels/center/index.yaml": index, "kernels/center/torch_new.py": HONEST + "# new\n"})
    _, run = town.comment(number, "/rerun-bench against=report")
    street.finish(run)
    then = street.examiner.jobs[-1].incumbents
    _, run = town.comment(number, "/rerun-bench against=main")
    street.finish(run)
    now = street.examiner.jobs[-1].incumbents
    assert (then, now["cpu"].name) == ({}, "torch_new")


def test_against_the_report_finds_an_incumbent_that_is_gone(street: Street) -> None:
    index = "incumbents:\n  cpu: torch_old.py\n"
    street.push("main", {"kernels/center/index.yaml": index, "kernels/center/torch_old.py": HONEST + "# old\n"})
    number = street.bots()
    _, run = street.town.comment(number, "/rerun-bench against=report")
    street.finish(run)
    then = street.examiner.jobs[-1].incumbents["cpu"]
    assert (then.name, then.source[-6:]) == ("torch_old", "# old\n")


ON_A_PULL = {
    "/rerun-bench workload=mixed": "E_UNKNOWN_WORKLOAD",
    "/rerun-bench rounds=1": "E_OUT_OF_RANGE",
    "/rerun-bench n=99": "E_OUT_OF_RANGE",
    "/rerun-bench twice": "E_BAD_ARGUMENTS",
    "/rerunbench": "E_UNKNOWN_COMMAND",
    "/rerun-bench\n\n/verify": "E_MANY_COMMANDS",
    "/rerun\u200b-bench": "E_HIDDEN_TEXT",
    "/stop": "E_NOT_ON_ISSUE",
    "/hint Be quick.": "E_NOT_ON_ISSUE",
    "/cancel-bench": "E_NO_RUN",
    "/approve 0123456789abcdef": "E_OTHER_EVIDENCE",
}
ON_AN_ISSUE = {
    "/rerun-bench": "E_NOT_ON_PULL",
    "/verify": "E_NOT_ON_PULL",
    "/cancel-bench": "E_NOT_ON_PULL",
    "/approve 0123456789abcdef": "E_NOT_ON_PULL",
    "/go": "E_NOTHING_WAITS",
    "/stop": "E_NO_RUN",
    "/focus nowhere": "E_UNKNOWN_WORKLOAD",
}


def test_what_cannot_be_followed_is_refused_each_with_its_code(street: Street) -> None:
    number = street.bots()
    assert {text: street.refused(number, text) for text in ON_A_PULL} == ON_A_PULL
    issue = street.town.open_issue()
    assert {text: street.refused(issue, text) for text in ON_AN_ISSUE} == ON_AN_ISSUE


def test_a_second_run_beside_one_that_goes_on_is_refused(street: Street) -> None:
    number = street.bots()
    street.goes_on(number + 1)
    waits = street.town.forge.state.begin_run("commands", f"commands #{number}", "issue_comment")
    street.town.forge.state.set_job(waits.id, "gate", "in_progress")
    assert street.town.comment(number, "/rerun-bench")[0].go, "another's run and a mere gate are none"
    street.goes_on(number)
    assert street.refused(number, "/rerun-bench") == "E_RUN_GOES_ON"
    assert street.refused(number, "/verify") == "E_RUN_GOES_ON"


def test_a_changed_contract_is_not_pooled_with_the_old_one(street: Street) -> None:
    number = street.bots()
    file = street.town.project.contracts / "center" / "contract.yaml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text + "# changed\n", encoding="utf-8")
    assert street.refused(number, "/rerun-bench") == "E_CONTRACT_CHANGED"
    file.write_text(text + "nonsense: 1\n", encoding="utf-8")
    assert street.refused(number, "/rerun-bench") == "E_CONTRACT_BROKEN"


def test_a_closed_pull_request_is_refused(street: Street) -> None:
    number = street.bots()
    street.town.forge.state.edit_issue("maintainer", number, state="closed")
    assert street.refused(number, "/rerun-bench") == "E_CLOSED"
    assert street.refused(number, "/verify") == "E_CLOSED"
    assert street.refused(number, "/approve 0123456789abcdef") == "E_CLOSED"


def test_a_record_with_mistakes_is_said(street: Street) -> None:
    number = street.bots()
    bad = {f"reports/center/issue-{number - 1}/evaluations/002.json": "{}"}
    street.push("proctor/evidence", bad)
    assert street.refused(number, "/rerun-bench") == "E_NO_RECORD"
    assert street.refused(number, "/approve 0123456789abcdef") == "E_NO_RECORD"
    assert street.statuses(number)[APPROVAL][0] == "failure"


# /verify


def test_a_persons_kernel_gets_the_same_exam_statuses_and_approval(street: Street) -> None:
    town = street.town
    number = street.proposal({PATH: HONEST, "kernels/center/index.yaml": "incumbents:\n  cpu: torch_x.py\n"})
    assert street.refused(number, "/rerun-bench") == "E_NOT_OURS"
    assert street.refused(number, "/approve 0123456789abcdef", "reviewer") == "E_NOT_EXAMINED"
    assert street.statuses(number) == {}, "a pull request that nobody asked about gets no status"
    passed, run = town.comment(number, "/verify", "reviewer")
    assert passed.go
    order = run.order()
    assert (order.kind, order.assisted, order.authors, order.requester) == ("verify", False, ["maintainer"], "reviewer")
    assert street.statuses(number) == {EXAM: ("pending", "run 1 goes on")}
    done = street.finish(run)
    assert (done.pull, done.verdict and done.verdict.kind) == (number, Kind.IMPROVED)
    assert street.examiner.jobs[-1].mode == "exam"
    assert street.statuses(number)[EXAM] == ("success", "improved, 1 runs")
    assert street.statuses(number)[APPROVAL][0] == "pending"
    report = next(body for body in town.said(number) if "improved" in body.splitlines()[0])
    assert "assisted" not in report
    named = re.search(r"/approve ([0-9a-f]{16})", report)
    assert named is not None
    assert street.refused(number, f"/approve {named[1]}") == "E_OWN_REQUEST"
    assert street.statuses(number)[APPROVAL][0] == "pending"
    assert town.comment(number, f"/approve {named[1]}", "reviewer")[0].why == "approved by reviewer"
    assert street.statuses(number)[APPROVAL][0] == "success"

    assert town.comment(number, "/verify")[0].go
    _, run = town.gate()
    assert not run.path.exists(), "the same event again starts nothing"


def test_a_changed_kernel_of_a_person_is_another_candidate(street: Street) -> None:
    town, number = street.town, street.proposal({PATH: HONEST})
    for source, runs in ((HONEST, 1), (HONEST, 2), (HONEST + "# other\n", 1)):
        if source != HONEST:
            street.push("faster", {PATH: source}, base="faster")
            assert street.refused(number, "/approve 0123456789abcdef") == "E_NOT_EXAMINED"
        _, run = town.comment(number, "/verify")
        done = street.finish(run)
        assert done.verdict is not None
        assert done.verdict.runs == runs
    candidate = read_kernel(town.remote, town.github.pull(number).head_sha, PATH)
    record = load_verified(number, candidate, town.remote)
    assert record is not None
    assert record.numbers == (3,)


def test_the_bots_own_pull_request_is_measured_again(street: Street) -> None:
    number = street.bots()
    _, run = street.town.comment(number, "/verify")
    assert (run.order().kind, run.order().run_number) == ("rerun", 2)


@pytest.mark.parametrize("how", ["a commit on top", "an amended commit", "an amended commit in the bot's name"])
def test_people_on_the_bots_branch_make_it_assisted_and_its_record_void(street: Street, how: str) -> None:
    town, number = street.town, street.bots()
    branch = issue_branch(number - 1)
    forged = {f"reports/center/issue-{number - 1}/evaluations/002.json": "{}", PATH: HONEST + "# better\n"}
    email = BOTS_OWN if "name" in how else PERSON
    street.push(branch, forged, base=branch, amend="amended" in how, email=email)
    assert street.refused(number, "/rerun-bench") == "E_ASSISTED"
    assert street.refused(number, "/approve 0123456789abcdef", "reviewer") == "E_NOT_EXAMINED"
    passed, run = town.comment(number, "/verify")
    assert passed.go
    order = run.order()
    assert (order.kind, order.assisted, order.run_number) == ("verify", True, 3)
    assert order.authors == ([] if email == BOTS_OWN else ["maintainer"])
    assert run.evaluations() == [], "nothing is pooled with a record that people could write"
    done = street.finish(run)
    assert done.verdict is not None
    assert done.verdict.runs == 1
    assert street.statuses(number)[EXAM] == ("success", "improved, 1 runs, assisted")
    assert "assisted: people changed what the agent wrote" in town.said(number)[0]
    assert street.refused(number, "/rerun-bench") == "E_ASSISTED", "an exam of it does not make it the bot's again"


NOT_ONE_KERNEL: list[tuple[str, dict[str, str]]] = [
    ("E_KERNEL_FILES", {"notes.md": "x"}),
    ("E_KERNEL_FILES", {PATH: HONEST, "kernels/center/torch_y.py": HONEST}),
    ("E_OTHER_FILES", {PATH: HONEST, "contracts/center/oracle.py": "x = 1\n"}),
    ("E_OTHER_FILES", {PATH: HONEST, "reports/center/pull-1/evaluations/001.json": "{}"}),
    ("E_KERNEL_NAME", {"kernels/center/Fast.py": HONEST}),
    ("E_KERNEL_NAME", {"kernels/center/torch_`@x`.py": HONEST}),
    ("E_UNKNOWN_CONTRACT", {"kernels/other/torch_x.py": HONEST}),
    ("E_KERNEL_TEXT", {PATH: "x" * (1 << 20) + "x"}),
]


def test_a_pull_request_that_is_not_one_kernel_is_refused(street: Street) -> None:
    made = [street.proposal(files, f"branch-{place}") for place, (_, files) in enumerate(NOT_ONE_KERNEL)]
    assert [street.refused(number, "/verify") for number in made] == [code for code, _ in NOT_ONE_KERNEL]


def test_forks_are_refused_with_the_reason(street: Street) -> None:
    state = street.town.forge.state
    sha = street.push("theirs", {PATH: HONEST})
    state.repository.set_ref("refs/forks/visitor/theirs", sha)
    number = state.open_pull("visitor", "Mine", "", head="visitor:theirs", base="main").number
    for text in ("/rerun-bench", "/verify", "/approve 0123456789abcdef"):
        assert street.refused(number, text) == "E_FORK"
    assert "from a fork" in street.town.said(number)[-1]


# /cancel-bench, /bench-status, /stop


def test_status_tells_which_run_since_when_and_what_is_before_it(street: Street) -> None:
    number = street.bots()
    assert "No run of this pull request goes on; 0 of others" in street.answered(number, "/bench-status")
    assert "`proctor/exam` is success: `improved, 1 runs`" in street.town.said(number)[-1]
    other = street.goes_on(number - 1, "optimize", "agent")
    mine = street.goes_on(number, waits=True)
    said = street.answered(number, "/bench-status")
    assert f"[Run {mine}]({street.town.forge.url}/{REPOSITORY}/actions/runs/{mine}) goes on since 20" in said
    assert "waits for a runner for its job `verify`; of the other runs that go on, 1 began before it" in said
    state = street.town.forge.state
    state.end_run(other, "success")
    state.set_job(mine, "verify", "in_progress")
    assert "is in its job `verify` since" in street.answered(number, "/bench-status")
    assert "none began before it" in street.town.said(number)[-1]
    state.set_job(mine, "verify", "completed", "success")
    assert "is between two jobs" in street.answered(number, "/bench-status")
    state.set_job(mine, "publish", "completed", "success")
    assert "No run of this pull request goes on" in street.answered(number, "/bench-status")


def test_status_tells_how_long_an_exam_takes_by_those_on_record(street: Street) -> None:
    number = street.bots()
    assert "No exam of `center` is on record here" in street.answered(number, "/bench-status")
    street.finish(street.town.comment(number, "/rerun-bench")[1])
    takes = "An exam of `center` takes 67 s here (median, n=1)"
    assert f"{takes}." in street.answered(number, "/bench-status")
    assert f"{takes}." in street.answered(number - 1, "/bench-status"), "on the issue too"
    mine = street.town.forge.state.run(street.goes_on(number))
    ends = next(job.started_at for job in mine.jobs if job.name == "verify" and job.started_at) + timedelta(seconds=67)
    assert f"{takes}: by that this one ends about {ends:%H:%M} UTC." in street.answered(number, "/bench-status")


def test_a_cancelled_exam_leaves_what_was_known(street: Street) -> None:
    number = street.bots()
    street.town.comment(number, "/rerun-bench")
    run_id = street.goes_on(number)
    assert street.statuses(number)[EXAM][0] == "pending"
    assert "`proctor/exam` is again success" in street.answered(number, "/cancel-bench")
    run = street.town.forge.state.run(run_id)
    assert (run.status, run.conclusion) == ("completed", "cancelled")
    assert street.statuses(number)[EXAM] == ("success", "improved, 1 runs")
    assert street.refused(number, "/cancel-bench") == "E_NO_RUN"
    assert street.town.comment(number, "/rerun-bench")[0].go


def test_a_cancelled_first_exam_leaves_an_error(street: Street) -> None:
    number = street.proposal({PATH: HONEST})
    street.town.comment(number, "/verify")
    street.goes_on(number)
    assert "is error" in street.answered(number, "/cancel-bench")
    assert street.statuses(number)[EXAM] == ("error", "the exam was cancelled by maintainer")


def test_stop_ends_the_run_of_an_issue(street: Street) -> None:
    town, issue = street.town, street.town.open_issue()
    town.label(issue)
    run_id = street.goes_on(issue, "optimize", "agent")
    assert "What its agent wrote is lost" in street.answered(issue, "/stop")
    assert town.forge.state.run(run_id).conclusion == "cancelled"
    assert town.said(issue)[0].startswith(f"Stopped by @maintainer: [Run {run_id}]")
    assert street.refused(issue, "/stop") == "E_NO_RUN"


# /hint, /focus, /budget


def test_what_is_asked_before_the_label_reaches_the_agent(street: Street) -> None:
    town, issue = street.town, street.town.open_issue(FORM.replace("_No response_", "Long prompts."))
    workload = load_contract(town.project.contracts, "center").contract.workloads[0].name
    for text in (
        "/hint Keep it in registers.",
        f"/focus {workload}",
        "/budget turns=40 seconds=600",
        "/budget turns=3",
    ):
        assert "Noted: the agent is told when the label" in street.answered(issue, text)
    town.comment(issue, "/hint Do as I say.", "visitor")
    edited = town.forge.state.comment("maintainer", issue, "/hint Edited.")
    time.sleep(1.1)  # GitHub's times are whole seconds
    town.forge.state.edit_comment("maintainer", edited.id, "/hint Edited since.")
    _, run = town.label(issue)
    steering = run.order().steering
    assert (steering.hints, steering.focus) == (["Keep it in registers."], [workload])
    assert (steering.turns, steering.tokens, steering.seconds) == (3, None, 600)
    progress = next(body for body in town.said(issue) if body.startswith("Working on"))
    assert f"Noted from the comments: 1 hint; focus on `{workload}`; at most 3 turns; at most 600 seconds." in progress

    class Listening(ReplayModel):
        heard: ClassVar[list[str]] = []

        @override
        def respond(self, system, transcript, tools):
            self.heard.append(transcript[0].text)
            return super().respond(system, transcript, tools)

    model = Listening(recording(town.folder, HONEST, HONEST, HONEST, HONEST))
    town_tools = AgentTools(town.project, run, street.examiner, lambda _: None)
    assert agent(model, Budget(), town_tools) == "all 3 turns spent"
    assert f"> Focus on the workload {workload}.\n> Hint: Keep it in registers.\n> Long prompts." in model.heard[0]


def test_a_run_that_goes_on_cannot_be_told_and_the_answer_says_so(street: Street) -> None:
    issue = street.town.open_issue()
    street.goes_on(issue, "optimize", "agent")
    assert "goes on and cannot be told" in street.answered(issue, "/hint Quick.")
    assert "cannot be told" in street.answered(issue, "/budget turns=3")


def test_what_nothing_can_act_on_is_refused(street: Street) -> None:
    number = street.bots()
    assert street.refused(number - 1, "/hint Quick.") == "E_PULL_OPEN"
    form = street.town.open_issue("please make it faster")
    assert street.refused(form, "/hint Quick.") == "E_REQUEST_FORM"
    street.town.forge.state.edit_issue("maintainer", form, state="closed")
    assert street.refused(form, "/hint Quick.") == "E_CLOSED"


# Who asks


def test_whoever_may_not_write_gets_one_reaction_and_no_word(street: Street) -> None:
    issue = street.town.open_issue()
    texts = ["/help", "/rerun-bench", "/cancel-bench", "/nonsense", "/verify", "/stop", "/hint x"]
    for text in texts:
        passed, run = street.town.comment(issue, text, "visitor")
        assert passed.why == "refused: E_NOT_A_WRITER: @visitor has no write permission here"
        assert not run.path.exists()
        assert street.reactions(issue) == ["-1"]
    assert street.town.said(issue) == texts


def test_a_bot_is_no_person_whatever_it_says(street: Street) -> None:
    issue = street.town.open_issue()
    street.town.forge.state.add_user("helper[bot]", "admin", "helper-token")
    passed, _ = street.town.comment(issue, "/help", "helper")
    assert passed.why == "ignored: no command"
    assert len(street.town.said(issue)) == 1


def _gate(street: Street, api_url: str, rerun_by: str | None = None) -> tuple[Passed, RunFolder]:
    """The newest event, on another line to the forge or in a repeated run."""
    town = street.town
    name, payload = town.events[-1]
    run = RunFolder(town.folder / "another-run")
    github = connect(api_url, "bot-token", REPOSITORY, login=BOT)
    return gate(decode_event(name, payload), Gate(github, town.remote, town.project, run, "cpu", rerun_by)), run


@pytest.mark.parametrize("fault", ["403 plain", "nonsense", "502 instead"])
def test_a_permission_that_github_does_not_tell_is_none(street: Street, fault: str) -> None:
    number = street.bots()
    before = len(street.town.said(number))
    street.town.person("maintainer").post(f"issues/{number}/comments", body="/rerun-bench")
    with line_to(street.town.forge.api_url) as line:
        line.faults["GET"] = [fault] * (4 if fault.startswith("5") else 1)  # type: ignore[list-item]
        passed, run = _gate(street, line.api_url)
    assert passed.why.startswith("refused: E_PERMISSION_UNKNOWN")
    assert not run.path.exists()
    assert street.reactions(number) == [], "taken is what somebody sent who may"
    assert "Nothing was started" in street.town.said(number)[before + 1]


@pytest.mark.parametrize(("who", "may"), [("visitor", False), ("nobody", False), (BOT, False), ("reviewer", True)])
def test_whoever_repeats_a_run_of_a_workflow_must_be_allowed_to(street: Street, who: str, may: bool) -> None:
    issue = street.town.open_issue()
    street.town.person("maintainer").post(f"issues/{issue}/labels", labels=["optimize"])
    passed, _ = _gate(street, street.town.forge.api_url, who)
    assert passed.go is may
    assert may or passed.why == f"refused: E_NOT_A_WRITER: @{who} has no write permission here"


def test_an_objection_stands_against_ones_own_approval_by_comment(street: Street) -> None:
    number = street.bots()
    named = re.search(r"/approve ([0-9a-f]{16})", street.town.said(number)[0])
    assert named is not None
    street.town.person("reviewer").post(f"pulls/{number}/reviews", event="REQUEST_CHANGES", body="Not like this.")
    assert street.refused(number, f"/approve {named[1]}", "reviewer") == "E_OWN_OBJECTION"
    assert street.refused(number, f"/approve {named[1]}") == "E_OWN_REQUEST"


def test_the_workflow_file_answers_and_its_run_is_known_by_its_title(street: Street) -> None:
    town, lines = street.town, list[str]()
    issue = town.open_issue()
    actions = Actions(town.forge, town.folder / "runs", "bot-token", {"PROCTOR_DEVICE": "cpu"}, lines.append)
    actions.listen()
    town.person("maintainer").post(f"issues/{issue}/comments", body="/bench-status")
    actions.drain()
    assert "No run of this issue goes on" in town.said(issue)[-1], lines
    (run,) = (run for run in town.forge.state.runs() if run.workflow == "commands")
    assert (run.title, run.status, run.conclusion) == (f"commands #{issue}", "completed", "success")
    assert [(job.name, job.conclusion) for job in run.jobs] == [
        ("gate", "success"),
        ("verify", "skipped"),
        ("publish", "skipped"),
    ]


@pytest.mark.sandbox
def test_a_persons_wrong_kernel_is_refused_by_the_real_exam(street: Street) -> None:
    number = street.proposal({PATH: "def run(x, offset, scale, cu_seqlens, y):\n    y.zero_()\n"})
    _, run = street.town.comment(number, "/verify")
    examine(run, street.town.project, launch, lambda _: None)
    done = publish(Publisher(street.town.github, street.town.remote, run, Identity("Proctor", BOTS_OWN)))
    assert done.verdict is not None
    assert done.verdict.kind == Kind.INCORRECT
    assert street.statuses(number)[EXAM] == ("failure", "incorrect, 1 runs")
