"""The verifier's program that compiles a candidate without a GPU and reads its machine code: one Inspection on standard
input, one JSON line out. Three processes: the builder's sandbox, in which foreign code runs and which only yields
binaries; the reader's, in which they are taken apart; and this one, which believes bounded JSON of the second alone.

Which binaries there are is the candidate's to say all the same: what counts in an exam is measured, never declared.
"""

import hashlib
import importlib.util
import mmap
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bot.contract.load import LoadedContract, load_contract
from bot.contract.schema import Contract, ScalarInput, TensorInput, Workload
from bot.errors import InfrastructureError
from bot.evaluation import Architecture, Build, Inspected, Inspection
from bot.verify import cpus
from bot.verify.artefacts import (
    BUILDER,
    NUMBERS,
    READER,
    ROOM,
    Argument,
    Compile,
    Compiled,
    Declarations,
    Declared,
    Kernels,
    Read,
)
from bot.verify.program import obey
from bot.verify.protocol import TEXT_LIMIT
from bot.verify.resources import exceeded, read_resources
from bot.verify.room import FailedError, Room, lent

BUILD_SECONDS = 180.0
READ_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class _Binary:
    """One cubin, and by kernel the shared memory its launch adds, as the builder says."""

    data: bytes
    dynamic_shared: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Made:
    """What one build left; `note`: why `run` stopped after some launches, or that there were too many binaries."""

    binaries: list[_Binary]
    note: str


def inspect(order: Inspection, loaded: LoadedContract) -> Inspected:
    """Compile a candidate and read what came of it, in two sandboxes of its own.

    Raises:
        InfrastructureError: a sandbox cannot be put up, or NVIDIA's programs are missing.
    """
    tools = find_tools()
    ours, theirs = cpus.split()
    usable = frozenset(loaded.contract.may_use)
    with Room(order.sandbox, BUILDER, theirs, usable) as builder, Room(order.sandbox, READER, ours) as reader:
        return examine(order, loaded.contract, builder, reader, tools)


def examine(order: Inspection, contract: Contract, builder: Room, reader: Room, tools: str) -> Inspected:
    """Compile for each architecture, twice by default, read what came of it, and hold it against what is declared.

    Raises:
        InfrastructureError: a sandbox did not come up.
    """
    started = time.monotonic()
    workload = _anchor(contract)
    look = _Look(order.source.encode() or b"\n", _arguments(contract, workload), builder, reader, tools)
    read = read_resources(look.declared())
    resources = {} if isinstance(read, list) else read
    refusals = [f"{problem.path}: {problem.reason}" for problem in read] if isinstance(read, list) else []
    for architecture in order.architectures:
        try:
            look.compile(architecture, twice=order.twice)
        except FailedError as error:
            refusals.append(f"{architecture}: {error}")
    return Inspected(
        workload=workload.name,
        builds=look.builds,
        declares=bool(read),
        twice=order.twice,
        refusals=[*refusals, *exceeded(resources, look.builds)],
        differences=look.differences,
        notes=look.notes,
        seconds=time.monotonic() - started,
    )


class _Look:
    """One candidate's builds, as they come."""

    def __init__(
        self, source: bytes, arguments: list[Argument | float | int | None], builder: Room, reader: Room, tools: str
    ) -> None:
        self._source, self._arguments = source, arguments
        self._builder, self._reader, self._tools = builder, reader, tools
        self.builds: list[Build] = []
        self.differences: list[str] = []
        self.notes: list[str] = []

    def declared(self) -> Declared:
        """What the file declares."""
        try:
            with lent(self._source) as fd:
                claim = self._reader.ask(Declarations(size=len(self._source)), [fd], READ_SECONDS)
        except FailedError as error:
            return Declared(wrong=f"cannot be found: {error}"[:TEXT_LIMIT])
        return claim if isinstance(claim, Declared) else Declared(wrong="cannot be found")

    def compile(self, architecture: Architecture, *, twice: bool) -> None:
        """One or two builds for one architecture; the first one's kernels are kept.

        Raises:
            FailedError: it does not compile, or there is nothing to compile.
        """
        first = self._build(architecture)
        if first.note:
            self.notes.append(f"{architecture}: {first.note}")
        kernels = self._read(first.binaries, architecture)
        self.builds += kernels
        if not twice:
            return
        second = self._build(architecture)
        if [b.data for b in first.binaries] != [b.data for b in second.binaries]:
            self.differences += _differences(kernels, self._read(second.binaries, architecture), architecture)

    def _build(self, architecture: Architecture) -> _Made:
        with lent(self._source) as source, lent(b"", ROOM) as room:
            task = Compile(
                architecture=architecture,
                size=len(self._source),
                room=ROOM,
                arguments=self._arguments,
            )
            claim = self._builder.ask(task, [source, room], BUILD_SECONDS)
            if not isinstance(claim, Compiled):
                raise FailedError("answered something that was not asked")
            if claim.broken:
                raise FailedError(f"does not compile: {claim.stopped}")
            if not claim.binaries:
                raise FailedError("nothing compiled" + (f": {claim.stopped}" if claim.stopped else ""))
            with mmap.mmap(room, ROOM, prot=mmap.PROT_READ) as memory:
                place, binaries = 0, []
                for kept in claim.binaries:
                    binaries.append(_Binary(memory[place : place + kept.size], kept.dynamic_shared))
                    place += kept.size
        note = f"run stopped after {len(binaries)} binaries: {claim.stopped}" if claim.stopped else ""
        return _Made(binaries, note or (f"{claim.left_out} binaries were left out" if claim.left_out else ""))

    def _read(self, binaries: Sequence[_Binary], architecture: Architecture) -> list[Build]:
        builds: list[Build] = []
        for binary in binaries:
            with lent(binary.data or b"\0") as fd:
                claim = self._reader.ask(Read(size=max(len(binary.data), 1), tools=self._tools), [fd], READ_SECONDS)
            if not isinstance(claim, Kernels) or not claim.kernels:
                raise FailedError("one of its binaries holds no kernel")
            digest = hashlib.sha256(binary.data).hexdigest()
            for kernel in claim.kernels:
                figures = kernel.model_dump()
                figures["shared_bytes"] += binary.dynamic_shared.get(kernel.name, 0)
                name = figures.pop("name")
                builds.append(Build(kernel=name, architecture=architecture, cubin_sha256=digest, **figures))
        return builds


def _differences(first: Sequence[Build], second: Sequence[Build], architecture: Architecture) -> Iterator[str]:
    """Where two builds of the same source are not the same."""
    if [b.kernel for b in first] != [b.kernel for b in second]:
        yield f"{architecture}: {len(first)} kernels, then {len(second)}: other ones, or in another order"
        return
    for one, other in zip(first, second, strict=True):
        if one != other:
            before, after = one.model_dump(), other.model_dump()
            changed = [key for key in before if before[key] != after[key] and key != "cubin_sha256"]
            figures = ", ".join(f"{key} {before[key]} and {after[key]}" for key in changed)
            yield f"{architecture}: {one.kernel}: {figures or 'the same figures, other bytes'}"


def _anchor(contract: Contract) -> Workload:
    """The anchor for a GPU; of a contract without one, that for a CPU."""
    on_gpu = any("cuda" in workload.device for workload in contract.workloads)
    return contract.anchor("cuda" if on_gpu else "cpu")


def _arguments(contract: Contract, workload: Workload) -> list[Argument | float | int | None]:
    """What `run` gets: tensors of the workload's shapes, all optional ones, numbers as the contract sets them."""
    arguments: list[Argument | float | int | None] = []
    for spec in contract.inputs.values():
        if isinstance(spec, ScalarInput):
            arguments.append(int(spec.value) if spec.dtype == "int" else spec.value)
            continue
        numbers = _offsets(spec, contract, workload)
        arguments.append(Argument(shape=list(contract.shape(spec, workload.axes)), dtype=spec.dtype, numbers=numbers))
    outputs = [Argument(shape=list(contract.shape(o, workload.axes)), dtype=o.dtype) for o in contract.outputs.values()]
    return [*arguments, *outputs]


def _offsets(spec: TensorInput, contract: Contract, workload: Workload) -> list[int] | None:
    """Values of an input that a kernel may have to look at before it can launch."""
    if spec.offsets_of is None:
        return None
    lengths = contract.sizes(workload.axes)[spec.offsets_of]
    sums = [0]
    for length in lengths if isinstance(lengths, list) else [lengths]:
        sums.append(sums[-1] + length)
    return sums if len(sums) <= NUMBERS else None


def find_tools() -> str:
    """The folder of cuobjdump and nvdisasm, which the triton wheel carries.

    Raises:
        InfrastructureError: they are not there.
    """
    found = importlib.util.find_spec("triton")
    for place in found.submodule_search_locations or [] if found is not None else []:
        # As a sandbox sees it, which knows no links on the way.
        folder = Path(place).resolve() / "backends" / "nvidia" / "bin"
        if (folder / "cuobjdump").exists() and (folder / "nvdisasm").exists():
            return str(folder)
    raise InfrastructureError("machine code cannot be read here: cuobjdump and nvdisasm are missing; install triton")


def main() -> int:
    """Inspect; 0 when something was found, refused or not, 2 when nothing could be."""

    def work(order: Inspection) -> Inspected:
        return inspect(order, load_contract(Path(order.contracts_dir), order.contract))

    return obey(Inspection, work, "inspection")


if __name__ == "__main__":
    sys.exit(main())
