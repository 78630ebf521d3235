"""`proctor contract …`: what its author asks of a contract. The verifier appraises; here is what is asked and kept."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from bot.contract.appraisal import Calibrated, Checked, Order, Result, Sketched, Soaked, Step, Task
from bot.contract.interchange.draft import draft
from bot.contract.interchange.flashinfer_bench import (
    DEFINITION_LIMIT,
    WORKLOADS_LIMIT,
    read_definition,
    read_workloads,
)
from bot.contract.load import LoadedContract, contract_names, load_contract
from bot.contract.new import write_new, write_starter
from bot.contract.rewrite import with_limits
from bot.contract.schema import Device
from bot.errors import DataError, InfrastructureError, Problem, UsageError
from bot.handlers.project import Project
from bot.report.soak import added, render_soak

Watch = Callable[[Step], None]


class Appraiser(Protocol):
    """Runs one order in the verifier (launch.py)."""

    def __call__(self, order: Order, watch: Watch = ...) -> Result:
        """Obey and return the result."""
        ...


@dataclass(frozen=True, slots=True)
class Options:
    """What a person may choose of an appraisal. `salt` repeats an earlier one; empty draws anew."""

    device: Device = "cpu"
    sandbox: Literal["bubblewrap", "none"] = "bubblewrap"
    draws: int = 1
    salt: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """All problems of one contract; `checked` when its file was sound enough to run it."""

    contract: str
    problems: Sequence[Problem]
    checked: Checked | None


def chosen(project: Project, name: str | None, *, everything: bool) -> list[str]:
    """The contracts a command is about.

    Raises:
        UsageError: neither or both of a name and `--all` are given, or there is no such contract, or none at all.
    """
    if (name is None) != everything:
        raise UsageError("name one contract, or say --all")
    known = contract_names(project.contracts)
    if not known:
        raise UsageError("contracts/ holds no contract; `proctor contract new NAME` begins one")
    if name is not None and name not in known:
        raise UsageError(f"unknown contract {name!r}; known: {', '.join(known)}")
    return known if name is None else [name]


def check(
    project: Project, names: Sequence[str], appraiser: Appraiser, watch: Watch, options: Options
) -> Iterator[Report]:
    """One report per contract, in this order; one is appraised on each CPU, since nothing is timed.

    Raises:
        InfrastructureError: a contract could not be run.
    """

    def one(name: str) -> Report:
        try:
            load_contract(project.contracts, name)
        except DataError as error:
            return Report(name, error.problems, None)

        def told(step: Step) -> None:
            watch(step if len(names) == 1 else step.model_copy(update={"text": f"{name}: {step.text}"}))

        result = appraiser(_order(project, name, "check", options), told)
        if not isinstance(result, Checked):
            raise InfrastructureError("the verifier answered another order")
        return Report(name, result.problems, result)

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        yield from pool.map(one, names)


def calibrate(project: Project, name: str, appraiser: Appraiser, watch: Watch, options: Options) -> Calibrated:
    """Errors of the faithful variants, and the limits they suggest.

    Raises:
        UsageError: the contract is unknown or has mistakes.
        InfrastructureError: it could not be run.
    """
    load_contract(project.contracts, name)
    result = appraiser(_order(project, name, "calibrate", options), watch)
    if not isinstance(result, Calibrated):
        raise InfrastructureError("the verifier answered another order")
    return result


def write_limits(project: Project, name: str, calibrated: Calibrated) -> Path:
    """Put the proposed limits into `contract.yaml`; returns the file.

    Raises:
        UsageError: measuring met problems, or the limits cannot be replaced one by one.
    """
    if calibrated.problems:
        raise UsageError("nothing was written: limits are no measurement while there are problems")
    file = project.contracts / name / "contract.yaml"
    file.write_text(with_limits(file.read_text(encoding="utf-8"), calibrated.proposed), encoding="utf-8")
    return file


def soak(project: Project, name: str, appraiser: Appraiser, watch: Watch, options: Options) -> Soaked:
    """`options.draws` exams of the contract's own kernels.

    Raises:
        UsageError: the contract is unknown or has mistakes.
        InfrastructureError: it could not be run.
    """
    load_contract(project.contracts, name)
    result = appraiser(_order(project, name, "soak", options), watch)
    if not isinstance(result, Soaked):
        raise InfrastructureError("the verifier answered another order")
    return result


def write_soak(project: Project, name: str, soaked: Soaked) -> Path:
    """Add the counts to those under `reports/` of the same judge and contract; returns the table beside them."""
    folder = project.reports / name
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "soak.json"
    soaked = added(Soaked.model_validate_json(kept.read_bytes()) if kept.exists() else None, soaked)
    kept.write_text(soaked.model_dump_json(indent=1) + "\n", encoding="utf-8")
    table = folder / "soak.md"
    table.write_text(render_soak(name, soaked), encoding="utf-8")
    return table


def show(project: Project, name: str, appraiser: Appraiser, device: Device) -> tuple[LoadedContract, Sketched]:
    """A contract, and how its regimes draw.

    Raises:
        UsageError: the contract is unknown or has mistakes, or has no workload for the device.
        InfrastructureError: nothing could be drawn.
    """
    loaded = load_contract(project.contracts, name)
    result = appraiser(_order(project, name, "sketch", Options(device=device)))
    if not isinstance(result, Sketched):
        raise InfrastructureError("the verifier answered another order")
    return loaded, result


def create(project: Project, name: str) -> Path:
    """Begin a contract; returns its folder.

    Raises:
        UsageError: the name is no contract's, or its folder exists.
    """
    return write_starter(project.contracts, name)


def import_definition(project: Project, file: Path, name: str, workloads: Path | None) -> Path:
    """Begin a contract from a definition of flashinfer-bench, and workloads of it; returns its folder.

    Raises:
        UsageError: a file cannot be read, the name is no contract's, or its folder exists.
        DataError: the definition or the workloads have mistakes; all of them, with paths.
    """
    definition = read_definition(_content(file, DEFINITION_LIMIT), file.name)
    sizes = read_workloads(_content(workloads, WORKLOADS_LIMIT), definition, workloads.name) if workloads else []
    return write_new(project.contracts, name, draft(definition, sizes, name))


def _content(file: Path, limit: int) -> bytes:
    """A file, or a little more than the limit of it, for whoever reads it to refuse."""
    try:
        with file.open("rb") as opened:
            return opened.read(limit + 1)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None


def _order(project: Project, name: str, task: Task, options: Options) -> Order:
    if not re.fullmatch("([0-9a-f]{64})?", options.salt):
        raise UsageError("a salt is 64 hexadecimal digits, 0 to 9 and a to f")
    return Order(
        contracts_dir=str(project.contracts),
        contract=name,
        task=task,
        device=options.device,
        sandbox=options.sandbox,
        draws=options.draws,
        salt=options.salt,
    )
