"""The commands that set a repository and its runner up, and look after them; part of the command line in cli.py."""

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import typer

from bot.errors import UsageError
from bot.sanitize import printable, redact

app = typer.Typer()
runner_app = typer.Typer(no_args_is_help=True, help="Look after the machine that holds exams.")
app.add_typer(runner_app, name="runner")

RepositoryOption = Annotated[
    str, typer.Option(help="owner/name; else GITHUB_REPOSITORY, else the remote `origin` of this checkout.")
]
FolderOption = Annotated[
    Path | None, typer.Option("--folder", help="Where environments are kept; else ~/.cache/proctor/environments.")
]


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="Top folder of the repository.")] = Path(),
    *,
    owner: Annotated[str, typer.Option(help="Who answers for contracts: @somebody or @organisation/team.")] = "",
    contract: Annotated[str | None, typer.Option(help="Begin a contract of this name.")] = None,
    proctor: Annotated[
        str,
        typer.Option(help="What workflows install: kernel-proctor==VERSION, kernel-proctor @ URL, or a wheel file."),
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="Overwrite files of ours that differ.")] = False,
) -> None:
    """Write into a repository what it needs to use Proctor. Overwrites nothing; a second run changes nothing."""
    from bot.handlers.install import PLACEHOLDER, Wanted, install, told  # noqa: PLC0415

    wanted = Wanted(proctor, owner or PLACEHOLDER, contract, force)
    _tell(told(install(folder.resolve(), wanted), wanted))


@app.command()
def setup(  # noqa: PLR0913 - options of the command line
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan, and do nothing.")] = False,
    repository: RepositoryOption = "",
    runner: Annotated[str | None, typer.Option(help="Label of the runner for exams.")] = None,
    agent_runner: Annotated[str | None, typer.Option(help="Label of the runner for agents.")] = None,
    device: Annotated[Literal["cpu", "cuda"] | None, typer.Option(help="Where exams run.")] = None,
    shards: Annotated[int | None, typer.Option(min=1, max=16, help="Over so many runners an exam is spread.")] = None,
    model: Annotated[str | None, typer.Option(help="The agent's model, as in anthropic:NAME.")] = None,
    bot_login: Annotated[str | None, typer.Option(help="Who the bot is: SLUG[bot] for a GitHub App.")] = None,
    app_id: Annotated[int | None, typer.Option(help="The App whose statuses count; else GITHUB_TOKEN's.")] = None,
    restrict_kernels: Annotated[
        bool, typer.Option("--restrict-kernels", help="Let only the App push kernels/ (private repositories).")
    ] = False,
) -> None:
    """Set labels, variables, ruleset and environment on GitHub. Exit code: 0 all as wanted, 1 not all of it.

    Reads the token from GITHUB_TOKEN. A second run changes nothing.
    """
    from bot.github.settings import connect_settings  # noqa: PLC0415
    from bot.handlers import setup as handle  # noqa: PLC0415
    from bot.handlers.tokens import token_kind  # noqa: PLC0415

    options = {
        "PROCTOR_RUNNER": runner,
        "PROCTOR_AGENT_RUNNER": agent_runner,
        "PROCTOR_DEVICE": device,
        "PROCTOR_SHARDS": None if shards is None else str(shards),
        "PROCTOR_MODEL": model,
        "PROCTOR_BOT_LOGIN": bot_login,
    }
    token, api_url = _token(os.environ), _api_url(os.environ)
    wanted = handle.Wanted(
        variables={name: value for name, value in options.items() if value is not None},
        app=app_id,
        # Elsewhere than on github.com the App behind GITHUB_TOKEN has another number.
        default_app=handle.ACTIONS_APP if urlsplit(api_url).hostname == "api.github.com" else None,
        restrict_kernels=restrict_kernels,
    )
    plan = handle.make_plan(connect_settings(api_url, token, _repository(repository)), wanted)
    _tell(handle.told(plan))
    denied = list(plan.denied)
    if not dry_run:
        failed = handle.carry_out(plan, lambda line: _tell([line]))
        _tell(f"DENIED {each}" for each in failed)
        denied += failed
    if denied:
        _tell([f"the token is {token_kind(token)}"])
    raise typer.Exit(1 if denied or plan.faults else 0)


@app.command()
def doctor(
    *,
    repository: RepositoryOption = "",
    offline: Annotated[bool, typer.Option("--offline", help="Look at the checkout alone.")] = False,
) -> None:
    """What is wrong with an installation, and how to mend it. Exit code: 0 nothing, 1 something, 2 could not look."""
    from bot.github.settings import connect_settings  # noqa: PLC0415
    from bot.handlers import doctor as handle  # noqa: PLC0415
    from bot.handlers.checks import Check, exit_code, lines  # noqa: PLC0415
    from bot.handlers.project import Project  # noqa: PLC0415

    project = Project.find(Path.cwd())
    checks = list(handle.look_at_checkout(project.root))
    token, name = os.environ.get("GITHUB_TOKEN", ""), repository or _named(project.root)
    if offline:
        pass
    elif not token or not name:
        missing = "GITHUB_TOKEN is not set" if not token else "the repository is not known"
        remedy = "whoever runs this: set GITHUB_TOKEN (`gh auth token` prints one), give --repository, or say --offline"
        checks.append(Check("unseen", "the repository on GitHub", missing, remedy))
    else:
        api_url = _api_url(os.environ)
        checks += handle.look_at_github(lambda: connect_settings(api_url, token, name), token)
    _tell(lines(checks))
    raise typer.Exit(exit_code(checks))


@runner_app.command("doctor")
def runner_doctor(
    *,
    device: Annotated[Literal["auto", "cpu", "cuda"], typer.Option(help="`cuda`: a GPU must be there.")] = "auto",
    folder: FolderOption = None,
) -> None:
    """Whether this machine can hold exams. Exit code: 0 it can, 1 something to mend, 2 could not look."""
    from bot.handlers.checks import Check, exit_code, lines  # noqa: PLC0415
    from bot.handlers.environment import default_folder  # noqa: PLC0415
    from bot.handlers.lock import Lock  # noqa: PLC0415
    from bot.handlers.machine import ThisMachine  # noqa: PLC0415
    from bot.handlers.runner import look_at_environment, look_at_machine  # noqa: PLC0415

    machine = ThisMachine()
    checks = list(look_at_machine(machine, folder or default_folder(os.environ), device))
    try:
        lock = Lock.read(_checkout())
    except UsageError as error:
        remedy = "whoever runs this: run it in a checkout of the repository, to compare packages with its lock"
        checks.append(Check("note", "packages were not compared", str(error).splitlines()[0], remedy))
    else:
        checks += look_at_environment(machine, lock)
    _tell(lines(checks))
    raise typer.Exit(exit_code(checks))


@runner_app.command("check")
def runner_check() -> None:
    """Whether what is installed here is what this checkout's lock describes. Exit code: 0 yes, 1 no, 2 no lock."""
    from bot.handlers.checks import exit_code, lines  # noqa: PLC0415
    from bot.handlers.lock import Lock  # noqa: PLC0415
    from bot.handlers.machine import ThisMachine  # noqa: PLC0415
    from bot.handlers.runner import look_at_environment  # noqa: PLC0415

    checks = list(look_at_environment(ThisMachine(), Lock.read(_checkout())))
    _tell(lines(checks))
    raise typer.Exit(exit_code(checks))


@runner_app.command("prepare")
def runner_prepare(
    *,
    folder: FolderOption = None,
    torch: Annotated[str, typer.Option(help="The torch that fits the driver; empty: none.")] = "torch==2.13.0",
    extra: Annotated[Literal["gpu", "local", "none"], typer.Option(help="`local`: exams on the CPU alone.")] = "gpu",
) -> None:
    """Make the environment for this checkout's lock, or find it made. Prints the folder for the runner's PATH."""
    from bot.handlers.environment import Recipe, default_folder, prepare  # noqa: PLC0415
    from bot.handlers.lock import Lock  # noqa: PLC0415

    kept = (folder or default_folder(os.environ)).absolute()
    recipe = Recipe(Lock.read(_checkout()), torch, extra)
    place = prepare(recipe, kept, lambda line: _tell([line]))
    _tell([f"ready: {place}", f"for the runner's PATH: {kept / 'current' / 'bin'}"])


def _checkout() -> Path:
    """The project we are in; a runner's checkout may hold a lock and no contracts yet."""
    from bot.handlers.project import Project  # noqa: PLC0415

    try:
        return Project.find(Path.cwd()).root
    except UsageError:
        return Path.cwd()


def _named(root: Path) -> str:
    from bot.handlers.doctor import repository_of  # noqa: PLC0415

    return os.environ.get("GITHUB_REPOSITORY") or repository_of(root) or ""


def _repository(given: str) -> str:
    found = given or _named(Path.cwd())
    if not found:
        raise UsageError("which repository? Give --repository owner/name, or run this in a checkout with a remote")
    return found


def _token(environment: Mapping[str, str]) -> str:
    token = environment.get("GITHUB_TOKEN", "")
    if not token:
        raise UsageError(
            "GITHUB_TOKEN is not set: an administrator of the repository must run this with a token of theirs, "
            "for instance GITHUB_TOKEN=$(gh auth token) proctor setup --dry-run"
        )
    return token


def _api_url(environment: Mapping[str, str]) -> str:
    return environment.get("GITHUB_API_URL", "https://api.github.com")


def _tell(lines: Iterable[str]) -> None:
    for line in lines:
        # Indentation carries meaning here; tokens and control characters never get out.
        sys.stdout.write(printable(redact(line)) + "\n")
    sys.stdout.flush()
