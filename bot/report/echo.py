"""What the bot understood of a request, before anything is spent on it. Pure; most words stand in templates/."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from bot.contract.interchange.draft import suggested_name
from bot.contract.interchange.flashinfer_bench import Definition, Spec


@dataclass(frozen=True, slots=True)
class Understood:
    """A request as the bot will carry it out. Texts of the requester's are shown as code.

    `incumbents`: the kernels that are merged for this device, by what each is merged for. `target`: what the newest
    exam ran on; only of such are `headroom` and what an exam takes. `headroom`: best known time over the floor, by
    `best` over so many cells, on that day; None where nothing measured it. Times in seconds; medians of `exams` and
    `agents` earlier runs. `definition`: name of the one attached; `differences`: what of it the contract leaves out.
    """

    contract: str
    version: int
    contract_digest: str
    request_digest: str
    start: Literal["incumbent", "reference", "attached"]
    incumbents: Mapping[str, str]
    anchors: Sequence[str]
    workloads: int
    cells: int
    device: str
    target: str
    runners: int
    hardware: str
    rules: Sequence[str]
    criteria: str
    share: float | None
    hidden: Sequence[str]
    turns: int
    tokens: int
    seconds: float
    headroom: float | None
    best: str | None
    headroom_cells: int
    measured_at: str
    exam_seconds: float | None
    exams: int
    agent_seconds: float | None
    agent_tokens: float | None
    agents: int
    definition: str | None = None
    definition_digest: str = ""
    differences: Sequence[str] = ()


def render_echo(understood: Understood) -> str:
    """The table of what was understood, in Markdown, with what was hidden folded below it."""
    from bot.report import templates  # noqa: PLC0415 - jinja2 takes a tenth of the time in which a gate starts

    return re.sub(r"\n{3,}", "\n\n", templates.render("echo.md.j2", it=understood)).strip()


def render_definition(definition: Definition) -> str:
    """What was understood of a definition, what a contract needs beyond it, and the command that begins one."""
    from bot.report import templates  # noqa: PLC0415 - as above

    sizes = {name: definition.size(name) for name in definition.axes}
    parts = [
        ("axes", [f"{name} varies" if size is None else f"{name} = {size}" for name, size in sizes.items()]),
        ("inputs", [_told(name, spec) for name, spec in definition.inputs.items()]),
        ("outputs", [_told(name, spec) for name, spec in definition.outputs.items()]),
    ]
    table = templates.render("definition.md.j2", it=definition, parts=parts)
    command = f"proctor contract import definition.json --name {suggested_name(definition)}"
    return f"{table.strip()}\n\n```\n{command}\n```"


def _told(name: str, spec: Spec) -> str:
    form = "by value" if spec.shape is None else f"[{', '.join(spec.shape)}]"
    return f"{name}: {spec.dtype} {form}{', may be absent' if spec.optional else ''}"
