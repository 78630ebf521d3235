"""`proctor demo`: the main job, played against the embedded forge by the workflow files themselves.

Every step crosses the forge's HTTP: people act by REST requests with tokens of their own, the bot by PyGithub and git.
The agent is a recorded run; checks, exams and timings are live. Pure orchestration: it holds no figure of its own.
"""

import json
import shutil
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.errors import InfrastructureError
from bot.forge.actions import Actions
from bot.forge.server import Forge
from bot.forge.state import ForgeState
from bot.github.claims import issue_branch
from bot.github.client import connect
from bot.github.push import Remote
from bot.handlers.evidence import APPROVAL, Record, load_record, operation_of
from bot.handlers.project import Project
from bot.handlers.run import RunFolder
from bot.verdict import Kind

CONTRACT = "kda_prefill"
REPOSITORY = "acme/kernels"
WORKFLOWS = ("optimize.yml", "commands.yml", "verify.yml", "approve.yml", "approval.yml", "reconcile.yml")
BOT = "github-actions[bot]"
ISSUE = f"""### Contract

{CONTRACT}

### What matters

Long prompts on one core. Packed batches of mixed lengths are the common case.

### Start from

reference
"""


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody with an account on the forge, acting through its REST interface."""

    login: str
    token: str
    forge: Forge

    def post(self, path: str, **body: Any) -> Any:
        """One request as this person; the answer's JSON."""
        request = urllib.request.Request(  # noqa: S310 - the forge's own address
            f"{self.forge.api_url}/repos/{REPOSITORY}/{path}",
            json.dumps(body).encode(),
            {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as answer:  # noqa: S310
            return json.loads(answer.read())


@dataclass(frozen=True, slots=True)
class Story:
    """How the main job ended."""

    issue: int
    pull: int | None
    record: Record | None
    refused: int
    approved: bool

    def line(self) -> str:
        """The one line at the end."""
        refused = f"refused {self.refused} candidate{'s' * (self.refused != 1)}"
        if self.record is None:
            return f"demo: issue #{self.issue} -> no pull request, {refused}"
        verdict = self.record.verdict
        speed = f"{verdict.speedup.mid:.2f} x" if verdict.speedup else "not measured"
        return f"demo: issue #{self.issue} -> PR #{self.pull}, verdict {verdict.kind.value}, speedup {speed}, {refused}"

    @property
    def told(self) -> bool:
        """Whether everything happened that the demonstration is about."""
        if self.record is None or not self.approved or len(self.record.evaluations) < 2:
            return False
        return self.record.verdict.kind == Kind.IMPROVED and self.refused > 0


def play(
    project: Project, folder: Path, say: Callable[[str], None], *, serve: bool, port: int, model: str = "replay"
) -> int:
    """Play the story; 0 when it went as it should, 1 when not.

    Raises:
        InfrastructureError: the forge's repository cannot be made.
    """
    folder = folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    started = time.monotonic()
    state = found_forge(project, folder)
    with Forge.serving(state, port=port) as forge:
        say(f"the forge is at {forge.url}/{REPOSITORY}")
        variables = {"PROCTOR_DEVICE": "cpu", "PROCTOR_MODEL": model}
        actions = Actions(forge, folder / "runs", "bot-token", variables, say)
        actions.listen()
        story = tell(forge, actions, say)
        say(f"took {time.monotonic() - started:.0f} s; the runs are in {folder.name}/runs")
        if story.pull is not None:
            say(f"the pull request: {forge.url}/{REPOSITORY}/pull/{story.pull}")
        say(story.line())
        if serve:
            say("the forge keeps running: label issues, comment /rerun-bench, review; stop it with Ctrl-C")
            threading.Thread(target=actions.forever, daemon=True).start()
            _wait_for_interrupt()
    return 0 if story.told else 1


def found_forge(project: Project, folder: Path) -> ForgeState:
    """A forge with the project's contracts, kernels and workflows on its default branch, and four accounts."""
    folder.mkdir(parents=True, exist_ok=True)
    state = ForgeState.create(folder / "kernels.git", REPOSITORY)
    _seed(project, folder / "seed", state.repository.path)
    state.add_user("maintainer", "write", "maintainer-token")
    state.add_user("reviewer", "write", "reviewer-token")
    state.add_user("visitor", "triage", "visitor-token")
    state.add_user(BOT, "write", "bot-token", actions_bot=True)
    return state


def tell(forge: Forge, actions: Actions, say: Callable[[str], None]) -> Story:
    """The story: a request, a label by somebody who may not, one by somebody who may, a rerun, an approval."""
    visitor = Person("visitor", "visitor-token", forge)
    maintainer = Person("maintainer", "maintainer-token", forge)
    reviewer = Person("reviewer", "reviewer-token", forge)

    issue = int(visitor.post("issues", title=f"optimize: {CONTRACT} on one core", body=ISSUE)["number"])
    say(f"visitor opens issue #{issue} and labels it `optimize`, without write permission")
    visitor.post(f"issues/{issue}/labels", labels=["optimize"])
    actions.drain()
    say(f"maintainer labels issue #{issue} `optimize`")
    maintainer.post(f"issues/{issue}/labels", labels=["optimize"])
    actions.drain()

    github = connect(forge.api_url, "bot-token", REPOSITORY, login=BOT)
    remote = Remote(forge.clone_url)
    pull = github.find_pull(issue_branch(issue))
    if pull is None:
        return Story(issue, None, None, _refused(actions), approved=False)
    say(f"maintainer comments /rerun-bench on pull request #{pull.number}")
    maintainer.post(f"issues/{pull.number}/comments", body="/rerun-bench")
    actions.drain()
    say(f"reviewer approves pull request #{pull.number}")
    reviewer.post(f"pulls/{pull.number}/reviews", event="APPROVE", body="Read the report and the kernel.")
    actions.drain()

    operation = operation_of([file.path for file in github.pull_files(pull.number)])
    record = load_record(pull, operation, remote)
    statuses = {status.context: status for status in reversed(github.statuses(pull.head_sha))}
    approved = APPROVAL in statuses and statuses[APPROVAL].state == "success"
    return Story(issue, pull.number, record, _refused(actions), approved=approved)


def _refused(actions: Actions) -> int:
    """Candidates refused on the way, counted in the agents' own records."""
    folders = [RunFolder(path.parent) for path in sorted(actions.folder.glob("*/run/agent.json"))]
    runs = [folder.agent() for folder in folders if folder.order().kind == "optimize"]
    return sum(attempt.evaluation.refusal is not None for run in runs if run for attempt in run.attempts)


def _seed(project: Project, work: Path, bare: Path) -> None:
    """Commit what a repository that uses Proctor holds, and push it."""
    work.mkdir(parents=True)
    for name in ("contracts", "kernels", "reports"):
        if (project.root / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(project.root / name, work / name, ignore=ignored)
    workflows = work / ".github" / "workflows"
    workflows.mkdir(parents=True)
    for name in WORKFLOWS:
        shutil.copy(project.root / ".github" / "workflows" / name, workflows / name)
    (work / "README.md").write_text("# kernels\n\nA repository that uses Proctor.\n", encoding="utf-8")
    _git(work, "init", "--quiet", "--initial-branch", "main")
    _git(work, "add", "--all")
    _git(work, "commit", "--quiet", "--message", "Start with contracts and kernels")
    _git(work, "push", "--quiet", str(bare), "main")


def _git(folder: Path, *arguments: str) -> None:
    who = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in _IDENTITY.items()}
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1", **who}
    done = subprocess.run(["git", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InfrastructureError(f"git {arguments[0]}: {done.stderr.strip()}")


_IDENTITY = {"NAME": "Proctor demo", "EMAIL": "demo@kernels.invalid"}


def _wait_for_interrupt() -> None:
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        return
