"""What a kernel file says it needs, `RESOURCES = {"sm_90a": {"registers": 168, "spills": 0, …}}`, held against its
machine code: a kernel beyond what it declares is refused before any launch. Pure.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from bot.contract.distribution import Frozen
from bot.contract.mistakes import mistakes_of
from bot.errors import Problem
from bot.evaluation import Architecture, Build
from bot.verify.artefacts import Declared
from bot.verify.protocol import parse

Instruction = Literal["wgmma", "tcgen05", "mma", "tma"]
Bytes = Annotated[int, Field(ge=0)]


class Needs(Frozen):
    """What every kernel of a file keeps to on one architecture: at most so many registers a thread, bytes of spills and
    of shared memory a block. `instructions`: kinds that some kernel of it must have."""

    registers: Annotated[int, Field(ge=0, le=255)] | None = None
    spills: Bytes | None = None
    shared_bytes: Bytes | None = None
    instructions: list[Instruction] = []


Resources = dict[Architecture, Needs]
_RESOURCES: TypeAdapter[Resources] = TypeAdapter(Resources)


def read_resources(declared: Declared) -> Resources | list[Problem]:
    """What was declared, nothing when nothing was; or all that is wrong with it, with paths."""
    if declared.wrong:
        return [Problem("RESOURCES", declared.wrong)]
    if not declared.document:
        return {}
    try:
        # Re-read from JSON, in which a key is a string; strict validation of Python objects would know other types.
        return _RESOURCES.validate_json(declared.document)
    except ValidationError as error:
        found = mistakes_of(error, parse(declared.document.encode()))
        return [Problem(_path(mistake.problem().path), mistake.reason) for mistake in found]


def _path(path: str) -> str:
    return f"RESOURCES.{path}" if path else "RESOURCES"


def exceeded(resources: Resources, builds: Sequence[Build]) -> Iterator[str]:
    """Each way in which machine code is not what was declared for its architecture."""
    for architecture, needs in resources.items():
        here = [build for build in builds if build.architecture == architecture]
        for build in here:
            for what, limit, found in (
                ("registers", needs.registers, build.registers),
                ("bytes of spills", needs.spills, build.spill_bytes),
                ("bytes of shared memory", needs.shared_bytes, build.shared_bytes),
            ):
                if limit is not None and found > limit:
                    yield f"{architecture}: {build.kernel} takes {found} {what}, and declares at most {limit}"
        for kind in needs.instructions if here else []:
            if not any(build.instructions.get(kind) for build in here):
                yield f"{architecture}: declares {kind}, and no kernel has such an instruction"
