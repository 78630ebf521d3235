"""The two statuses of every pull request: of one without a kernel at once, of one whose report is stale until it is
renewed."""

import re
import shutil
import subprocess
from typing import Any

import pytest

from bot.contract.load import load_contract
from bot.forge.actions import Actions
from bot.github.push import default_branch
from bot.handlers import evidence
from bot.handlers.evidence import APPROVAL, EXAM
from bot.handlers.stale import contract_digest
from bot.handlers.standing import look
from tests.handlers.conftest import PATH
from tests.handlers.street import Street
from tests.handlers.test_reconcile import begun, reconciled
from tests.verify.conftest import HONEST

NEW = "incumbents:\n  cpu: torch_new.py\n"


def looked(street: Street, number: int) -> str:
    return look(street.town.github.pull(number), street.town.github, street.town.remote)


def woken(street: Street, number: int, event: str = "pull_request", *, fork: bool = False) -> str:
    """What approval.yml does after approve.yml has ended."""
    head = street.town.github.pull(number).head_sha
    run = {"event": event, "head_sha": head, "pull_requests": [] if fork else [{"number": number}]}
    payload = {"action": "completed", "workflow_run": run, "repository": {"full_name": "acme/kernels"}}
    street.town.events.append(("workflow_run", payload))
    return street.town.gate()[0].why


def approve_digest(street: Street, number: int) -> str:
    found = re.search(r"/approve ([0-9a-f]{16})", " ".join(street.town.said(number)))
    assert found is not None
    return found[1]


ORDINARY = {
    "not a kernel change": ["README.md", "docs/x.md", "kernels/README.md", "kernels/wiki/0001.md", "reports/a/soak.md"],
    "not a kernel change: contracts, judge or workflows, which their owners review": [
        "contracts/center/oracle.py",
        ".github/proctor/requirements.txt",
        "bot/verify/x.py",
        ".github/workflows/x.yml",
    ],
}


@pytest.mark.parametrize(("said", "path"), [(said, path) for said, paths in ORDINARY.items() for path in paths])
def test_a_pull_request_without_a_kernel_waits_for_no_exam(street: Street, said: str, path: str) -> None:
    number = street.proposal({path: "x = 1\n"})
    assert woken(street, number) == f"#{number}: {said}"
    assert street.statuses(number) == {EXAM: ("success", said), APPROVAL: ("success", said)}
    before = len(street.town.forge.state.statuses(street.town.github.pull(number).head_sha))
    looked(street, number)
    assert len(street.town.forge.state.statuses(street.town.github.pull(number).head_sha)) == before


def test_a_fork_without_a_kernel_passes_and_one_with_a_kernel_is_refused(street: Street) -> None:
    state = street.town.forge.state
    for branch, path, outcome in (("docs", "README.md", "success"), ("fast", PATH, "failure")):
        sha = street.push(branch, {path: HONEST})
        state.repository.set_ref(f"refs/forks/visitor/{branch}", sha)
        number = state.open_pull("visitor", "Mine", "", head=f"visitor:{branch}", base="main").number
        woken(street, number, fork=True)
        found = street.statuses(number)
        assert (found[EXAM][0], found[APPROVAL][0]) == (outcome, outcome)
        assert ("E_FORK" in found[EXAM][1]) == (outcome == "failure")


@pytest.mark.parametrize(
    ("code", "files"),
    [
        ("E_NOT_EXAMINED", {PATH: HONEST}),
        ("E_OTHER_FILES", {PATH: HONEST, "README.md": "x"}),
        ("E_KERNEL_FILES", {"kernels/center/index.yaml": "incumbents: {}\n"}),
        ("E_EVIDENCE_TOUCHED", {"reports/center/issue-9/evaluations/002.json": "{}"}),
        ("E_TOO_MANY_FILES", {f"docs/{number}.md": "x" for number in range(300)}),
    ],
)
def test_a_pull_request_that_cannot_pass_is_told_why(street: Street, code: str, files: dict[str, str]) -> None:
    number = street.proposal(files)
    assert code in woken(street, number)
    statuses = street.statuses(number)
    assert APPROVAL not in statuses or statuses[APPROVAL][0] == "failure"
    assert statuses[EXAM][0] == "failure"


def test_a_kernel_cannot_be_smuggled_past_by_another_base(street: Street) -> None:
    """Against a branch that has the kernel already the change is a document; the statuses belong to the commit."""
    street.push("feature", {PATH: HONEST})
    sha = street.push("smuggled", {"README.md": "docs"}, base="feature")
    made = street.town.person("maintainer").post("pulls", title="Docs", head="smuggled", base="feature", body="")
    assert [f.path for f in street.town.github.pull_files(made["number"])] == ["README.md"]
    assert "E_" in woken(street, made["number"])
    assert not [s for s in street.town.forge.state.statuses(sha) if s.state == "success"]


def test_a_removed_or_renamed_kernel_is_a_kernel_change(street: Street) -> None:
    street.push("main", {PATH: HONEST})
    work = street.town.folder / "remove"
    url = street.town.forge.clone_url.replace("://", "://x:maintainer-token@")
    for command in (
        ["clone", "--quiet", url, str(work)],
        ["-C", str(work), "checkout", "--quiet", "-B", "gone"],
        ["-C", str(work), "mv", PATH, "moved.py"],
        ["-C", str(work), "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "--quiet", "-m", "Move"],
        ["-C", str(work), "push", "--quiet", "origin", "gone"],
    ):
        subprocess.run(["git", *command], check=True, capture_output=True)
    made = street.town.person("maintainer").post("pulls", title="Move", head="gone", base="main", body="")
    woken(street, made["number"])
    assert street.statuses(made["number"]).get(EXAM, ("none", ""))[0] != "success"


# STALE


def change_contract(street: Street) -> None:
    file = street.town.project.contracts / "center" / "contract.yaml"
    street.push("main", {"contracts/center/contract.yaml": file.read_text(encoding="utf-8") + "# changed\n"})


def change_incumbent(street: Street) -> None:
    street.push("main", {"kernels/center/index.yaml": NEW, "kernels/center/torch_new.py": HONEST + "# new\n"})


def test_a_contracts_digest_at_a_commit_is_that_of_its_folder(street: Street) -> None:
    _, sha = default_branch(street.town.remote)
    folder = street.town.project.contracts
    assert contract_digest(street.town.remote, sha, "center") == load_contract(folder, "center").digest
    assert contract_digest(street.town.remote, sha, "nothing") is None


@pytest.mark.parametrize(
    ("change", "why", "remedy"),
    [
        (change_contract, "the contract has changed on the default branch", "close this pull request and label"),
        (change_incumbent, "another kernel is the incumbent on the default branch", "`/rerun-bench` measures again"),
    ],
)
def test_a_change_on_the_base_makes_a_report_stale(street: Street, change, why: str, remedy: str) -> None:
    number = street.bots()
    named = approve_digest(street, number)
    assert reconciled(street) == [f"#{number}: 0 of 1 approvals of {named} at this head"]
    change(street)
    assert f"#{number}: refused: E_STALE: The evidence is stale: {why}" in reconciled(street)
    assert street.statuses(number)[EXAM] == ("error", f"stale: {why}")
    assert street.statuses(number)[APPROVAL] == ("failure", f"stale: {why}")
    report = street.town.said(number)[0]
    assert report.startswith(f"> ⚠️ **STALE**: {why}")
    assert remedy in report.splitlines()[0]
    assert "**✅ improved" in report
    reconciled(street)
    assert street.town.said(number)[0] == report, "once is enough"
    assert street.refused(number, f"/approve {named}", "reviewer") == "E_STALE"


def test_a_rerun_against_the_new_incumbent_is_of_today(street: Street) -> None:
    number = street.bots()
    change_incumbent(street)
    reconciled(street)
    run_id = begun(street, number)
    street.town.person("maintainer").post(f"issues/{number}/comments", body="/rerun-bench")
    passed, run = street.town.gate(run=run_id, run_url=f"{street.town.forge.url}/acme/kernels/actions/runs/{run_id}")
    assert passed.go
    assert "E_STALE" in reconciled(street)[-1]
    assert street.statuses(number)[EXAM][0] == "pending", "the exam that goes on will say how it is"
    street.finish(run)
    assert street.statuses(number)[EXAM] == ("success", "improved, 2 runs")
    assert "STALE" not in street.town.said(number)[0]
    assert "0 of 1 approvals" in reconciled(street)[-1]


def test_what_was_changed_and_changed_back_is_of_today(street: Street) -> None:
    number = street.bots()
    report = street.town.said(number)[0]
    change_contract(street)
    reconciled(street)
    shutil.rmtree(street.town.folder / "clone-1")
    text = (street.town.project.contracts / "center" / "contract.yaml").read_text(encoding="utf-8")
    street.push("main", {"contracts/center/contract.yaml": text})
    reconciled(street)
    assert street.statuses(number)[EXAM] == ("success", "improved, 1 runs")
    assert street.statuses(number)[APPROVAL][0] == "pending"
    assert street.town.said(number)[0] == report


def test_another_judge_makes_a_report_stale_and_pools_no_run_of_the_old_one(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = street.bots()
    monkeypatch.setattr("bot.digest.of_judge", lambda: "f" * 64)
    assert "the judge has changed" in reconciled(street)[-1]
    assert street.refused(number, "/rerun-bench workload=packed") == "E_JUDGE_CHANGED"
    _, run = street.town.comment(number, "/rerun-bench")
    done = street.finish(run)
    assert done.verdict is not None
    assert done.verdict.runs == 1
    assert street.statuses(number)[EXAM] == ("success", "improved, 1 runs")
    record = evidence.load_record(street.town.github.pull(number), "center", street.town.remote)
    assert {one.judge_digest for one in record.evaluations} == {"f" * 64}


def test_a_push_makes_a_report_stale(street: Street) -> None:
    number = street.proposal({PATH: HONEST})
    _, run = street.town.comment(number, "/verify", "reviewer")
    street.finish(run)
    named = approve_digest(street, number)
    street.push("faster", {PATH: HONEST + "# other\n"}, base="faster")
    assert "E_NOT_EXAMINED" in woken(street, number)
    assert "**STALE**: the branch was pushed to since" in street.town.said(number)[-1]
    assert {state for state, _ in street.statuses(number).values()} == {"error", "failure"}
    assert street.refused(number, f"/approve {named}", "reviewer") == "E_NOT_EXAMINED"
    _, run = street.town.comment(number, "/verify", "reviewer")
    street.finish(run)
    assert not any("STALE" in said for said in street.town.said(number))


def test_a_push_that_leaves_the_kernel_alone_is_a_push_all_the_same(street: Street) -> None:
    number = street.proposal({PATH: HONEST})
    _, run = street.town.comment(number, "/verify", "reviewer")
    street.finish(run)
    street.push("faster", {"kernels/center/index.yaml": "incumbents:\n  cpu: torch_x.py\n"}, base="faster")
    assert "E_STALE: The evidence is stale: the head was " in woken(street, number)
    assert street.statuses(number)[EXAM][0] == "error"


def test_two_pull_requests_of_one_head_are_refused(street: Street) -> None:
    number = street.bots()
    sha = street.town.github.pull(number).head_sha
    street.town.forge.state.create_ref("maintainer", "refs/heads/twin", sha)
    street.town.person("maintainer").post("pulls", title="Twin", head="twin", base="main", body="")
    named = approve_digest(street, number)
    assert street.refused(number, f"/approve {named}", "reviewer") == "E_SHARED_HEAD"
    assert street.statuses(number)[APPROVAL][0] == "failure"


def test_reconciling_twice_writes_nothing_new(street: Street) -> None:
    street.bots()
    street.proposal({"README.md": "x"}, "docs")
    reconciled(street)
    state = street.town.forge.state
    before = [len(state.statuses(pull.head_sha)) for pull in street.town.github.open_pulls()]
    reconciled(street)
    assert before[0] > 0
    after = [len(state.statuses(pull.head_sha)) for pull in street.town.github.open_pulls()]
    assert after == before


def test_the_workflow_files_give_an_ordinary_pull_request_its_statuses(street: Street) -> None:
    """approve.yml ends, and wakes approval.yml, which reads the default branch."""
    town, lines = street.town, list[str]()
    actions = Actions(town.forge, town.folder / "runs", "bot-token", {"PROCTOR_DEVICE": "cpu"}, lines.append)
    actions.listen()
    number = street.proposal({"README.md": "x"})
    actions.drain()
    ran = [(result.workflow, result.job, result.result) for result in actions.results]
    assert ran == [("approve", "wake", "success"), ("approval", "approval", "success")], "\n".join(lines)
    assert {state for state, _ in street.statuses(number).values()} == {"success"}
    street.push("faster", {PATH: HONEST}, base="faster")
    actions.drain()
    assert "E_OTHER_FILES" in street.statuses(number)[EXAM][1]


def test_a_pull_request_that_is_looked_at_the_moment_it_is_opened_stays_the_bots(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an App's token its opening wakes approval.yml before the publisher has said anything."""
    town = street.town
    opened = town.forge.state.open_pull

    def opens(*arguments: Any, **fields: Any) -> Any:
        made = opened(*arguments, **fields)
        looked(street, made.number)
        return made

    monkeypatch.setattr(town.forge.state, "open_pull", opens)
    number = street.bots()
    assert street.statuses(number)[EXAM] == ("success", "improved, 1 runs")
    assert street.statuses(number)[APPROVAL][0] == "pending"
    assert town.comment(number, "/rerun-bench")[0].go
