"""The verifier's program that has compute-sanitizer watch a candidate: one Sanitation on standard input, one JSON line
out.

An aid for whoever writes a kernel, no part of a verdict. Inputs come from a public stream; tool and candidate run in a
sandbox of their own for each tool (watcher.py), on memory that they allocate themselves, and the report passes through
the candidate's hands. It is text of bounded length here, read by two expressions.
"""

import re
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

import numpy as np

from bot.contract.load import LoadedContract, load_contract
from bot.contract.schema import Contract, Device, Sizes, TensorInput
from bot.errors import OWNER, InfrastructureError, UsageError
from bot.sanitizer import Outcome, Sanitation, Sanitized, Tool, Watching
from bot.verify import cpus
from bot.verify.artefacts import CASES, RAISED, WATCHER, Asked, Place, Watch, Watched
from bot.verify.cases import HOST_ELEMENTS, Case, Recipe, cell_recipe, hidden_recipes, make_case, probe_recipe
from bot.verify.mounts import GPU_LIMITS, SANITIZER, GpuAccess
from bot.verify.philox import Stream
from bot.verify.program import obey
from bot.verify.protocol import TEXT_LIMIT
from bot.verify.room import FailedError, Room, lent
from bot.verify.start import gpu_access, turn_on

TOOLKITS = ("/usr/local/cuda", "/opt/cuda", "/usr/lib/nvidia-cuda-toolkit")
"""Where CUDA's toolkit is by custom: NVIDIA's packages, Arch's, Debian's."""
LINES = 40
LINE = 200
_FEW = 10
_LOST = -1
"""Stands for the exit status of a tool whose sandbox ended."""
_ALIGNED = 64
_GRACE_SECONDS = 60.0
"""For the sandboxed program to end what it started, beyond the time that the tool has."""
_PREFIX = "========="
_SUMMARY = re.compile(r"ERROR SUMMARY: (\d+) errors?")
_HAZARDS = re.compile(r"RACECHECK SUMMARY: \d+ hazards? displayed \((\d+) errors?, \d+ warnings?\)")


@dataclass(frozen=True, slots=True)
class Report:
    """What a tool reported. `errors`: None where its summary is missing, so that it did not come to its end."""

    errors: int | None
    lines: list[str]


def read_report(text: str) -> Report:
    """Read a report; lines of anybody else between the tool's are left out, and so are the tool's own frame."""
    told = [line.removeprefix(_PREFIX).strip() for line in text.splitlines() if line.startswith(_PREFIX)]
    counted = [found[1] for line in told if (found := _SUMMARY.fullmatch(line) or _HAZARDS.fullmatch(line))]
    lines = [line[:LINE] for line in told if line and line != "COMPUTE-SANITIZER" and "SUMMARY:" not in line]
    return Report(int(counted[-1]) if counted else None, lines[:LINES])


def outcome_of(report: Report, status: int | None) -> Outcome:
    """What a report and the tool's exit status (None: it was ended) amount to; the worse of the two counts."""
    if report.errors:
        return "errors"
    if status is None:
        return "timed_out"
    if report.errors is None:
        return "died"
    return "clean" if status == 0 else "raised" if status == RAISED else "died"


def find_sanitizer(toolkits: Sequence[str] = TOOLKITS) -> str:
    """The folder of compute-sanitizer, with the libraries that it puts into a process.

    Raises:
        InfrastructureError: it is not on this machine.
    """
    on_path = shutil.which("compute-sanitizer")
    # What a toolkit has in bin/ only starts the program, which is in a folder beside that one.
    roots = [Path(on_path).resolve().parents[1]] if on_path else []
    for folder in (root / "compute-sanitizer" for root in (*roots, *map(Path, toolkits))):
        if (folder / "compute-sanitizer").is_file() and any(folder.glob("libsanitizer*.so*")):
            return str(folder.resolve())
    raise InfrastructureError(
        f"compute-sanitizer is missing: it is neither on the PATH nor in {', '.join(toolkits)}. "
        f"{OWNER}: install it with the CUDA toolkit"
    )


def small_cases(contract: Contract) -> tuple[list[Case], int]:
    """The smallest draws that a GPU is asked in an exam, from a stream that is no secret, and how many are left out.

    Raises:
        UsageError: there are none.
    """
    stream = Stream.from_salt(b"", contract.name, "sanitize")
    recipes = sorted(_recipes(contract, stream), key=lambda recipe: _elements(contract, recipe.axes))
    small = [recipe for recipe in recipes if _elements(contract, recipe.axes) < HOST_ELEMENTS][:CASES]
    if not small:
        few = f"fewer than {HOST_ELEMENTS:,} elements"
        raise UsageError(f"{contract.name} asks nothing of {few} on a GPU: all of it is too large to be watched")
    static = stream.child("static")
    cases = [make_case(contract, recipe, stream.child("case", n), static=static) for n, recipe in enumerate(small)]
    return cases, len(recipes) - len(small)


def _recipes(contract: Contract, stream: Stream) -> Iterator[Recipe]:
    regimes = list(contract.regimes)
    for number, workload in enumerate(w for w in contract.workloads if "cuda" in w.device):
        yield cell_recipe(contract, workload, regimes[number % len(regimes)])
    yield from (probe_recipe(contract, probe) for probe in contract.probes if "cuda" in probe.device)
    yield from hidden_recipes(contract, "cuda", stream.child("hidden"))


def _elements(contract: Contract, axes: Sizes) -> int:
    shapes = [contract.shape(spec, axes) for spec in contract.inputs.values() if isinstance(spec, TensorInput)]
    shapes += [contract.shape(spec, axes) for spec in contract.outputs.values()]
    return sum(prod(shape) for shape in shapes)


def packed(contract: Contract, cases: Sequence[Case]) -> tuple[list[Asked], bytes]:
    """What `run` is called with in each case, and the bytes of all inputs, one after the other."""
    asked: list[Asked] = []
    data = bytearray()
    for case in cases:
        arguments: list[Place | float | int | None] = []
        for name, spec in contract.inputs.items():
            value = case.inputs[name]
            if isinstance(value, np.ndarray):
                data += bytes(-len(data) % _ALIGNED)
                arguments.append(Place(shape=list(value.shape), dtype=spec.dtype, offset=len(data)))
                data += value.tobytes()
            else:
                assert value is None or isinstance(value, float | int)  # noqa: S101 - drawn on the host
                arguments.append(value)
        for output in contract.outputs.values():
            shape = list(contract.shape(output, case.axes))
            arguments.append(Place(shape=shape, dtype=output.dtype, offset=None))
        asked.append(Asked(name=case.where, arguments=arguments))
    return asked, bytes(data)


@dataclass(frozen=True, slots=True)
class Watcher:
    """What is watched, and where; `gpu` has the sanitizer's folder."""

    source: str
    asked: list[Asked]
    inputs: bytes
    gpu: GpuAccess
    packages: frozenset[str]
    seconds: int
    device: Device = "cuda"

    def watch(self, tool: Tool) -> Watching:
        """What one tool says, in a sandbox in which nothing else has run.

        Raises:
            InfrastructureError: the sandbox did not come up.
        """
        begun = time.monotonic()
        ours, theirs = cpus.split()
        source, inputs = self.source.encode() or b"\n", self.inputs or b"\0"
        task = Watch(
            tool=tool,
            sanitizer=SANITIZER,
            device=self.device,
            seconds=self.seconds,
            size=len(source),
            room=len(inputs),
            cases=self.asked,
        )
        with (
            Room("bubblewrap", WATCHER, theirs | ours, self.packages, limits=GPU_LIMITS, gpu=self.gpu) as room,
            lent(source) as first,
            lent(inputs) as second,
        ):
            try:
                said = room.ask(task, [first, second], self.seconds + _GRACE_SECONDS)
            except FailedError as error:
                said = Watched(report="", printed=f"the watched process {error}"[:TEXT_LIMIT], status=_LOST)
        if not isinstance(said, Watched):
            said = Watched(report="", printed="answered something that was not asked", status=_LOST)
        return watching(tool, said, time.monotonic() - begun)


def watching(tool: Tool, said: Watched, seconds: float) -> Watching:
    """What came of one tool, from what its sandbox says."""
    report = read_report(said.report)
    outcome = outcome_of(report, said.status)
    printed = [line[:LINE] for line in said.printed.splitlines() if line.strip()]
    lines = report.lines if outcome in {"clean", "errors"} else [*report.lines[:_FEW], *printed[-_FEW:]]
    return Watching(tool=tool, outcome=outcome, errors=report.errors or 0, lines=lines, seconds=seconds)


def sanitize(order: Sanitation, loaded: LoadedContract) -> Sanitized:
    """Watch a candidate with every tool that is asked for.

    Raises:
        UsageError: the contract has no case that is small enough.
        InfrastructureError: no GPU, no compute-sanitizer, or no sandbox.
    """
    gpu = replace(gpu_access(), sanitizer=find_sanitizer())
    cases, left_out = small_cases(loaded.contract)
    asked, inputs = packed(loaded.contract, cases)
    packages = frozenset(loaded.contract.may_use)
    watcher = Watcher(order.source, asked, inputs, gpu, packages, order.seconds)
    with turn_on("cuda", _say):
        watched = [watcher.watch(tool) for tool in order.tools]
    return Sanitized(cases=[case.name for case in asked], left_out=left_out, watched=watched)


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


def main() -> int:
    """Watch; 0 when the tools were started, whatever they found, 2 when they could not be."""

    def work(order: Sanitation) -> Sanitized:
        return sanitize(order, load_contract(Path(order.contracts_dir), order.contract))

    return obey(Sanitation, work, "sanitation")


if __name__ == "__main__":
    sys.exit(main())
