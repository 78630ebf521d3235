"""Workflow runs and an administrator's settings as GitHub's JSON; pure, as `shapes` is."""

from collections.abc import Sequence
from datetime import datetime

from bot.forge.records import Issue, PullPart, Site, User, WorkflowJob, WorkflowRun
from bot.forge.shapes import Json, repository, timestamp, user

_RUN_PATHS = ("jobs", "logs", "artifacts", "cancel", "rerun")


def workflow_run(site: Site, value: WorkflowRun, pulls: Sequence[tuple[Issue, PullPart]] = ()) -> Json:
    """A run of a workflow; `pulls` are those whose head it ran for."""
    url = f"{site.repo_api}/actions/runs/{value.id}"
    workflow = f"{site.repo_api}/actions/workflows/{value.workflow}.yml"
    repo = repository(site)
    return {
        "id": value.id,
        "node_id": f"WFR_{value.id}",
        "name": value.workflow,
        "path": f".github/workflows/{value.workflow}.yml",
        "display_title": value.title,
        "run_number": value.id,
        "run_attempt": 1,
        "event": value.event,
        "status": value.status,
        "conclusion": value.conclusion,
        "head_branch": site.default_branch,
        "head_sha": value.head_sha,
        "head_commit": None,
        "head_repository": repo,
        "repository": repo,
        "pull_requests": [_pull(site, *each) for each in pulls],
        "workflow_id": 1 + sum(value.workflow.encode()),
        "created_at": timestamp(value.created_at),
        "updated_at": timestamp(value.created_at),
        "run_started_at": timestamp(value.created_at),
        "url": url,
        "html_url": f"{site.repo_url}/actions/runs/{value.id}",
        "workflow_url": workflow,
        "check_suite_url": f"{site.repo_api}/check-suites/{value.id}",
        **{f"{name}_url": f"{url}/{name}" for name in _RUN_PATHS},
    }


def _pull(site: Site, issue: Issue, part: PullPart) -> Json:
    repo = {"id": 1, "url": site.repo_api, "name": site.name}
    return {
        "id": issue.id,
        "number": issue.number,
        "url": f"{site.repo_api}/pulls/{issue.number}",
        "head": {"ref": part.head_ref, "sha": part.head_sha, "repo": repo},
        "base": {"ref": part.base_ref, "sha": part.base_sha, "repo": repo},
    }


def workflow_job(site: Site, run: WorkflowRun, value: WorkflowJob) -> Json:
    """A job of a workflow run."""
    url = f"{site.repo_api}/actions/jobs/{value.id}"
    return {
        "id": value.id,
        "node_id": f"CR_{value.id}",
        "run_id": run.id,
        "run_url": f"{site.repo_api}/actions/runs/{run.id}",
        "workflow_name": run.workflow,
        "head_branch": site.default_branch,
        "head_sha": run.head_sha,
        "name": value.name,
        "status": value.status,
        "conclusion": value.conclusion,
        "created_at": timestamp(run.created_at),
        # GitHub gives a job that waits the time since when it does.
        "started_at": timestamp(value.started_at or run.created_at),
        "completed_at": timestamp(run.created_at) if value.status == "completed" else None,
        "url": url,
        "html_url": f"{site.repo_url}/actions/runs/{run.id}/job/{value.id}",
        "check_run_url": f"{site.repo_api}/check-runs/{value.id}",
        "labels": [],
        **dict.fromkeys(("runner_id", "runner_name", "runner_group_id", "runner_group_name")),
    }


def completed(site: Site, run: WorkflowRun, pulls: Sequence[tuple[Issue, PullPart]], who: User) -> Json:
    """The webhook that wakes a workflow which waits for another."""
    shape = workflow_run(site, run, pulls)
    return {
        "action": "completed",
        "workflow_run": shape
        | {
            "actor": user(site, who),
            "triggering_actor": user(site, who),
            "check_suite_id": run.id,
            "check_suite_node_id": f"CS_{run.id}",
            "previous_attempt_url": None,
        },
        "workflow": {
            "id": shape["workflow_id"],
            "node_id": f"W_{shape['workflow_id']}",
            "name": run.workflow,
            "path": shape["path"],
            "state": "active",
            "created_at": timestamp(site.created_at),
            "updated_at": timestamp(site.created_at),
            "url": shape["workflow_url"],
            "html_url": f"{site.repo_url}/blob/{site.default_branch}/{shape['path']}",
            "badge_url": f"{site.repo_url}/workflows/{run.workflow}/badge.svg",
        },
        "repository": repository(site),
        "sender": user(site, who),
    }


def environment(site: Site, name: str, document: Json) -> Json:
    """An environment that jobs may name."""
    page = f"{site.repo_url}/deployments/activity_log?environments_filter={name}"
    return {
        "id": 1 + sum(name.encode()),
        "node_id": f"EN_{name}",
        "name": name,
        "url": f"{site.repo_api}/environments/{name}",
        "html_url": page,
        "created_at": timestamp(site.created_at),
        "updated_at": timestamp(site.created_at),
        **document,
    }


def dated(moment: datetime, **document: str) -> Json:
    """A variable or the name of a secret, with when it was made and changed."""
    return document | {"created_at": timestamp(moment), "updated_at": timestamp(moment)}


def runner(number: int, name: str, labels: Sequence[str]) -> Json:
    """A self-hosted runner that waits for a job."""
    return {
        "id": number,
        "name": name,
        "os": "Linux",
        "status": "online",
        "busy": False,
        "ephemeral": False,
        "labels": [{"name": label, "type": "custom"} for label in labels],
    }
