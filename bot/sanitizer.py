"""What `proctor sanitize` asks of the verifier, and what it is told: wire types. No part of an evaluation.

compute-sanitizer watches a kernel's accesses to memory. Its reports help whoever writes the kernel; they come through
the candidate's process, so nothing is decided by them.
"""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from bot.contract.distribution import Frozen
from bot.evaluation import Broken

Tool = Literal["memcheck", "racecheck", "initcheck", "synccheck"]
"""memcheck: accesses out of bounds or misaligned. racecheck: hazards in shared memory. initcheck: reads of device
memory that nobody wrote. synccheck: barriers used wrongly."""
Outcome = Literal["clean", "errors", "raised", "timed_out", "died"]
"""clean: all calls came back, and the tool saw nothing. errors: it did. raised: the kernel raised an exception.
timed_out: ended after the time it had. died: tool or process ended without a summary, so nothing is known."""


class Sanitation(Frozen):
    """Which kernel to watch with which tools, each for at most so many seconds. Never carries a secret."""

    contracts_dir: str
    contract: str
    source: str
    tools: Annotated[list[Tool], Field(min_length=1)]
    seconds: Annotated[int, Field(ge=1, le=3600)] = 300


class Watching(Frozen):
    """What came of one tool. `errors`: how many it counted; `lines`: the first of its report, or the last that were
    printed where it has none."""

    tool: Tool
    outcome: Outcome
    errors: Annotated[int, Field(ge=0)]
    lines: list[str] = []
    seconds: Annotated[float, Field(ge=0)]


class Sanitized(Frozen):
    """The last line. `cases`: what the kernel was asked, by name; `left_out`: how many others were too large."""

    kind: Literal["sanitized"] = "sanitized"
    cases: list[str]
    left_out: Annotated[int, Field(ge=0)]
    watched: list[Watching]


Line = Annotated[Sanitized | Broken, Field(discriminator="kind")]
LINES: TypeAdapter[Line] = TypeAdapter(Line)
