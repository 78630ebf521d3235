"""The workflow files as parsed YAML: triggers, permissions, pins, and what a job may hold. The linters run too."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, get_args

import pytest

from bot.contract.load import parse_yaml
from bot.github.request import HEADINGS, RULES, Start

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TRUSTED = {"pip install --quiet --constraint constraints.txt ."}


def load(path: Path) -> dict[Any, Any]:
    data: dict[Any, Any] = parse_yaml(path.read_text(encoding="utf-8"), path.name)
    return data


def steps(job: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = job.get("steps", [])
    return found


CHECKOUT = "actions/checkout@"
NEWEST, SEEN, GIVEN = (
    f"${{{{ {where} }}}}"
    for where in ("github.event.repository.default_branch", "needs.gate.outputs.base", "inputs.base")
)
REFS = {NEWEST, SEEN, GIVEN}


def test_every_job_after_the_gate_works_in_the_commit_that_the_gate_saw() -> None:
    """The gate in the newest of the default branch: a run that waited, or is repeated, has the commit of its event."""
    jobs = {
        f"{path.stem}.{name}": job
        for path in WORKFLOWS
        for name, job in load(path)["jobs"].items()
        if path.stem in ("optimize", "commands", "verify")
    }
    refs = {
        name: step["with"].get("ref")
        for name, job in jobs.items()
        for step in steps(job)
        if step.get("uses", "").startswith(CHECKOUT)
    }
    assert refs == {
        "optimize.gate": NEWEST,
        "optimize.agent": SEEN,
        "optimize.publish": SEEN,
        "commands.gate": NEWEST,
        "commands.publish": SEEN,
        "verify.exam": GIVEN,
    }
    for name in ("optimize", "commands"):
        assert jobs[f"{name}.gate"]["outputs"]["base"] == "${{ steps.gate.outputs.base }}"
        assert jobs[f"{name}.verify"]["with"]["base"] == SEEN
        assert all("gate" in jobs[f"{name}.{job}"]["needs"] for job in ("verify", "publish"))


def test_whatever_came_between_the_order_is_the_gates() -> None:
    """The last that an exam or a publisher is given is what the gate left; a job in between may add and not change."""
    for name, job in (("optimize", "publish"), ("commands", "publish"), ("verify", "exam")):
        given = [
            step["with"]
            for step in steps(load(ROOT / ".github" / "workflows" / f"{name}.yml")["jobs"][job])
            if step.get("uses", "").startswith("actions/download-artifact@")
        ]
        assert len(given) == 2
        assert given[-1] == {"name": "gate", "path": "run"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.stem)
def test_no_rights_by_default_and_time_limits_everywhere(path: Path) -> None:
    workflow = load(path)
    assert workflow["permissions"] == {}
    jobs = workflow["jobs"].values()
    assert all("permissions" in job and ("timeout-minutes" in job or "uses" in job) for job in jobs)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.stem)
def test_actions_are_pinned_and_checkouts_keep_no_credentials(path: Path) -> None:
    for job in load(path)["jobs"].values():
        for step in steps(job):
            if "uses" in step:
                assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step["uses"]), step
                if step["uses"].startswith(CHECKOUT):
                    assert step["with"].pop("ref", "") in {"", *REFS}
                    assert step["with"] == {"persist-credentials": False}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.stem)
def test_no_expression_stands_inside_a_shell_line(path: Path) -> None:
    lines = [step["run"] for job in load(path)["jobs"].values() for step in steps(job) if "run" in step]
    assert lines
    assert not [line for line in lines if "${{" in line]


@pytest.mark.parametrize("name", ["optimize", "commands", "verify", "approval", "reconcile"])
def test_every_step_of_ours_is_one_proctor_command(name: str) -> None:
    jobs = load(ROOT / ".github" / "workflows" / f"{name}.yml")["jobs"]
    lines = {step["run"] for job in jobs.values() for step in steps(job) if "run" in step} - TRUSTED
    assert lines
    command = r"proctor (gate|agent|examine|publish|reconcile)( --[a-z]+ \$\{[A-Z_]+\})*"
    assert all(re.fullmatch(command, line) for line in lines)


def test_who_holds_what() -> None:
    """The device job has no right and no secret; the agent job has the model key, which no other has, and no right."""
    for name in ("optimize", "commands", "verify", "reconcile", "approval"):
        for job_name, job in load(ROOT / ".github" / "workflows" / f"{name}.yml")["jobs"].items():
            assert "secrets" not in job, "what a called workflow gets is named, never inherited"
            if job_name in {"agent", "verify", "exam"}:
                assert job["permissions"] == {}
                assert "token" not in str(job)
                assert "PROCTOR_APP" not in str(job)
            assert ("secrets." in str([step.get("env", {}) for step in steps(job)])) == (job_name == "agent")


APP_TOKEN = "actions/create-github-app-token@"


def test_each_job_that_talks_to_github_does_so_as_the_app_where_there_is_one_and_with_its_own_rights_at_most() -> None:
    talking = 0
    for path in WORKFLOWS:
        for name, job in load(path)["jobs"].items():
            told = [step for step in steps(job) if "GITHUB_TOKEN" in step.get("env", {})]
            app = [step for step in steps(job) if step.get("uses", "").startswith(APP_TOKEN)]
            assert len(told) == len(app) <= 1, f"{path.stem}.{name}"
            if not told:
                assert job.get("environment") in (None, "proctor-agent")
                continue
            talking += 1
            assert steps(job).index(app[0]) + 1 == steps(job).index(told[0]), "nothing of ours runs between the two"
            assert told[0]["env"]["GITHUB_TOKEN"] == "${{ steps.app.outputs.token || github.token }}"
            assert (app[0]["id"], app[0]["if"]) == ("app", "vars.PROCTOR_APP_ID != ''")
            given = dict(app[0]["with"])
            assert given.pop("client-id") == "${{ vars.PROCTOR_APP_ID }}"
            assert given.pop("private-key") == "${{ secrets.PROCTOR_APP_KEY }}"
            # Whose installation, and which repository: as the action takes it by itself, this one alone.
            assert given == {f"permission-{right}": level for right, level in job["permissions"].items()}
            assert job["environment"] == "${{ vars.PROCTOR_APP_ID && 'proctor-bot' || '' }}"
    assert talking == 6


def test_only_these_events_start_something() -> None:
    triggers = {path.stem: load(path)[True] for path in WORKFLOWS}
    assert triggers["optimize"] == {"issues": {"types": ["labeled"]}, "issue_comment": {"types": ["created"]}}
    assert triggers["commands"] == {
        "issue_comment": {"types": ["created"]},
        "issues": {"types": ["unlabeled", "closed", "edited", "deleted", "transferred"]},
    }
    assert triggers["approve"] == {
        "pull_request": {"types": ["opened", "reopened", "synchronize"]},
        "pull_request_review": {"types": ["submitted", "dismissed"]},
    }
    assert set(triggers["verify"]) == {"workflow_call"}
    assert set(triggers["reconcile"]) == {"schedule", "workflow_dispatch", "push"}
    assert triggers["approval"] == {"workflow_run": {"workflows": ["approve"], "types": ["completed"]}}
    assert not any("pull_request_target" in str(trigger) for trigger in triggers.values())


RIGHTS: dict[str, dict[str, dict[str, str]]] = {
    "ci": {"test": {"contents": "read"}},
    "optimize": {
        "gate": {"contents": "write", "issues": "write", "pull-requests": "read"},
        "agent": {},
        "verify": {},
        "publish": {"contents": "write", "issues": "write", "pull-requests": "write", "statuses": "write"},
    },
    "commands": {
        "gate": dict.fromkeys(("actions", "contents", "issues", "pull-requests", "statuses"), "write"),
        "verify": {},
        "publish": {"contents": "write", "issues": "write", "pull-requests": "write", "statuses": "write"},
    },
    "verify": {"exam": {}},
    "approve": {"wake": {}},
    "approval": {
        "approval": {"contents": "read", "issues": "write", "pull-requests": "write", "statuses": "write"},
    },
    "reconcile": {
        "reconcile": {
            "actions": "read",
            "contents": "read",
            "issues": "write",
            "pull-requests": "write",
            "statuses": "write",
        },
    },
}
"""act ignores permissions and concurrency, so that they are read here."""


def test_each_job_may_do_what_it_needs_and_no_more() -> None:
    assert {p.stem: {n: job["permissions"] for n, job in load(p)["jobs"].items()} for p in WORKFLOWS} == RIGHTS


def test_what_must_not_overlap_does_not_and_nothing_that_waits_is_dropped() -> None:
    """Without `queue: max` a third run that waits takes the place of the second."""
    found = {path.stem: load(path).get("concurrency") for path in WORKFLOWS}
    found |= {
        f"{path.stem}.{name}": job["concurrency"]
        for path in WORKFLOWS
        for name, job in load(path)["jobs"].items()
        if "concurrency" in job
    }
    assert {name: group for name, group in found.items() if group} == {
        "ci": {"group": "ci-${{ github.ref }}", "cancel-in-progress": True},
        "optimize": {
            "group": "optimize-${{ github.event.issue.number }}",
            "cancel-in-progress": False,
            "queue": "max",
        },
        "commands.gate": {
            "group": "commands-${{ github.event.issue.number }}",
            "cancel-in-progress": False,
            "queue": "max",
        },
        # One that waits is as good as many: it looks at everything.
        "reconcile": {"group": "reconcile", "cancel-in-progress": False},
    }


def test_every_exception_to_a_linter_has_its_reason() -> None:
    lines = [line for path in WORKFLOWS for line in path.read_text(encoding="utf-8").splitlines() if "ignore[" in line]
    assert lines
    assert all(re.search(r"# zizmor: ignore\[[a-z-]+\] \S+ \S+ \S+", line) for line in lines), lines


@pytest.mark.parametrize(
    "command",
    [
        ["actionlint", *map(str, WORKFLOWS)],
        ["zizmor", "--offline", "--no-progress", "--quiet", str(ROOT / ".github")],
        ["check-jsonschema", "--builtin-schema", "vendor.github-workflows", *map(str, WORKFLOWS)],
        [
            "check-jsonschema",
            "--builtin-schema",
            "vendor.github-issue-forms",
            str(ROOT / ".github" / "ISSUE_TEMPLATE" / "optimize.yml"),
        ],
        ["check-jsonschema", "--builtin-schema", "vendor.dependabot", str(ROOT / ".github" / "dependabot.yml")],
    ],
    ids=lambda command: f"{command[0]} {command[-1].rpartition('/')[2]}",
)
def test_linters_have_nothing_to_say(command: list[str]) -> None:
    tool = shutil.which(command[0], path=str(Path(shutil.which("python") or "").parent)) or str(
        ROOT / ".venv" / "bin" / command[0]
    )
    if not Path(tool).is_file():
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run([tool, *command[1:]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_form_asks_what_the_parser_reads() -> None:
    form = parse_yaml((ROOT / ".github" / "ISSUE_TEMPLATE" / "optimize.yml").read_text(encoding="utf-8"), "form")
    assert [part["attributes"]["label"] for part in form["body"]] == list(HEADINGS)
    ticks = next(part for part in form["body"] if part["type"] == "checkboxes")
    assert [option["label"] for option in ticks["attributes"]["options"]] == list(RULES)
    starts = next(part for part in form["body"] if part["type"] == "dropdown")["attributes"]["options"]
    assert tuple(starts) == get_args(Start)
    assert "labels" not in form, "a form that applies the label would let anybody start the agent"
