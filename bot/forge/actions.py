"""A small stand-in for GitHub Actions: runs the repository's own workflow files when the forge has an event for them.

What it runs are the `run:` steps, in jobs ordered by `needs`, with the environment the file gives them and no other; a
job that calls a workflow of the repository is that workflow's jobs, one after the other for each value of a matrix.
What it leaves out: `uses:` steps (one checkout of the default branch serves all jobs of a run, and `run/` in it is the
artifact), installing (the environment is there), permissions, concurrency; a run that is cancelled ends after the
job it is in. act and a real repository show the rest.
"""

import itertools
import json
import os
import queue
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from bot.contract.load import parse_yaml, validate
from bot.errors import InfrastructureError
from bot.forge import shapes_actions
from bot.forge.expressions import evaluate, insert
from bot.forge.server import Forge

_INSTALLS = "pip install"


class _Part(BaseModel):
    """A part of a workflow file: only the fields used here."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class _Step(_Part):
    id: str = ""
    run: str = ""
    if_: str = Field(default="", alias="if")
    env: dict[str, str] = {}


class _Strategy(_Part):
    matrix: dict[str, str] = {}


class _Job(_Part):
    needs: str | list[str] = []
    if_: str = Field(default="", alias="if")
    outputs: dict[str, str] = {}
    steps: list[_Step] = []
    uses: str = ""
    with_: dict[str, str] = Field(default={}, alias="with")
    strategy: _Strategy = _Strategy()

    @property
    def before(self) -> list[str]:
        return [self.needs] if isinstance(self.needs, str) else self.needs


class _Trigger(_Part):
    types: list[str] = []
    workflows: list[str] = []


class _Workflow(_Part):
    name: str
    run_name: str = Field(default="", alias="run-name")
    on: dict[str, _Trigger | None]
    env: dict[str, str] = {}
    jobs: dict[str, _Job]

    @field_validator("on", mode="before")
    @classmethod
    def _fired_here(cls, value: Any) -> Any:
        """A schedule is a list, and nothing fires one here."""
        return {name: how if isinstance(how, dict) else None for name, how in value.items()}


@dataclass(frozen=True, slots=True)
class JobResult:
    """How one job of one run ended."""

    workflow: str
    job: str
    result: Literal["success", "failure", "skipped"]


@dataclass
class Actions:
    """Runs workflows of one forge, one event after the other, in the thread of whoever calls `drain`."""

    forge: Forge
    folder: Path
    token: str
    variables: Mapping[str, str]
    say: Callable[[str], None]
    results: list[JobResult] = field(default_factory=list)
    _events: "queue.Queue[tuple[str, dict[str, Any]]]" = field(default_factory=queue.Queue)
    _runs: int = 0

    def listen(self) -> None:
        """Take the forge's events from now on."""
        self.forge.state.subscribe(lambda name, payload: self._events.put((name, payload)))

    def drain(self) -> None:
        """Run workflows until no event is left."""
        while not self._events.empty():
            self._dispatch(*self._events.get())

    def forever(self) -> None:
        """Run workflows as events come."""
        while True:
            self._dispatch(*self._events.get())

    def _dispatch(self, name: str, payload: dict[str, Any]) -> None:
        self._runs += 1
        checkout = self.folder / f"run-{self._runs:02d}"
        shutil.rmtree(checkout, ignore_errors=True)
        self._clone(checkout)
        for workflow in _workflows(checkout):
            trigger = workflow.on.get(name, _Trigger(types=["never"])) or _Trigger()
            if trigger.types and payload.get("action") not in trigger.types:
                continue
            self._run(workflow, name, payload, checkout)
            # A workflow that waits for this one is woken as GitHub does it, and reads the default branch.
            waiting = (w for w in _workflows(checkout) if workflow.name in _woken_by(w))
            woken = self._completed(payload)
            for other in waiting:
                self._run(other, "workflow_run", woken, checkout)

    def _completed(self, payload: dict[str, Any]) -> dict[str, Any]:
        """What a workflow is told that waits for the run that has just ended."""
        state = self.forge.state
        pull = payload.get("pull_request")
        pulls = [state.pull(pull["number"])] if pull else []
        who = state.accounts.user(payload["sender"]["login"])
        return shapes_actions.completed(state.site, state.runs()[0], pulls, who)

    def _clone(self, checkout: Path) -> None:
        done = subprocess.run(
            ["git", "clone", "--quiet", "--depth", "1", self.forge.clone_url, str(checkout)],
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": os.environ.get("PATH", ""), "HOME": str(self.folder), "GIT_CONFIG_NOSYSTEM": "1"},
        )
        if done.returncode:
            raise InfrastructureError(f"cannot clone the forge's repository: {done.stderr.strip()}")

    def _run(self, workflow: _Workflow, name: str, payload: dict[str, Any], checkout: Path) -> None:
        event = checkout / "event.json"
        event.write_text(json.dumps(payload), encoding="utf-8")
        github = {
            "event": payload,
            "event_name": name,
            "workflow": workflow.name,
            "token": self.token,
            "repository": self.forge.state.site.full_name,
        }
        title = insert(workflow.run_name, {"github": github}) or workflow.name
        run = self.forge.state.begin_run(workflow.name, title, name)
        github["run_id"] = str(run.id)
        needs: dict[str, dict[str, Any]] = {}
        for job_name in _ordered(workflow.jobs):
            job = workflow.jobs[job_name]
            contexts: dict[str, Any] = {"github": github, "vars": self.variables, "secrets": {}, "needs": needs}
            alive = self.forge.state.run(run.id).status != "completed"
            ready = alive and all(needs[other]["result"] == "success" for other in job.before)
            result: Literal["success", "failure", "skipped"] = "skipped"
            outputs: dict[str, str] = {}
            if ready and (not job.if_ or evaluate(job.if_, contexts)):
                self.say(f"[{workflow.name}] {job_name}")
                play = self._called if job.uses else self._played
                result, outputs = play(workflow, job_name, contexts, event)
            else:
                self.forge.state.set_job(run.id, job_name, "completed", result)
            needs[job_name] = {"result": result, "outputs": outputs}
            self.results.append(JobResult(workflow.name, job_name, result))
        failed = any(job["result"] == "failure" for job in needs.values())
        self.forge.state.end_run(run.id, "failure" if failed else "success")

    def _called(
        self, workflow: _Workflow, name: str, contexts: dict[str, Any], event: Path
    ) -> tuple[Literal["success", "failure"], dict[str, str]]:
        """A job that calls a workflow of the repository: its jobs, each for every value of its matrix."""
        job = workflow.jobs[name]
        called = _workflow(event.parent / job.uses)
        contexts = {**contexts, "inputs": {key: insert(text, contexts) for key, text in job.with_.items()}, "needs": {}}
        for inner_name in _ordered(called.jobs):
            inner = called.jobs[inner_name]
            values = {key: evaluate(text.strip("${} "), contexts) for key, text in inner.strategy.matrix.items()}
            for cell in _cells(values):
                shown = f"{name} / {inner_name}" + (f" ({', '.join(map(str, cell.values()))})" if cell else "")
                own = {**contexts, "matrix": cell}
                if self._played(called, inner_name, own, event, shown)[0] == "failure":
                    return "failure", {}
        return "success", {}

    def _played(
        self, workflow: _Workflow, name: str, contexts: dict[str, Any], event: Path, shown: str = ""
    ) -> tuple[Literal["success", "failure"], dict[str, str]]:
        """A job of steps, told to the forge as it goes."""
        run_id = int(contexts["github"]["run_id"])
        self.forge.state.set_job(run_id, shown or name, "in_progress")
        result, outputs = self._job(workflow, workflow.jobs[name], contexts, event)
        self.forge.state.set_job(run_id, shown or name, "completed", result)
        return result, outputs

    def _job(
        self, workflow: _Workflow, job: _Job, contexts: dict[str, Any], event: Path
    ) -> tuple[Literal["success", "failure"], dict[str, str]]:
        contexts = {**contexts, "steps": {}}
        for step in job.steps:
            if not step.run or step.run.startswith(_INSTALLS):
                continue
            if step.if_ and not evaluate(step.if_, contexts):
                continue
            code, outputs = self._step(workflow, step, contexts, event)
            if step.id:
                contexts["steps"][step.id] = {"outputs": outputs}
            if code:
                self.say(f"  exit code {code}")
                return "failure", {}
        return "success", {name: insert(text, contexts) for name, text in job.outputs.items()}

    def _step(
        self, workflow: _Workflow, step: _Step, contexts: dict[str, Any], event: Path
    ) -> tuple[int, dict[str, str]]:
        output = event.with_name("output.txt")
        output.write_text("", encoding="utf-8")
        environment = {
            "PATH": f"{_tools(self.folder)}:{os.environ.get('PATH', '')}",
            "HOME": str(self.folder),
            "GITHUB_ACTIONS": "true",
            "GITHUB_EVENT_NAME": contexts["github"]["event_name"],
            "GITHUB_EVENT_PATH": str(event),
            "GITHUB_REPOSITORY": self.forge.state.site.full_name,
            "GITHUB_API_URL": self.forge.api_url,
            "GITHUB_SERVER_URL": self.forge.url,
            "GITHUB_OUTPUT": str(output),
            "GITHUB_RUN_ID": contexts["github"]["run_id"],
            "GITHUB_RUN_ATTEMPT": "1",
            "GITHUB_WORKFLOW": contexts["github"]["workflow"],
            **{name: insert(text, contexts) for name, text in {**workflow.env, **step.env}.items()},
        }
        with subprocess.Popen(
            ["bash", "-eo", "pipefail", "-c", step.run],
            cwd=event.parent,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            assert process.stdout is not None  # noqa: S101 - asked for above
            for line in process.stdout:
                self.say(f"  {line.rstrip()}")
        lines = output.read_text(encoding="utf-8").splitlines()
        return process.returncode, dict(line.split("=", 1) for line in lines if "=" in line)


def _tools(folder: Path) -> Path:
    """A folder whose `proctor` is this Python's, whatever is on the PATH."""
    place = folder / "bin"
    place.mkdir(parents=True, exist_ok=True)
    script = place / "proctor"
    if not script.exists():
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m bot "$@"\n', encoding="utf-8")
        script.chmod(0o755)
    return place


def _workflows(checkout: Path) -> Iterator[_Workflow]:
    yield from (_workflow(path) for path in sorted((checkout / ".github" / "workflows").glob("*.yml")))


def _workflow(path: Path) -> _Workflow:
    data = parse_yaml(path.read_text(encoding="utf-8"), path.name)
    # YAML 1.1 reads the key `on` as true.
    return validate(_Workflow, {"on": data.get(True), **{k: v for k, v in data.items() if k is not True}}, path.name)


def _cells(matrix: Mapping[str, list[Any]]) -> Iterator[dict[str, Any]]:
    """Every combination of a matrix's values; one without any for a job that has none."""
    for values in itertools.product(*matrix.values()):
        yield dict(zip(matrix, values, strict=True))


def _woken_by(workflow: _Workflow) -> list[str]:
    trigger = workflow.on.get("workflow_run")
    return trigger.workflows if trigger else []


def _ordered(jobs: Mapping[str, _Job]) -> list[str]:
    """Job names, each after what it needs."""
    order: list[str] = []
    while len(order) < len(jobs):
        ready = [n for n, job in jobs.items() if n not in order and all(other in order for other in job.before)]
        if not ready:
            raise InfrastructureError("the jobs of a workflow need one another in a circle")
        order += ready
    return order
