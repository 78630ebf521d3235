"""What the bot understood of a request, before anything is spent on it. Pure; the words stand in templates/."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Understood:
    """A request as the bot will carry it out. Texts of the requester's are shown as code.

    `incumbent`: the kernel that is merged for this device, if there is one. `headroom`: best known time over the floor,
    by `best` over so many cells, on that day; None where nothing measured it. Times in seconds; medians of `exams` and
    `agents` earlier runs.
    """

    contract: str
    version: int
    contract_digest: str
    request_digest: str
    start: Literal["incumbent", "reference", "attached"]
    incumbent: str | None
    anchors: Sequence[str]
    workloads: int
    cells: int
    device: str
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


def render_echo(understood: Understood) -> str:
    """The table of what was understood, in Markdown, with what was hidden folded below it."""
    from bot.report import templates  # noqa: PLC0415 - jinja2 takes a tenth of the time in which a gate starts

    return re.sub(r"\n{3,}", "\n\n", templates.render("echo.md.j2", it=understood)).strip()
