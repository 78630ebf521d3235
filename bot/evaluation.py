"""The facts of one exam, and the order that asked for it. The verifier writes an `Evaluation`; policy, reports and
people read it. Every figure in a report is computed from what stands here; times are integers in nanoseconds.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, model_validator

from bot import digest
from bot.contract.distribution import Frozen
from bot.contract.schema import Device, Role

Nanoseconds = Annotated[int, Field(ge=0, le=2**53)]
"""A duration; above 2**53 a JSON number is not exact, and RFC 8785 has no canonical form for it."""

Mode = Literal["quick", "full", "exam", "confirm", "claim"]
"""quick: is it right so far, for the agent's loop. full: all but controls. exam: everything, for the record.
confirm: what an exam holds once more with a new salt, without controls and clean runs; never asked for by itself.
claim: times a refused candidate once, judging nothing, so that a report can show what was claimed."""

StageName = Literal[
    "build", "smoke", "correctness", "probes", "influence", "relations", "integrity", "timing", "controls"
]
STAGES: tuple[StageName, ...] = (
    "build",
    "smoke",
    "correctness",
    "probes",
    "influence",
    "relations",
    "integrity",
    "timing",
    "controls",
)

RefusalKind = Literal["incorrect", "tampered", "build_failed", "timed_out"]


class BaselineSource(Frozen):
    """A baseline that the base commit names besides the contract's own: an incumbent."""

    name: str
    role: Role
    source: str


SHARDS = 16
"""Runners over which one exam may be spread."""


class Shard(Frozen):
    """One of `of` parts of an exam, from 1. Each holds all of the exam but the cells of the other parts' workloads."""

    number: Annotated[int, Field(ge=1, le=SHARDS)]
    of: Annotated[int, Field(ge=1, le=SHARDS)]

    @model_validator(mode="after")
    def _is_one_of_them(self) -> "Shard":
        if self.number > self.of:
            raise ValueError(f"there is no shard {self.number} of {self.of}")
        return self


class Job(Frozen):
    """What the control plane asks of the verifier. Never carries a secret.

    `keep`: a folder in which to leave the tensors of a counterexample, for a bundle. `workload`: examine the cells of
    this one alone. `rounds`: pairs of workers that time each cell, instead of the mode's own number. `incumbents`: the
    kernels merged for this contract, by what they are merged for (`Environment.target`): the verifier, who knows the
    device, takes that of the device.
    """

    contracts_dir: str
    contract: str
    candidate_name: str
    source: str
    mode: Mode
    device: Device = "cpu"
    sandbox: Literal["bubblewrap", "none"] = "bubblewrap"
    incumbents: dict[str, BaselineSource] = {}
    keep: str | None = None
    workload: str | None = None
    shard: Shard | None = None
    rounds: Annotated[int, Field(ge=2, le=64)] | None = None


Statistic = Literal["median", "p99", "maximum", "class", "bar", "leak", "relation", "set"]


class Preparation(Frozen):
    """For which jobs a resident verifier is to be ready."""

    contracts_dir: str
    contract: str
    device: Device = "cpu"
    sandbox: Literal["bubblewrap", "none"] = "bubblewrap"


class Counterexample(Frozen):
    """The worst element of the comparison that refused a candidate.

    `where`: cell, probe or hidden draw; `statistic`: median, p99, maximum, or class (finite, inf, NaN); bar, leak and
    relation compare with another answer instead, whose value `oracle` then holds: the bar's, the candidate's own before
    an input was changed that must not matter, its own to the same question put otherwise. set: an element that does not
    belong to a set. `error_units` and `limit_units` in noise units; `index` into the output.
    """

    where: str
    axes: dict[str, int | list[int]]
    output: str
    group: str
    statistic: Statistic
    error_units: float | None
    limit_units: float | None
    index: list[int]
    candidate: str
    oracle: str


class FailedProbe(Frozen):
    """A probe the refused candidate fails too, and the shortcut that probe is made to break.

    `margin`: error over limit; None when it did not answer or a value class differs.
    """

    name: str
    breaks: str
    margin: float | None = None


class Smallest(Frozen):
    """The smallest input found that the candidate still gets wrong: sizes shrunk, then values made plain.

    `inputs`: what each tensor holds now: as drawn, zeros, ones, absent. `tried`: how many smaller ones were asked.
    """

    counterexample: Counterexample
    inputs: dict[str, Literal["as drawn", "zeros", "ones", "absent"]]
    tried: Annotated[int, Field(ge=0)]


class Influence(Frozen):
    """How the candidate answers to one input: a picture of eight parts of it (rows) by eight parts of each output, the
    outputs side by side, for a change in one part at a time.

    `axis`: what is cut into equal parts: `tokens` of each sequence, or an axis by name. `shares`: the candidate's
    change along the oracle's, over the oracle's own; 1: as it must be, 0: not read; None: the oracle does not answer
    either. `leaks`: whether something changed that must not.
    """

    input: str
    axis: str
    outputs: list[str]
    shares: list[list[float | None]]
    leaks: list[list[bool]]


class Refusal(Frozen):
    """Why a candidate is refused: the first fact that decided it. `check`: which planned draw showed it, by number;
    `call`: which timed call of a cell did (`round/call`), or which relation.

    The rest is for people, found afterwards, and decides nothing: `diagnosis`, `smallest`, and `influence` of the
    inputs on a draw of the cell named in `influence_where`.
    """

    kind: RefusalKind
    stage: StageName
    where: str
    reason: str
    counterexample: Counterexample | None = None
    check: int | None = None
    call: str = ""
    diagnosis: list[FailedProbe] = []
    smallest: Smallest | None = None
    influence: list[Influence] = []
    influence_where: str = ""


class StageRecord(Frozen):
    """What a stage did. `planned` was fixed before candidate code loaded; `done` are checks with positive evidence."""

    name: StageName
    status: Literal["passed", "refused", "not_run", "invalid"]
    planned: Annotated[int, Field(ge=0)]
    done: Annotated[int, Field(ge=0)]
    seconds: Annotated[float, Field(ge=0)]
    note: str = ""


Work = Literal["start", "compile", "draw", "oracle", "check", "time"]


class Latency(Frozen):
    """Seconds of an exam by kind of work: workers that come up; kernels taken in, with their first calls (on a GPU of
    each size, in which they are compiled); inputs drawn; expected values; other calls and what their answers are held
    against, those of controls too; timed calls. What is left of the exam's seconds is the verifier's bookkeeping."""

    start: Annotated[float, Field(ge=0)] = 0.0
    compile: Annotated[float, Field(ge=0)] = 0.0
    draw: Annotated[float, Field(ge=0)] = 0.0
    oracle: Annotated[float, Field(ge=0)] = 0.0
    check: Annotated[float, Field(ge=0)] = 0.0
    time: Annotated[float, Field(ge=0)] = 0.0


Architecture = Literal["sm_90a", "sm_100a"]
ARCHITECTURES: tuple[Architecture, ...] = ("sm_90a", "sm_100a")


class Build(Frozen):
    """One GPU kernel of a candidate as compiled for one architecture, read from its machine code; nothing has run.

    `registers` and `stack_bytes` per thread; `spill_bytes`: what its instructions store in local memory, added up as
    ptxas does (of four builds three to the byte, one 8 % more: what a call saves is in it, and any array there would
    be); `shared_bytes` per block, what a launch adds included. `instructions`: how many of a kind stand in the code:
    `wgmma`, `tcgen05`, `mma`, `tma`, loads and stores by their bits (`ldg.128`, `stg.128`), and those of local memory
    (`ldl.32`, `stl.32`).
    """

    kernel: Annotated[str, Field(max_length=200)]
    architecture: Architecture
    registers: Annotated[int, Field(ge=0)]
    spill_bytes: Annotated[int, Field(ge=0)]
    stack_bytes: Annotated[int, Field(ge=0)]
    shared_bytes: Annotated[int, Field(ge=0)]
    instructions: dict[str, int]
    cubin_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Inspection(Frozen):
    """What the control plane asks of a look at a candidate's machine code. Never carries a secret. `twice`: build it
    again, to see whether two builds of the same source are alike."""

    contracts_dir: str
    contract: str
    candidate_name: str
    source: str
    architectures: Annotated[list[Architecture], Field(min_length=1)]
    twice: bool = True
    sandbox: Literal["bubblewrap", "none"] = "bubblewrap"


class Round(Frozen):
    """One pair of fresh workers: interleaved times of candidate and baseline on the same inputs, call by call."""

    first: Literal["candidate", "baseline"]
    candidate_ns: list[Nanoseconds]
    baseline_ns: list[Nanoseconds]


class BaselineTime(Frozen):
    """A baseline's clean time in one cell, alone in its own worker before candidate code was loaded."""

    baseline: str
    clean_ns: list[Nanoseconds]


class Cell(Frozen):
    """Times of one scored cell. `bar` names the baseline it was interleaved with.

    `state`: `resolved`, `unresolved` (the clock cannot tell), or `invalid` with the reason in `note`.
    `claimed_ns`, `baseline_claimed_ns`: what the candidate's and the bar's process say of the same calls, on a GPU by
    its events; shown, never believed. `overhead_ns`: the least time that a call which does nothing takes on our clock;
    it is in every time here. `floor_ns` is the longer of `moving_ns` and `computing_ns`, the least times for its bytes
    and its operations; only operations go with the clock. `host_bound`: on a GPU, whose calls needed their process in
    their midst, so that its waking and its launches are in their times. `clocks_mhz`: its SM clock after each round.
    `replay_ns`, `baseline_replay_ns`: of a launch-bound cell, a call as a replayed graph, as their processes say.
    """

    workload: str
    regime: str
    bar: str
    rounds: list[Round]
    baselines: list[BaselineTime]
    claimed_ns: list[Nanoseconds] = []
    baseline_claimed_ns: list[Nanoseconds] = []
    floor_ns: Nanoseconds | None = None
    moving_ns: Nanoseconds | None = None
    computing_ns: Nanoseconds | None = None
    overhead_ns: Nanoseconds = 0
    host_bound: list[Literal["candidate", "baseline"]] = []
    clocks_mhz: list[Annotated[int, Field(ge=0)]] = []
    replay_ns: Nanoseconds | None = None
    baseline_replay_ns: Nanoseconds | None = None
    state: Literal["resolved", "unresolved", "invalid"] = "resolved"
    note: str = ""

    @property
    def name(self) -> str:
        """`workload/regime`."""
        return f"{self.workload}/{self.regime}"


class BaselineState(Frozen):
    """A baseline of this exam: whether it was there, right on all scored cells, and less accurate than honest."""

    name: str
    role: Role
    state: Literal["available", "unavailable", "incorrect"]
    less_accurate: bool = False
    note: str = ""


class Accuracy(Frozen):
    """Error against float64 in noise units, worst over the scored cells, of one output of one kernel.

    `octaves`: median error by token position: the first 16 tokens, 16–32, 32–64, …; empty when the output has no
    token axis.
    """

    kernel: str
    output: str
    median: float
    p99: float
    maximum: float
    worst_group: str
    relative_l2: float
    octaves: list[float] = []
    limit_median: float
    limit_p99: float
    limit_maximum: float


MUST_SEE = 0.5
"""A control must miss a limit three times over (contract check), so that half of its error is still refused."""


class ControlResult(Frozen):
    """One kernel whose answer is known. `margin`: error over limit where it was refused, or at its worst point.

    `variant`: how a control hides (gated) or how mild it is (graded); empty for the plain ones. `severity`: the share
    of a graded control's error that is left in it.
    """

    file: str
    variant: str = ""
    severity: float | None = None
    refused: bool
    where: str
    margin: float | None


class Grade(Frozen):
    """How the exam did against kernels whose answer is known.

    `variants`: a secret share of the controls' gated and graded forms. A graded one is the milder the smaller its
    severity, and mild enough an honest kernel: what counts is `severity`, from which on all were caught.
    """

    controls: list[ControlResult]
    faithful: list[ControlResult]
    variants: list[ControlResult] = []

    @property
    def survivors(self) -> list[str]:
        """Controls that passed, plain or gated, and graded ones from half the error on: by a control's margin of 3
        they must be seen."""
        return [
            f"{c.file} ({c.variant})" if c.variant else c.file
            for c in [*self.controls, *self.variants]
            if not c.refused and (c.severity is None or c.severity >= MUST_SEE)
        ]

    @property
    def refused_faithful(self) -> list[str]:
        """Honest variants that were refused."""
        return [c.file for c in self.faithful if c.refused]

    @property
    def severity(self) -> float | None:
        """The least severity from which on every graded control of this exam was caught; None without any."""
        graded = sorted((c.severity, c.refused) for c in self.variants if c.severity is not None)
        caught: float | None = None
        for severity, refused in reversed(graded):
            if not refused:
                break
            caught = severity
        return caught


class GpuState(Frozen):
    """A GPU at one moment. `throttled`: what holds its clock back; `foreign_processes`: that use it beside us."""

    sm_mhz: Annotated[int, Field(ge=0)]
    memory_mhz: Annotated[int, Field(ge=0)] | None = None
    celsius: Annotated[int, Field(ge=0)]
    throttled: list[str]
    foreign_processes: Annotated[int, Field(ge=0)]


class Gpu(Frozen):
    """The device the times belong to: ceilings as measured on it (bytes read plus written, bf16 matrix operations), the
    SM clock at which they were, and its state before and after the timed calls."""

    capability: str
    driver: str
    cuda: str
    memory_bytes: Annotated[int, Field(gt=0)]
    cache_bytes: Annotated[int, Field(gt=0)]
    bytes_per_second: Annotated[float, Field(gt=0)]
    operations_per_second: Annotated[float, Field(gt=0)]
    ceilings_sm_mhz: Annotated[int, Field(gt=0)] | None = None
    before: GpuState | None = None
    after: GpuState | None = None


class Environment(Frozen):
    """The machine and versions the times belong to. `packages`: what a candidate or a baseline may use beside torch."""

    device: str
    architecture: str
    cpus: int
    worker_threads: int
    python: str
    torch: str
    system: str
    sandbox: Literal["bubblewrap", "none"]
    packages: dict[str, str] = {}
    gpu: Gpu | None = None

    @property
    def target(self) -> str:
        """What a kernel is merged for that was examined here: `cpu`, or a GPU's compute capability (`sm_90`)."""
        return self.architecture if self.architecture.startswith("sm_") else "cpu"


class Evaluation(Frozen):
    """All facts of one exam of one candidate.

    `scored_cells`: names (`workload/regime`) that must be timed, fixed before candidate code loaded. `confirmation`:
    the same exam held again with another salt, after this one had refused nothing. `prepared`: its salt was drawn
    before the candidate was there, as a resident verifier does for `quick` alone. `workload`: the only one whose cells
    were asked for. `shard`: which part of an exam this is; of joined parts (bot/merge.py) commitments and salts stand
    in their order, with a `+` between them.
    """

    schema_version: Literal[1] = 1
    contract: str
    contract_version: int
    contract_digest: str
    judge_digest: str
    candidate_name: str
    candidate_digest: str
    mode: Mode
    started_at: str
    seconds: float
    salt_commitment: str
    salt: str
    environment: Environment
    stages: list[StageRecord]
    refusal: Refusal | None = None
    scored_cells: list[str] = []
    cells: list[Cell] = []
    baselines: list[BaselineState] = []
    accuracy: list[Accuracy] = []
    grade: Grade | None = None
    checked_timed_calls: int = 0
    infrastructure: str = ""
    prepared: bool = False
    workload: str | None = None
    shard: Shard | None = None
    latency: Latency | None = None
    machine_code: "Inspected | None" = None
    confirmation: "Evaluation | None" = None

    @property
    def runs(self) -> "list[Evaluation]":
        """This exam and the one that confirmed it, each with facts of its own."""
        alone = self.model_copy(update={"confirmation": None})
        return [alone, self.confirmation] if self.confirmation else [alone]

    def digest(self) -> str:
        """SHA-256 of the canonical JSON of these facts."""
        return digest.of_document(_told(self.model_dump(mode="json")))


_ADDED = frozenset(
    {
        "workload",
        "shard",
        "host_bound",
        "packages",
        "latency",
        "machine_code",
        "baseline_claimed_ns",
        "memory_mhz",
        "ceilings_sm_mhz",
        "clocks_mhz",
        "replay_ns",
        "baseline_replay_ns",
        "moving_ns",
        "computing_ns",
    }
)
"""Fields that evaluations of before do not have: saying nothing, they do not change a digest that reports print."""


def _told(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _told(v) for k, v in value.items() if k not in _ADDED or v not in (None, [], {})}
    return [_told(item) for item in value] if isinstance(value, list) else value


class Attempt(Frozen):
    """A candidate on the way: the quick evaluation it got and, if refused, one round of what it claimed."""

    number: Annotated[int, Field(ge=1)]
    evaluation: Evaluation
    claim: Evaluation | None = None


class AgentRun(Frozen):
    """How a candidate came to be: for reports; decides nothing. `stopped` is the loop's reason for ending."""

    model: str
    turns: int
    seconds: float
    input_tokens: int
    output_tokens: int
    stopped: str
    submitted: bool
    attempts: list[Attempt]
    feedback_seconds: list[float] = []


class Progress(Frozen):
    """A line for whoever watches: `done` of `total` checks of a stage."""

    kind: Literal["progress"] = "progress"
    stage: StageName
    done: int
    total: int
    text: str = ""


class Commitment(Frozen):
    """SHA-256 of the salt, said before candidate code is loaded."""

    kind: Literal["commitment"] = "commitment"
    sha256: str


class Finished(Frozen):
    """The last line of a verifier that could do its work."""

    kind: Literal["finished"] = "finished"
    evaluation: Evaluation


class Broken(Frozen):
    """The last line of a verifier that could not: ours to mend, or the job was wrong."""

    kind: Literal["broken"] = "broken"
    cause: Literal["usage", "infrastructure"]
    text: str


class Finding(Frozen):
    """One thing of a bundle that was computed again, and whether it came out the same."""

    what: str
    agrees: bool
    detail: str = ""


class Rechecked(Frozen):
    """The last line of a second look at a bundle."""

    kind: Literal["rechecked"] = "rechecked"
    findings: list[Finding]


class Inspected(Frozen):
    """The last line of a look at machine code. `workload`: whose shapes the kernels were compiled for. `declares`: the
    file says what it needs; `refusals`: why it would be refused before any launch. `differences`: where two builds of
    the same source are not the same. `notes`: what a person should know, and no fault."""

    kind: Literal["inspected"] = "inspected"
    workload: str
    builds: list[Build]
    declares: bool = False
    twice: bool = True
    refusals: list[str] = []
    differences: list[str] = []
    notes: list[str] = []
    seconds: Annotated[float, Field(ge=0)]


Message = Annotated[Progress | Commitment | Finished | Rechecked | Inspected | Broken, Field(discriminator="kind")]
MESSAGES: TypeAdapter[Message] = TypeAdapter(Message)
"""The verifier's standard output: one JSON object a line."""
