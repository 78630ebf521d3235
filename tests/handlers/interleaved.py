"""Workflow runs that advance one request at a time, in an order and with faults that somebody else chooses.

A run is a thread with its own line to the forge; each of its requests, REST's and git's, waits there for its turn, and
so does its exam. What the runs do is the shipped handlers' work; only the exam is played, by a launcher that finds what
it is told to.
"""

import atexit
import json
import queue
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bot import digest
from bot.contract.load import load_contract
from bot.errors import ProctorError
from bot.evaluation import Evaluation, Job
from bot.forge.records import RunStatus
from bot.forge.repository import Repository
from bot.forge.server import Forge
from bot.forge.state import ForgeState
from bot.github.claims import issue_of
from bot.github.client import connect
from bot.github.events import decode_event
from bot.github.push import Identity, Remote
from bot.handlers.demo import BOT, REPOSITORY, Person, found_forge
from bot.handlers.examine import examine
from bot.handlers.gate import Gate, gate
from bot.handlers.project import Project
from bot.handlers.publish import Publisher, publish
from bot.handlers.reconcile import reconcile
from bot.handlers.run import Candidate, RunFolder
from bot.launch import Watch
from tests.github.flaky import Fault, Line, Request, line_to
from tests.handlers.conftest import FORM, PATH, ROOT
from tests.handlers.street import push_as_person
from tests.report.builders import evaluation, refusal
from tests.verify.conftest import CENTER, HONEST

PATIENCE_S = 120.0
"""A run that makes no request for so long hangs."""
WAKING = {"pull_request": ("opened", "reopened", "synchronize"), "pull_request_review": ("submitted",)}
"""What starts approve.yml, whose end starts approval.yml."""
STARTING = {"issues": ("labeled", "unlabeled", "closed", "edited"), "issue_comment": ("created",)}
EXAM_BEGINS = Request("-", "exam")
AUTHOR = Identity("Proctor", f"{BOT}@users.noreply.github.com")


@dataclass
class Run:
    """One run of a workflow, from the event to the last job. `waiting`: its next request; None: it has ended."""

    city: "City"
    event: str
    payload: dict[str, Any]
    line: Line
    id: int
    attempt: int = 1
    error: ProctorError | None = None
    why: str = ""
    waiting: Request | None = None
    sent: list[Request] = field(default_factory=list)
    stage: str = "queued"
    _said: "queue.Queue[Request | None]" = field(default_factory=queue.Queue)
    _turns: "queue.Queue[Fault | None]" = field(default_factory=queue.Queue)
    _thread: threading.Thread | None = None

    @property
    def workflow(self) -> str:
        match self.event:
            case "issues" if self.payload["action"] == "labeled":
                return "optimize"
            case "issue_comment" if (
                self.payload["comment"]["body"] == "/go" and "pull_request" not in self.payload["issue"]
            ):
                return "optimize"
            case "workflow_run":
                return "approval"
            case "schedule":
                return "reconcile"
            case _:
                return "commands"

    @property
    def asked(self) -> bool:
        """Whether a person asked for it; else GitHub itself started it."""
        return "issue" in self.payload

    @property
    def number(self) -> int:
        """The issue or pull request that it is about; 0: all."""
        return int(self.payload["issue"]["number"]) if self.asked else 0

    @property
    def who(self) -> str:
        return str(self.payload["sender"]["login"]) if self.asked else ""

    @property
    def over(self) -> bool:
        return self.stage == "over"

    def start(self) -> None:
        self.line.turn = self._turn
        self.stage = "gate"
        self._thread = threading.Thread(target=self._work, name=f"run-{self.id}")
        self._thread.start()
        self._await()

    def advance(self, fault: Fault | None = None) -> None:
        """Let its next request pass."""
        assert self.waiting is not None
        self._turns.put(fault)
        self._await()

    def _await(self) -> None:
        self.waiting = self._said.get(timeout=PATIENCE_S)
        if self.waiting is None:
            self.stage = "over"
            assert self._thread is not None
            self._thread.join()

    def _turn(self, request: Request) -> Fault | None:
        if request is not EXAM_BEGINS:
            self.sent.append(request)
        self._said.put(request)
        return self._turns.get(timeout=PATIENCE_S)

    def _work(self) -> None:
        state = self.city.state
        try:
            self._jobs()
        except ProctorError as error:
            self.error = error
        finally:
            state.end_run(self.id, "failure" if self.error else "success")
            self._said.put(None)

    def _jobs(self) -> None:
        state, city = self.city.state, self.city
        github = connect(f"{self.line.api_url}/api/v3", "bot-token", REPOSITORY, login=BOT)
        remote = Remote(f"{self.line.api_url}/{REPOSITORY}.git", "bot-token")
        folder = RunFolder(city.folder / f"run-{self.id}")
        now = datetime.now(UTC) + city.ahead
        if self.workflow == "reconcile":
            reconcile(github, remote, now)
            return
        tools = Gate(
            github,
            remote,
            city.project,
            folder,
            "cpu",
            run=self.id,
            attempt=self.attempt,
            run_url=f"{city.forge.url}/{REPOSITORY}/actions/runs/{self.id}",
            workflow=self.workflow,
            now=now,
        )
        self._job("gate", "in_progress")
        passed = gate(decode_event(self.event, json.loads(json.dumps(self.payload))), tools)
        self.why = passed.why
        self._job("gate", "completed")
        if not passed.go:
            return
        self.stage = "verify"
        if folder.order().kind == "optimize":
            folder.write_candidate(Candidate(path=PATH, source=HONEST))
        self._job("verify", "in_progress")
        self._turn(EXAM_BEGINS)
        if state.run(self.id).status == "completed":
            return
        examine(folder, city.project, city.examined, lambda _: None)
        self._job("verify", "completed")
        if state.run(self.id).status == "completed":
            return
        self.stage = "publish"
        self._job("publish", "in_progress")
        publish(Publisher(github, remote, folder, AUTHOR))
        self._job("publish", "completed")

    def _job(self, name: str, status: RunStatus) -> None:
        self.city.state.set_job(self.id, name, status, "success" if status == "completed" else None)


@dataclass
class City:
    """A forge, its people, and all runs that its events started. `groups`: as the workflow files have them. `ahead`: by
    how much it is later than now, for whoever asks what has been abandoned. `right`: what the next exams find.
    """

    forge: Forge
    project: Project
    folder: Path
    stack: ExitStack
    groups: bool = True
    ahead: timedelta = timedelta()
    right: bool = True
    runs: list[Run] = field(default_factory=list)
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    exams: int = 0
    pushes: int = 0

    @property
    def state(self) -> ForgeState:
        return self.forge.state

    def person(self, login: str) -> Person:
        return Person(login, f"{login}-token", self.forge)

    def issue_of(self, pull: int) -> int | None:
        """The issue that a pull request of the bot's belongs to."""
        return issue_of(self.state.pull(pull)[1].head_ref)

    def open_issue(self) -> int:
        return int(self.person("visitor").post("issues", title="optimize: center", body=FORM)["number"])

    def examined(self, job: Job, watch: Watch = lambda _: None) -> Evaluation:
        """Faster, or wrong, whatever it is; each exam with a salt of its own."""
        self.exams += 1
        return evaluation(
            contract="center",
            contract_digest=load_contract(self.project.contracts, "center").digest,
            candidate_digest=digest.of_bytes(job.source.encode()),
            candidate_name=job.candidate_name,
            judge_digest=digest.of_judge(),
            salt=f"{self.exams:064x}",
            refusal=None if self.right else refusal(),
        )

    def push(self, branch: str, files: dict[str, str], base: str) -> str:
        """A person's commit on top of a branch; returns it."""
        self.pushes += 1
        return push_as_person(self.forge.clone_url, self.folder / f"clone-{self.pushes}", branch, files, base=base)

    def acts(self, act: Callable[[], object]) -> list[Run]:
        """Runs that what somebody does starts."""
        before = len(self.events)
        act()
        return [run for name, payload in self.events[before:] for run in self.deliver(name, payload)]

    def deliver(self, name: str, payload: dict[str, Any]) -> list[Run]:
        """The run that an event starts; delivered twice, it starts two."""
        if payload["action"] in WAKING.get(name, ()):
            pull = payload["pull_request"]
            woken = {"event": name, "head_sha": pull["head"]["sha"], "pull_requests": [{"number": pull["number"]}]}
            ended = {"action": "completed", "workflow_run": woken, "repository": payload["repository"]}
            return [self.begin("workflow_run", ended)]
        return [self.begin(name, payload)] if payload["action"] in STARTING.get(name, ()) else []

    def begin(self, event: str, payload: dict[str, Any]) -> Run:
        """A run that has not made its first request."""
        run = Run(self, event, payload, self.stack.enter_context(line_to(self.forge.url)), 0)
        run.id = self.state.begin_run(run.workflow, f"{run.workflow} #{run.number}", event).id
        run.line.newest = run.id
        self.runs.append(run)
        return run

    def ready(self) -> list[Run]:
        """Runs that may go on: those under way, and those whose concurrency group is free."""
        return [run for run in self.runs if not run.over and self._before(run) is None]

    def _before(self, run: Run) -> Run | None:
        """The run of its group that it waits for: `optimize` whole, of `commands` the gate, as the files have it."""
        holds = {"optimize": ("queued", "gate", "verify", "publish"), "commands": ("queued", "gate")}
        before = self.runs[: self.runs.index(run)] if self.groups and run.stage == "queued" else []
        mine = (other for other in before if (other.workflow, other.number) == (run.workflow, run.number))
        return next((other for other in mine if other.stage in holds.get(run.workflow, ())), None)

    def step(self, run: Run, fault: Fault | None = None) -> None:
        """One request of a run, or its beginning."""
        if run.stage == "queued":
            run.start()
        else:
            run.advance(fault)

    def drain(self) -> None:
        """Everything that is under way to its end, in turns."""
        while ready := self.ready():
            for run in ready:
                if not run.over:
                    self.step(run)

    def finish(self, run: Run) -> None:
        """One run to its end, and before it those that it waits for; no other moves meanwhile."""
        while not run.over:
            first = self._before(run)
            self.step(run if first is None else first)


_ready: dict[str, Path] = {}


def _template() -> Path:
    """A project and a forge's repository, made once."""
    if "template" not in _ready:
        folder = Path(tempfile.mkdtemp(prefix="proctor-city-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(CENTER, folder / "project" / "contracts" / "center", ignore=ignored)
        shutil.copytree(ROOT / ".github" / "workflows", folder / "project" / ".github" / "workflows")
        found_forge(Project(folder / "project"), folder / "forge")
        _ready["template"] = folder
    return _ready["template"]


@contextmanager
def city(like: "City | None" = None) -> Iterator[City]:
    """A new city: nobody has said anything yet, or all that is said in another one, which nobody changes meanwhile."""
    template = _template()
    with tempfile.TemporaryDirectory(prefix="proctor-city-") as name, ExitStack() as stack:
        folder = Path(name)
        (bare,) = (template / "forge").rglob("kernels.git/acme/kernels.git")
        there = like.state.repository.path if like else bare
        repository = Repository(Path(shutil.copytree(there, folder / "acme" / "kernels.git")))
        state = like.state.beside(repository) if like else _founded(repository)
        forge = stack.enter_context(Forge.serving(state))
        made = City(forge, Project(template / "project"), folder, stack, exams=like.exams if like else 0)
        state.subscribe(lambda name, payload: made.events.append((name, payload)))
        yield made


def _founded(repository: Repository) -> ForgeState:
    state = ForgeState(repository)
    state.add_user("maintainer", "write", "maintainer-token")
    state.add_user("reviewer", "write", "reviewer-token")
    state.add_user("visitor", "triage", "visitor-token")
    state.add_user(BOT, "write", "bot-token", actions_bot=True)
    return state
