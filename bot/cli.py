"""The command line: parse, build the collaborators, call one handler.

Imports that take time stand inside the commands, so that each starts fast (`--version` answers in __main__.py).
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from bot.cli_install import app as install_app
from bot.cli_jobs import app as jobs_app
from bot.errors import ProctorError
from bot.sanitize import plain_line

if TYPE_CHECKING:
    # Records cost a quarter of a second, which `--help` need not pay.
    from rich.status import Status

    from bot.contract.appraisal import Step
    from bot.contract.schema import Device
    from bot.evaluation import Commitment, Evaluation, Finding, Job, Mode, Progress
    from bot.handlers.project import Project

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Examine agent-written kernels, and let none in that cheats.",
)
app.add_typer(install_app)
app.add_typer(jobs_app)

DeviceOption = Annotated[Literal["cpu", "cuda"], typer.Option(help="Where the exam runs.")]


def run(arguments: list[str] | None = None) -> int:
    """Run one command; an error of ours is one message and exit code 2."""
    try:
        # Outside its standalone mode, click returns the code of an Exit instead of raising it.
        code = app(args=arguments, standalone_mode=False)
    except typer.Abort:
        return 130
    except ProctorError as error:
        # Written by us from data we parsed; still printable text only, for names in it come from outside.
        lines = [plain_line(line, 500) for line in str(error).splitlines()]
        sys.stderr.write("\n".join(["proctor: " + lines[0], *lines[1:]]) + "\n" if lines else "proctor: failed\n")
        return 2
    except _usage_errors() as error:
        sys.stderr.write(f"proctor: {error.format_message()}\n")
        return 2
    return code if isinstance(code, int) else 0


def _usage_errors() -> type[typer.BadParameter]:
    """What typer raises for a wrong command line; its base class has no public name of typer's."""
    base: type[typer.BadParameter] = typer.BadParameter.__mro__[1]
    return base


@app.command()
def verify(  # noqa: PLR0913 - options of the command line
    file: Annotated[Path, typer.Argument(help="The kernel file: one function `run(inputs…, outputs…)`.")],
    *,
    contract: Annotated[str, typer.Option(help="Name of a folder in contracts/.")],
    device: DeviceOption = "cpu",
    mode: Annotated[Literal["quick", "full", "exam"], typer.Option(help="How much to ask.")] = "full",
    json_out: Annotated[Path | None, typer.Option("--json", help="Write the evaluation here.")] = None,
    bundle: Annotated[Path | None, typer.Option(help="Write a bundle for `replay` and `reproduce` here.")] = None,
    sandbox: Annotated[
        Literal["bubblewrap", "none"], typer.Option(help="`none` measures without isolation and accepts nothing.")
    ] = "bubblewrap",
    resident: Annotated[
        bool, typer.Option("--resident", help="Stay, and examine the file again whenever it is written.")
    ] = False,
) -> None:
    """Examine one kernel file on this machine. Exit code: 0 correct, 1 refused, 2 the exam could not be held."""
    from bot.evaluation import Commitment  # noqa: PLC0415
    from bot.handlers.bundle import write_bundle  # noqa: PLC0415
    from bot.handlers.project import Project, read_candidate  # noqa: PLC0415
    from bot.handlers.verify import exit_code  # noqa: PLC0415
    from bot.handlers.verify import verify as handle  # noqa: PLC0415
    from bot.launch import launch  # noqa: PLC0415
    from bot.report.terminal import print_verdict  # noqa: PLC0415

    project = Project.find(Path.cwd())
    if resident:
        _stay(project, file, contract, device, mode, sandbox)
        return
    source = read_candidate(file)
    job = project.job(contract, file.name, source, mode, device).model_copy(
        update={"sandbox": sandbox, "keep": str(bundle.resolve()) if bundle else None}
    )
    console = Console()
    with console.status("starting", spinner="dots") as status:

        def watch(message: Progress | Commitment) -> None:
            if isinstance(message, Commitment):
                console.print(f"salt committed to: {message.sha256}", style="dim", highlight=False)
            else:
                status.update(plain_line(f"{message.stage} {message.done}/{message.total} {message.text}"))

        evaluation, verdict = handle(job, launch, watch, json_out)
    if bundle is not None:
        write_bundle(bundle, evaluation, source, project.contracts / contract)
    print_verdict(evaluation, verdict, console)
    raise typer.Exit(exit_code(verdict))


def _stay(
    project: Project, file: Path, contract: str, device: Device, mode: Mode, sandbox: Literal["bubblewrap", "none"]
) -> None:
    """Examine a file again and again, until interrupted."""
    from bot.evaluation import Preparation  # noqa: PLC0415
    from bot.handlers.project import read_candidate  # noqa: PLC0415
    from bot.handlers.watch import watch_file  # noqa: PLC0415
    from bot.launch import Resident  # noqa: PLC0415
    from bot.report.terminal import print_verdict  # noqa: PLC0415
    from bot.verdict import decide  # noqa: PLC0415

    console = Console()

    def job() -> Job:
        made = project.job(contract, file.name, read_candidate(file), mode, device)
        return made.model_copy(update={"sandbox": sandbox})

    def tell(evaluation: Evaluation, seconds: float) -> None:
        print_verdict(evaluation, decide([evaluation]), console)
        console.print(f"{seconds:.2f} s from the file's change to the verdict; waiting for the next", style="dim")

    first = Preparation(contracts_dir=str(project.contracts), contract=contract, device=device, sandbox=sandbox)
    with Resident(first) as launcher, contextlib.suppress(KeyboardInterrupt):
        launcher.start()
        watch_file(file, job, launcher, tell, lambda text: console.print(plain_line(text), style="red"))


@app.command()
def inspect(
    file: Annotated[Path, typer.Argument(help="The kernel file: one function `run(inputs…, outputs…)`.")],
    *,
    contract: Annotated[str, typer.Option(help="Name of a folder in contracts/.")],
    arch: Annotated[
        list[str] | None, typer.Option(help="sm_90a or sm_100a; may be repeated. Both, where nothing is said.")
    ] = None,
    json_out: Annotated[Path | None, typer.Option("--json", help="Write what was found here.")] = None,
    sandbox: Annotated[Literal["bubblewrap", "none"], typer.Option(help="How the file is compiled.")] = "bubblewrap",
) -> None:
    """Compile a kernel file without a GPU, and read its machine code. Exit code: 0 well, 1 refused, 2 not inspected."""
    from bot.handlers.inspect import inspect as handle  # noqa: PLC0415
    from bot.handlers.project import Project, read_candidate  # noqa: PLC0415
    from bot.launch import inspect as launcher  # noqa: PLC0415
    from bot.report.builds import print_builds  # noqa: PLC0415

    project, console = Project.find(Path.cwd()), Console()
    with console.status("compiling", spinner="dots"):
        order = project.inspection(contract, file.name, read_candidate(file), arch)
        found = handle(order.model_copy(update={"sandbox": sandbox}), launcher, json_out)
    print_builds(file.name, found, console)
    raise typer.Exit(1 if found.refusals else 0)


@app.command()
def sanitize(
    contract: Annotated[str, typer.Argument(help="Name of a folder in contracts/.")],
    file: Annotated[Path, typer.Argument(help="The kernel file: one function `run(inputs…, outputs…)`.")],
    *,
    tool: Annotated[
        list[str] | None,
        typer.Option(help="memcheck, racecheck, initcheck or synccheck; may be repeated. The first three by default."),
    ] = None,
    seconds: Annotated[int, typer.Option(min=1, max=3600, help="How long each tool may take.")] = 300,
    json_out: Annotated[Path | None, typer.Option("--json", help="Write what was found here.")] = None,
) -> None:
    """Have compute-sanitizer watch a kernel on a GPU. Exit code: 0 nothing found, 1 errors, 2 no answer."""
    from bot.handlers.project import Project, read_candidate  # noqa: PLC0415
    from bot.handlers.sanitizer import exit_code  # noqa: PLC0415
    from bot.launch import sanitize as launcher  # noqa: PLC0415
    from bot.report.sanitizer import print_sanitized  # noqa: PLC0415

    project, console = Project.find(Path.cwd()), Console()
    with console.status("watching", spinner="dots"):
        found = launcher(project.sanitation(contract, read_candidate(file), tool, seconds))
    if json_out is not None:
        json_out.write_text(found.model_dump_json(indent=1) + "\n", encoding="utf-8")
    print_sanitized(file.name, found, console)
    raise typer.Exit(exit_code(found))


@app.command()
def replay(folder: Annotated[Path, typer.Argument(help="A bundle, as `verify --bundle` writes it.")]) -> None:
    """Decide again from a bundle, without running the candidate. Exit code: 0 everything agrees, 1 not."""
    from bot.handlers.bundle import read_bundle  # noqa: PLC0415
    from bot.handlers.bundle import replay as handle  # noqa: PLC0415
    from bot.launch import recheck  # noqa: PLC0415

    _tell_findings(handle(read_bundle(folder), recheck))


@app.command()
def reproduce(folder: Annotated[Path, typer.Argument(help="A bundle, as `verify --bundle` writes it.")]) -> None:
    """Examine a bundle's candidate again on this machine. Exit code: 0 everything agrees, 1 not."""
    from bot.handlers.bundle import read_bundle  # noqa: PLC0415
    from bot.handlers.bundle import reproduce as handle  # noqa: PLC0415
    from bot.launch import launch  # noqa: PLC0415

    findings, verdict = handle(read_bundle(folder), launch, lambda _: None)
    _say(f"here: {verdict.kind.value}")
    _tell_findings(findings)


def _tell_findings(findings: Sequence[Finding]) -> None:
    for finding in findings:
        _say(f"{'agrees' if finding.agrees else 'DIFFERS'}  {finding.what}  {finding.detail}")
    raise typer.Exit(0 if all(finding.agrees for finding in findings) else 1)


@app.command()
def demo(
    folder: Annotated[Path, typer.Option(help="Where the demonstration keeps its repository and runs.")] = Path("demo"),
    *,
    serve: Annotated[bool, typer.Option("--serve", help="Leave the forge running for a browser.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the forge; 0 picks one.")] = 0,
) -> None:
    """Play the main job against the embedded forge: label, agent, exam, pull request, rerun, approval."""
    from bot.handlers.demo import play  # noqa: PLC0415
    from bot.handlers.project import Project  # noqa: PLC0415

    raise typer.Exit(play(Project.find(Path.cwd()), folder, _say, serve=serve, port=port))


def _say(line: str) -> None:
    sys.stdout.write(plain_line(line, 500) + "\n")
    sys.stdout.flush()


contract_app = typer.Typer(no_args_is_help=True, help="Write a contract, and find out whether it can be trusted.")
app.add_typer(contract_app, name="contract")

ContractName = Annotated[str, typer.Argument(help="Name of a folder in contracts/.")]
SaltOption = Annotated[str, typer.Option(help="Draw as in an earlier run: 64 hexadecimal digits.")]
SandboxOption = Annotated[Literal["bubblewrap", "none"], typer.Option(help="How the contract's own kernels run.")]


@contract_app.command("check")
def contract_check(
    name: Annotated[str | None, typer.Argument(help="Name of a folder in contracts/.")] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Every contract.")] = False,
    device: DeviceOption = "cpu",
    sandbox: SandboxOption = "bubblewrap",
    salt: SaltOption = "",
) -> None:
    """Every mistake of a contract, found by reading and by running it. Exit code: 0 none, 1 some, 2 not checked."""
    from bot.handlers import contract as handle  # noqa: PLC0415
    from bot.handlers.project import Project  # noqa: PLC0415
    from bot.launch import appraise  # noqa: PLC0415
    from bot.report.contract import print_problems  # noqa: PLC0415

    project, console, found = Project.find(Path.cwd()), Console(), 0
    names = handle.chosen(project, name, everything=everything)
    options = handle.Options(device=device, sandbox=sandbox, salt=salt)
    with console.status("starting", spinner="dots") as status:
        for report in handle.check(project, names, appraise, _steps(status), options):
            print_problems(report.contract, report.problems, report.checked, console)
            found += len(report.problems)
    raise typer.Exit(1 if found else 0)


@contract_app.command("calibrate")
def contract_calibrate(
    name: ContractName,
    *,
    draws: Annotated[int, typer.Option(min=1, max=256, help="Draws of every cell, hidden draw and probe.")] = 12,
    write: Annotated[bool, typer.Option("--write", help="Put the proposed limits into contract.yaml.")] = False,
    device: DeviceOption = "cpu",
    sandbox: SandboxOption = "bubblewrap",
    salt: SaltOption = "",
) -> None:
    """Measure the honest variants, and propose limits with the sentence that says where they come from."""
    from bot.contract.rewrite import snippet  # noqa: PLC0415
    from bot.handlers import contract as handle  # noqa: PLC0415
    from bot.handlers.project import Project  # noqa: PLC0415
    from bot.launch import appraise  # noqa: PLC0415
    from bot.report.contract import print_calibration  # noqa: PLC0415

    project, console = Project.find(Path.cwd()), Console()
    options = handle.Options(device=device, sandbox=sandbox, draws=draws, salt=salt)
    with console.status("starting", spinner="dots") as status:
        found = handle.calibrate(project, name, appraise, _steps(status), options)
    print_calibration(name, found, console)
    if write:
        handle.write_limits(project, name, found)
        _say(f"contracts/{name}/contract.yaml has the proposed limits")
    else:
        sys.stdout.write(snippet(found.proposed))
    raise typer.Exit(1 if found.problems else 0)


@contract_app.command("soak")
def contract_soak(
    name: Annotated[str | None, typer.Argument(help="Name of a folder in contracts/.")] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Every contract.")] = False,
    exams: Annotated[int, typer.Option(min=1, max=256, help="Exams, each with a salt of its own.")] = 20,
    write: Annotated[bool, typer.Option("--write", help="Keep the counts in reports/NAME/soak.md.")] = False,
    device: DeviceOption = "cpu",
    sandbox: SandboxOption = "bubblewrap",
    salt: SaltOption = "",
) -> None:
    """Hold exams of the contract's own kernels, every hidden form of every control. Exit code 1: one was missed."""
    from bot.handlers import contract as handle  # noqa: PLC0415
    from bot.handlers.project import Project  # noqa: PLC0415
    from bot.launch import appraise  # noqa: PLC0415
    from bot.report.soak import missed, render_soak  # noqa: PLC0415

    project, console = Project.find(Path.cwd()), Console()
    options = handle.Options(device=device, sandbox=sandbox, draws=exams, salt=salt)
    found = False
    for chosen in handle.chosen(project, name, everything=everything):
        with console.status("starting", spinner="dots") as status:
            soaked = handle.soak(project, chosen, appraise, _steps(status), options)
        sys.stdout.write(render_soak(chosen, soaked))
        if write:
            _say(f"written: {handle.write_soak(project, chosen, soaked)}")
        found |= bool(missed(soaked))
    raise typer.Exit(1 if found else 0)


@contract_app.command("show")
def contract_show(name: ContractName, device: DeviceOption = "cpu") -> None:
    """What a contract declares, its distributions drawn as small plots."""
    from bot.handlers import contract as handle  # noqa: PLC0415
    from bot.handlers.project import Project  # noqa: PLC0415
    from bot.launch import appraise  # noqa: PLC0415
    from bot.report.contract import print_contract  # noqa: PLC0415

    loaded, drawn = handle.show(Project.find(Path.cwd()), name, appraise, device)
    print_contract(loaded.contract, drawn, Console())


@contract_app.command("new")
def contract_new(name: ContractName) -> None:
    """Begin a contract: a small one that is complete and passes `check`."""
    from bot.handlers import contract as handle  # noqa: PLC0415
    from bot.handlers.project import Project  # noqa: PLC0415

    folder = handle.create(Project.find(Path.cwd()), name)
    _say(f"contracts/{folder.name} begun: edit contract.yaml, then `proctor contract check {folder.name}`")


@contract_app.command("import")
def contract_import(
    file: Annotated[Path, typer.Argument(help="A definition of flashinfer-bench, JSON.")],
    *,
    name: Annotated[str, typer.Option(help="Name of the new folder in contracts/.")],
    workloads: Annotated[Path | None, typer.Option(help="Its workloads, JSON by lines.")] = None,
) -> None:
    """Begin a contract from a definition: a draft, which `check` refuses until a person has decided what is missing."""
    from bot.handlers import contract as handle  # noqa: PLC0415
    from bot.handlers.project import Project  # noqa: PLC0415

    folder = handle.import_definition(Project.find(Path.cwd()), file, name, workloads)
    _say(f"contracts/{folder.name} drafted: `proctor contract check {folder.name}` says what a person must decide,")
    _say("and oracle.py holds the reference as comments, to be written anew in float64")


def _steps(status: Status) -> Callable[[Step], None]:
    def watch(step: Step) -> None:
        status.update(plain_line(f"{step.done}/{step.total} {step.text}"))

    return watch
