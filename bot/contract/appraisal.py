"""The order to appraise a contract itself, and what comes of it: wire types between the control plane and the verifier.

A contract is appraised by the program that would exam kernels with it, for only that has the oracle and the sandbox.
"""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from bot.contract.distribution import Frozen
from bot.contract.schema import Device, Limit
from bot.errors import Problem

Task = Literal["check", "calibrate", "sketch", "soak"]


class Order(Frozen):
    """What to do with which contract. `salt`: 64 hexadecimal digits from which everything is drawn; empty picks one."""

    contracts_dir: str
    contract: str
    task: Task
    device: Device = "cpu"
    sandbox: Literal["bubblewrap", "none"] = "bubblewrap"
    draws: Annotated[int, Field(ge=1, le=256)] = 1
    salt: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")] = ""


class Step(Frozen):
    """A line for whoever watches."""

    kind: Literal["step"] = "step"
    done: int
    total: int
    text: str


class Trial(Frozen):
    """A kernel of the contract's own. `margin`: largest error over its limit, None for another class of value."""

    file: str
    where: str
    margin: float | None


class Checked(Frozen):
    """What `check` found. `faithful`: each at its worst; `controls`: each where it is caught best."""

    kind: Literal["checked"] = "checked"
    problems: list[Problem]
    cases: int
    faithful: list[Trial] = []
    controls: list[Trial] = []
    seconds: float
    salt: str


class Worst(Frozen):
    """The largest value of one statistic, in noise units, and where it was met."""

    value: float
    where: str


class Measured(Frozen):
    """Errors of one faithful variant under one limit, `path`: `limits.y`, or a probe's own."""

    path: str
    file: str
    median: Worst
    p99: Worst
    maximum: Worst


class ControlMargin(Frozen):
    """How far a control misses in its best place, in the draw where that is least; None for another class of value."""

    file: str
    current: float | None
    proposed: float | None
    where: str


class Calibrated(Frozen):
    """Measurements of the faithful variants, and the limits they suggest, by path."""

    kind: Literal["calibrated"] = "calibrated"
    problems: list[Problem]
    draws: int
    cases: int
    measured: list[Measured]
    proposed: dict[str, Limit]
    controls: list[ControlMargin]
    seconds: float
    salt: str


class Sketch(Frozen):
    """How one input is distributed in one regime: counts in equal bins from `low` to `high`, the middle 99 %.

    `part`: what of a packed record this is. `whole`: integers. `logarithmic`: the bins are equal in the logarithm.
    `none`: the share of ids that are -1, and `infinite` that of infinities; both are left out of everything else.
    """

    regime: str
    input: str
    part: str = ""
    whole: bool = False
    logarithmic: bool = False
    none: float = 0.0
    infinite: float = 0.0
    minimum: float
    maximum: float
    mean: float
    deviation: float
    low: float
    high: float
    bins: list[int]


class Sketched(Frozen):
    """One draw of the anchor workload in each regime."""

    kind: Literal["sketched"] = "sketched"
    workload: str
    sketches: list[Sketch]


class Missed(Frozen):
    """A control that passed or an honest kernel that was refused, and the salt of the exam it happened in."""

    salt: str
    variant: str
    severity: float | None
    where: str
    margin: float | None


class Tally(Frozen):
    """One kernel of the contract's over many exams. `weakest`: the least margin of a caught control, or the largest
    share of a limit that an accepted honest kernel came to."""

    kernel: str
    kind: str
    asked: int
    refused: int
    weakest: float | None = None
    missed: list[Missed] = []


class Soaked(Frozen):
    """What many exams made of the contract's own kernels: plain, gated and graded controls, and faithful variants.
    Counts of one judge and one contract add up; `salts` has the salt that each run drew its exams' salts from."""

    kind: Literal["soaked"] = "soaked"
    judge_digest: str
    contract_digest: str
    exams: int
    tallies: list[Tally]
    seconds: float
    salts: list[str]


class Broken(Frozen):
    """The contract could not be appraised: ours to mend, or the order was wrong."""

    kind: Literal["broken"] = "broken"
    cause: Literal["usage", "infrastructure"]
    text: str


Result = Checked | Calibrated | Sketched | Soaked
Line = Annotated[Step | Checked | Calibrated | Sketched | Soaked | Broken, Field(discriminator="kind")]
LINES: TypeAdapter[Line] = TypeAdapter(Line)
"""The program's standard output: one JSON object a line, the last a result or what broke."""
