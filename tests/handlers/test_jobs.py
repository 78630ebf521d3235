"""The four jobs on the small contract: what is published, and that each stage of the exam can prevent it."""

import re

import pytest

from bot.github.api import GitHub
from bot.handlers.approve import approve
from bot.handlers.evidence import APPROVAL, EXAM, load_record
from bot.handlers.project import Project
from bot.verdict import Kind
from tests.handlers.conftest import PATH, Town
from tests.verify.conftest import HONEST
from tests.verify.test_exam import with_body

pytestmark = pytest.mark.sandbox

FAST = '''"""All rows at once in float32; the offset of each row is gathered."""

import torch


def run(x, offset, scale, cu_seqlens, y):
    rows = x.float()
    rows = rows - rows.mean(dim=-1, keepdim=True)
    if offset is not None:
        rows += torch.repeat_interleave(offset, cu_seqlens.diff(), dim=0)[:, None, :]
    y.copy_(rows.mul_(scale))
'''
SLOW_BASELINE = '''"""Row by row, as a beginner writes it."""

import torch


def run(x, offset, scale, cu_seqlens, y):
    bounds = cu_seqlens.tolist()
    for n in range(len(bounds) - 1):
        for t in range(bounds[n], bounds[n + 1]):
            rows = x[t].float()
            rows = rows - rows.mean(dim=-1, keepdim=True)
            if offset is not None:
                rows = rows + offset[n]
            y[t] = (scale * rows).to(torch.bfloat16)
'''


@pytest.fixture
def slow_project(project: Project) -> Project:
    """The small contract with a baseline slow enough that the clock of a CPU can tell."""
    folder = project.contracts / "center"
    (folder / "baselines" / "torch_loop.py").write_text(SLOW_BASELINE, encoding="utf-8")
    text = (folder / "contract.yaml").read_text(encoding="utf-8")
    text = text.replace("lengths: [300, 100, 112]", "lengths: [3000, 1000, 96]").replace(
        "lengths: [512]", "lengths: [4096]"
    )
    (folder / "contract.yaml").write_text(text, encoding="utf-8")
    return project


@pytest.fixture
def slow_town(slow_project: Project, town: Town) -> Town:
    """A forge whose default branch has that contract: a report on another would be stale."""
    assert town.project is slow_project
    return town


def statuses(github: GitHub, sha: str) -> dict[str, str]:
    return {status.context: status.state for status in reversed(github.statuses(sha))}


@pytest.mark.alone
def test_from_label_to_approval(slow_town: Town) -> None:
    town, github = slow_town, slow_town.github
    issue = town.open_issue()
    _, run = town.label(issue)
    published = town.work(run, with_body("y.zero_()"), FAST)
    assert published.verdict is not None
    assert published.verdict.kind == Kind.IMPROVED, published.verdict.reasons
    assert published.pull is not None

    pull = github.pull(published.pull)
    files = {file.path for file in github.pull_files(pull.number)}
    assert PATH in files
    assert "kernels/center/index.yaml" in files
    assert all(path.startswith(("kernels/center/", "reports/center/")) for path in files)
    kept = [path for path in files if "/candidates/" in path]
    assert len(kept) == 2, "every candidate is kept, the refused one too"
    assert f"reports/center/issue-{issue}/journal.jsonl" in files
    assert statuses(github, pull.head_sha) == {EXAM: "success", APPROVAL: "pending"}
    report = town.said(pull.number)[0]
    assert report.startswith("**✅ improved")
    assert "1 refused on the way" in report
    assert "claimed, not a speedup" in report
    assert f"#{pull.number}" in town.said(issue)[0]

    passed, rerun = town.comment(pull.number, "/rerun-bench")
    assert passed.go
    again = town.finish(rerun)
    assert again.verdict is not None
    assert again.verdict.runs == 2
    assert github.pull(pull.number).head_sha == pull.head_sha, "a rerun never pushes to the pull request"
    assert len(town.said(pull.number)) == 2, "the report is renewed in place, beside the command"
    assert "claimed, not a speedup" in town.said(pull.number)[0], "a rerun keeps what was refused on the way"
    runs = load_record(pull, "center", town.remote).evaluations
    assert len(runs) == 2
    assert runs[0].salt != runs[1].salt
    assert runs[0].cells[0].rounds[0].candidate_ns != runs[1].cells[0].rounds[0].candidate_ns

    digest = re.search(r"`/approve ([0-9a-f]{16})`", town.said(pull.number)[0])
    assert digest is not None
    town.comment(pull.number, f"/approve {digest[1]}")
    assert statuses(github, pull.head_sha)[APPROVAL] == "pending", "the one who asked does not count"
    town.comment(pull.number, f"/approve {digest[1]}", "reviewer")
    assert statuses(github, pull.head_sha)[APPROVAL] == "success"


@pytest.mark.alone
def test_an_approving_review_counts_and_a_visitors_does_not(slow_town: Town) -> None:
    town, github = slow_town, slow_town.github
    _, run = town.label(town.open_issue())
    number = town.work(run, FAST).pull
    assert number is not None
    head = github.pull(number).head_sha
    town.person("visitor").post(f"pulls/{number}/reviews", event="APPROVE", body="nice")
    approve(number, github, town.remote)
    assert statuses(github, head)[APPROVAL] == "pending"
    town.person("reviewer").post(f"pulls/{number}/reviews", event="APPROVE", body="read it")
    approve(number, github, town.remote)
    assert statuses(github, head)[APPROVAL] == "success"


BROKEN = {
    "build": "import nonexistent_module\n" + FAST,
    "smoke": with_body("honest(x, offset, scale, cu_seqlens, y)\ny *= 1.02"),
    # Right for the lengths a benchmark shows, in any order; wrong for others.
    "correctness": with_body(
        "lengths = sorted(cu_seqlens.diff().tolist())\n"
        "if lengths not in ([4096], [96, 1000, 3000]):\n"
        "    cu_seqlens = cu_seqlens.clone()\n"
        "    cu_seqlens[1:-1] = cu_seqlens[-1] // 2\n"
        "honest(x, offset, scale, cu_seqlens, y)"
    ),
    "probes": with_body("honest(x, offset, scale, cu_seqlens, y)\nif offset is None:\n    y.zero_()"),
}


@pytest.mark.parametrize("stage", BROKEN)
def test_a_candidate_that_a_stage_refuses_never_becomes_a_pull_request(slow_town: Town, stage: str) -> None:
    issue = slow_town.open_issue()
    _, run = slow_town.label(issue)
    published = slow_town.work(run, BROKEN[stage])
    recorded = run.agent()
    assert recorded is not None
    assert recorded.attempts[0].evaluation.refusal is not None
    # Correctness and probes are asked in one secret order: which of them refuses first is chance.
    mixed = {"correctness", "probes"}
    assert recorded.attempts[0].evaluation.refusal.stage in (mixed if stage in mixed else {stage})
    assert published.pull is None
    assert slow_town.github.find_pull(f"proctor/issue-{issue}") is None
    assert "refused" in slow_town.said(issue)[0].lower()


def test_a_candidate_that_is_right_only_until_it_is_timed_is_refused_by_the_exam(slow_town: Town) -> None:
    """Honest for its first calls in a process, then the last answer again: it passes the agent's quick check."""
    late = with_body(
        "count[0] += 1\n"
        "if count[0] > 13 and count[1] is not None and count[1].shape == y.shape:\n"
        "    y.copy_(count[1])\n"
        "    return\n"
        "honest(x, offset, scale, cu_seqlens, y)\n"
        "count[1] = y.clone()",
        "count = [0, None]",
    )
    issue = slow_town.open_issue()
    _, run = slow_town.label(issue)
    published = slow_town.work(run, late)
    assert published.pull is None
    assert published.verdict is not None
    assert published.verdict.kind == Kind.INCORRECT


@pytest.mark.alone
def test_a_control_edited_to_be_honest_makes_the_verifier_weak(slow_town: Town) -> None:
    (slow_town.project.contracts / "center" / "controls" / "no_mean.py").write_text(HONEST, encoding="utf-8")
    issue = slow_town.open_issue()
    _, run = slow_town.label(issue)
    published = slow_town.work(run, FAST)
    assert published.pull is None
    assert published.verdict is not None
    assert published.verdict.kind == Kind.VERIFIER_WEAK


def test_a_kernel_that_gains_nothing_is_a_result_for_the_issue(town: Town) -> None:
    issue = town.open_issue()
    _, run = town.label(issue)
    published = town.work(run, HONEST)
    assert published.pull is None
    assert published.verdict is not None
    assert published.verdict.accepted or published.verdict.kind == Kind.INVALID_MEASUREMENT
    assert published.verdict.kind.value in town.said(issue)[0]
