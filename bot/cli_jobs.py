"""The commands of which the jobs of a workflow are made; part of the command line in cli.py.

The environment that GitHub Actions sets is read once, here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bot.errors import UsageError
from bot.sanitize import plain_line

if TYPE_CHECKING:
    from bot.evaluation import Commitment, Progress
    from bot.github.api import GitHub
    from bot.github.push import Remote

app = typer.Typer()

RunOption = Annotated[Path, typer.Option("--run", help="Folder in which the jobs of one run leave their documents.")]
DeviceOption = Annotated[Literal["cpu", "cuda"], typer.Option(help="Where the exam runs.")]


@dataclass(frozen=True, slots=True)
class Settings:
    """What a job of a workflow reads from its environment."""

    event_name: str
    event_path: Path
    api_url: str
    server_url: str
    repository: str
    token: str
    output: Path | None
    summary: Path | None
    bot_login: str
    run_url: str | None = None
    run_id: int = 0
    attempt: int = 1
    workflow: str = ""
    rerun_by: str | None = None
    """Who had a run of a workflow repeated: GitHub keeps the payload of the first attempt, and its actor."""

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Settings:
        """The variables GitHub Actions sets.

        Raises:
            UsageError: some are missing; all of them are named.
        """
        # A secret that is not there is an empty string to a workflow.
        needed = ("GITHUB_EVENT_NAME", "GITHUB_EVENT_PATH", "GITHUB_REPOSITORY", "GITHUB_TOKEN")
        missing = [name for name in needed if not environment.get(name)]
        if missing:
            raise UsageError(f"this command runs inside a workflow; not set: {', '.join(missing)}")
        return cls(
            event_name=environment["GITHUB_EVENT_NAME"],
            event_path=Path(environment["GITHUB_EVENT_PATH"]),
            api_url=environment.get("GITHUB_API_URL", "https://api.github.com"),
            server_url=environment.get("GITHUB_SERVER_URL", "https://github.com"),
            repository=environment["GITHUB_REPOSITORY"],
            token=environment["GITHUB_TOKEN"],
            output=Path(environment["GITHUB_OUTPUT"]) if environment.get("GITHUB_OUTPUT") else None,
            summary=Path(environment["GITHUB_STEP_SUMMARY"]) if environment.get("GITHUB_STEP_SUMMARY") else None,
            bot_login=environment.get("PROCTOR_BOT_LOGIN", "github-actions[bot]"),
            run_url=_run_url(environment),
            run_id=_whole(environment, "GITHUB_RUN_ID", 0),
            attempt=_whole(environment, "GITHUB_RUN_ATTEMPT", 1),
            workflow=environment.get("GITHUB_WORKFLOW", ""),
            rerun_by=_rerun_by(environment),
        )


@app.command()
def gate(
    folder: RunOption = Path("run"),
    device: DeviceOption = "cpu",
    shards: Annotated[int, typer.Option(min=1, max=16, help="Over so many runners an exam is spread.")] = 1,
) -> None:
    """First job of a workflow: may this event start something? Leaves an order in the run folder."""
    from bot.github.events import read_event  # noqa: PLC0415
    from bot.handlers.gate import Gate  # noqa: PLC0415
    from bot.handlers.gate import gate as handle  # noqa: PLC0415
    from bot.handlers.project import Project  # noqa: PLC0415
    from bot.handlers.run import RunFolder  # noqa: PLC0415

    settings = Settings.read(os.environ)
    tools = Gate(
        _github(settings),
        _remote(settings),
        Project.find(Path.cwd()),
        RunFolder(folder),
        device,
        rerun_by=settings.rerun_by,
        run_url=settings.run_url,
        run=settings.run_id,
        attempt=settings.attempt,
        workflow=settings.workflow,
        shards=shards,
    )
    passed = handle(read_event(settings.event_name, settings.event_path), tools)
    _say(passed.why)
    if settings.output is not None:
        with settings.output.open("a", encoding="utf-8") as file:
            numbers = list(range(1, passed.shards + 1))
            file.write(f"go=true\nshards={numbers}\nbase={passed.base}\n" if passed.go else "go=false\n")


@app.command()
def agent(
    folder: RunOption = Path("run"),
    model: Annotated[
        str, typer.Option(help="`anthropic:NAME`, or `replay:JOURNAL` (`replay` alone: the recorded run).")
    ] = "anthropic:claude-opus-4-6",
    turns: Annotated[int, typer.Option(min=1, help="Most turns of the model.")] = 60,
    tokens: Annotated[int, typer.Option(min=1, help="Most tokens, in and out.")] = 4_000_000,
    seconds: Annotated[float, typer.Option(min=1, help="Most seconds.")] = 3600.0,
) -> None:
    """Second job: let an agent write candidates, each checked as it goes."""
    from bot.agent.broker import needs_broker, run_without_key  # noqa: PLC0415

    if needs_broker(model, os.environ):
        raise typer.Exit(run_without_key([sys.executable, "-m", "bot", *sys.argv[1:]], os.environ))
    from bot.agent.task import Budget  # noqa: PLC0415
    from bot.evaluation import Preparation  # noqa: PLC0415
    from bot.handlers.agent import AgentTools  # noqa: PLC0415
    from bot.handlers.agent import agent as handle  # noqa: PLC0415
    from bot.handlers.digests import held_order  # noqa: PLC0415
    from bot.handlers.models import choose_model  # noqa: PLC0415
    from bot.handlers.project import Project  # noqa: PLC0415
    from bot.handlers.run import RunFolder  # noqa: PLC0415
    from bot.launch import Resident  # noqa: PLC0415

    run_folder, project = RunFolder(folder), Project.find(Path.cwd())
    order = held_order(run_folder, project)
    chosen = choose_model(model, order.contract, os.environ)
    checks = Preparation(contracts_dir=str(project.contracts), contract=order.contract, device=order.device)
    with Resident(checks) as launcher:
        launcher.start()
        tools = AgentTools(project, run_folder, launcher, _say)
        _say(handle(chosen, Budget(turns=turns, tokens=tokens, seconds=seconds), tools))


@app.command()
def examine(
    folder: RunOption = Path("run"),
    shard: Annotated[int, typer.Option(min=1, max=16, help="Which part of an exam that several runners share.")] = 1,
) -> None:
    """Third job: the exam of record of the candidate in the run folder."""
    from bot.evaluation import Commitment  # noqa: PLC0415
    from bot.handlers.digests import held_order  # noqa: PLC0415
    from bot.handlers.examine import examine as handle  # noqa: PLC0415
    from bot.handlers.project import Project  # noqa: PLC0415
    from bot.handlers.run import RunFolder  # noqa: PLC0415
    from bot.launch import launch  # noqa: PLC0415

    def watch(message: Progress | Commitment) -> None:
        if isinstance(message, Commitment):
            _say(f"salt committed to: {message.sha256}")

    run_folder, project = RunFolder(folder), Project.find(Path.cwd())
    held_order(run_folder, project)
    evaluation = handle(run_folder, project, launch, watch, shard)
    _say("no candidate to examine" if evaluation is None else f"examined in {evaluation.seconds:.0f} s")


@app.command()
def publish(folder: RunOption = Path("run")) -> None:
    """Last job: put what was found on GitHub. Runs nothing of the candidate's."""
    from bot.github.push import Identity  # noqa: PLC0415
    from bot.handlers.digests import held_order  # noqa: PLC0415
    from bot.handlers.project import Project  # noqa: PLC0415
    from bot.handlers.publish import Publisher  # noqa: PLC0415
    from bot.handlers.publish import publish as handle  # noqa: PLC0415
    from bot.handlers.run import RunFolder  # noqa: PLC0415
    from bot.report.comment import render_full  # noqa: PLC0415

    settings = Settings.read(os.environ)
    held_order(RunFolder(folder), Project.find(Path.cwd()))
    author = Identity("Proctor", f"{settings.bot_login}@users.noreply.github.com")
    done = handle(Publisher(_github(settings), _remote(settings), RunFolder(folder), author))
    if settings.summary is not None and done.facts is not None:
        with settings.summary.open("a", encoding="utf-8") as file:
            file.write(render_full(done.facts))
    if done.void:
        _say(f"nothing is published: {done.void}")
        return
    where = f"pull request {done.pull}" if done.pull else "the issue"
    _say(f"published on {where}: {done.verdict.kind.value if done.verdict else 'no candidate'}")


@app.command()
def reconcile() -> None:
    """Say of what was abandoned that it was interrupted, and bring every open pull request's statuses up to date."""
    from bot.handlers.reconcile import reconcile as handle  # noqa: PLC0415

    settings = Settings.read(os.environ)
    lines = handle(_github(settings), _remote(settings), datetime.now(UTC))
    for line in lines or ["nothing is open"]:
        _say(line)


def _run_url(environment: Mapping[str, str]) -> str | None:
    run_id = environment.get("GITHUB_RUN_ID", "")
    server = environment.get("GITHUB_SERVER_URL", "https://github.com")
    return f"{server}/{environment['GITHUB_REPOSITORY']}/actions/runs/{run_id}" if run_id.isdecimal() else None


def _rerun_by(environment: Mapping[str, str]) -> str | None:
    """None for a first attempt; nobody, who may do nothing, when a later one does not say whose it is."""
    if environment.get("GITHUB_RUN_ATTEMPT", "1") == "1":
        return None
    return environment.get("GITHUB_TRIGGERING_ACTOR") or "ghost"


def _remote(settings: Settings) -> Remote:
    from bot.github.push import Remote  # noqa: PLC0415

    return Remote(f"{settings.server_url}/{settings.repository}.git", settings.token)


def _whole(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else default


def _github(settings: Settings) -> GitHub:
    from bot.github.client import connect  # noqa: PLC0415

    return connect(settings.api_url, settings.token, settings.repository, login=settings.bot_login)


def _say(line: str) -> None:
    sys.stdout.write(plain_line(line, 500) + "\n")
    sys.stdout.flush()
