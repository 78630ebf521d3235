"""The fakes of the agent's tests: a model that plays given turns, an examiner that judges by words in the source."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from typing_extensions import override

from bot import digest
from bot.agent.loop import run_agent
from bot.agent.model import Message, Model, ToolCall, ToolSpec, Turn
from bot.agent.task import AgentOutcome, AgentTask, Budget
from bot.contract.schema import Contract
from bot.errors import InfrastructureError, ModelError
from bot.evaluation import (
    STAGES,
    BaselineSource,
    BaselineState,
    BaselineTime,
    Cell,
    Counterexample,
    Environment,
    Evaluation,
    FailedProbe,
    Mode,
    Refusal,
    RefusalKind,
    Round,
    StageName,
    StageRecord,
)

KERNEL = "kernels/toy/torch_toy.py"
SALT = "5a17" * 16
LIMIT = 7.77
HONEST = "def run(x, y): y.copy_(x)\n"
CHEAT = "# incorrect\n"

CONTRACT = Contract.model_validate(
    {
        "name": "toy",
        "version": 3,
        "summary": "Copies x to y.",
        "axes": {
            "L": {"ragged": True, "max_length": 64},
            "T": {"total_of": "L"},
            "N": {"count_of": "L"},
            "H": {"min": 1, "max": 8},
            "D": {"const": 16},
        },
        "inputs": {
            "x": {"shape": ["T", "H", "D"], "dtype": "bfloat16", "doc": "What is copied."},
            "state": {"shape": ["N", "D"], "dtype": "float32", "optional": True},
            "offsets": {"shape": ["N+1"], "dtype": "int64", "offsets_of": "L", "lifetime": "metadata"},
            "scale": {"dtype": "float", "value": 0.5, "low": 0.25, "high": 1.0},
        },
        "outputs": {"y": {"shape": ["T", "H", "D"], "dtype": "bfloat16", "groups": ["H"]}},
        "compute": {"operands": "bfloat16", "accumulate": "float32"},
        "limits": {"y": {"median": LIMIT, "p99": 17.77, "maximum": 27.77, "source": "made up"}},
        "regimes": {"plain": {"doc": "Ordinary values.", "draws": {}}},
        "workloads": [
            {"name": "small", "device": ["cpu"], "axes": {"L": [8, 8], "H": 2}},
            {"name": "huge", "device": ["cuda"], "axes": {"L": [4096], "H": 8}},
        ],
        "hidden": [
            {
                "name": "odd_lengths",
                "device": ["cpu"],
                "draws": 2,
                "axes": {"L": {"total": [1, 50], "count": [1, 3]}, "H": {"choice": [1, 3]}},
            }
        ],
        "probes": [
            {
                "name": "all_zero",
                "breaks": "a division by the norm",
                "device": ["cpu"],
                "axes": {"L": [4], "H": 1},
                "regime": "plain",
            }
        ],
    }
)


def call(name: str, *, call_id: str = "c1", **arguments: str | int) -> ToolCall:
    """A wish of the model."""
    return ToolCall(id=call_id, name=name, arguments=dict(arguments))


def turn(*calls: ToolCall, text: str = "on it", tokens: int = 0, cut: bool = False) -> Turn:
    """An answer of the model."""
    return Turn(text=text, calls=list(calls), input_tokens=tokens, cut=cut)


def write(source: str, path: str = KERNEL) -> ToolCall:
    return call("write", path=path, source=source)


class ScriptedModel(Model):
    """Plays turns, raises errors, and remembers what it was shown."""

    def __init__(self, *script: Turn | ModelError) -> None:
        self._script = list(script)
        self.shown: list[list[Message]] = []
        self.system = ""
        self.tools: list[ToolSpec] = []

    @property
    @override
    def name(self) -> str:
        return "scripted"

    @override
    def respond(self, system: str, transcript: Sequence[Message], tools: Sequence[ToolSpec]) -> Turn:
        self.system, self.tools = system, list(tools)
        self.shown.append(list(transcript))
        step = self._script.pop(0)
        if isinstance(step, ModelError):
            raise step
        return step


class Clock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Examiner:
    """Judges by words in the source: `incorrect`, `build_failed` and so on refuse, `secret` on a hidden draw, `late`
    only when timed; everything else is accepted and twice as fast as the baseline. A quick exam takes 2 s."""

    clock: Clock
    failures: list[Exception] = field(default_factory=list)
    calls: list[tuple[Mode, str, str]] = field(default_factory=list)
    broken_modes: set[Mode] = field(default_factory=set)
    sandbox: bool = True

    def __call__(self, source: str, name: str, mode: Mode) -> Evaluation:
        self.calls.append((mode, name, source))
        self.clock.now += 2.0
        if self.failures:
            raise self.failures.pop(0)
        if mode in self.broken_modes:
            raise broken()
        return evaluation(source, mode, name, refusal=_refusal_for(source, mode), sandbox=self.sandbox)

    @property
    def modes(self) -> list[Mode]:
        return [mode for mode, _, _ in self.calls]


def _refusal_for(source: str, mode: Mode) -> Refusal | None:
    kinds: tuple[RefusalKind, ...] = ("incorrect", "tampered", "build_failed", "timed_out")
    for kind in kinds:
        if kind in source:
            return refusal(kind, "build" if kind == "build_failed" else "correctness")
    if "secret" in source:
        return refusal("incorrect", "correctness", where="odd_lengths")
    return refusal("incorrect", "timing") if "late" in source and mode == "full" else None


def refusal(kind: RefusalKind, stage: StageName, where: str = "small/plain") -> Refusal:
    """A refusal with everything in it that the model must not see."""
    told = kind == "incorrect"
    return Refusal(
        kind=kind,
        stage=stage,
        where="" if stage == "build" else where,
        reason=f"41 units, limit {LIMIT}" if told else "NameError: name 'tl' is not defined",
        counterexample=Counterexample(
            where=where,
            axes={"L": [31, 19], "H": 3},
            output="y",
            group="H=1",
            statistic="median",
            error_units=41.25,
            limit_units=LIMIT,
            index=[5, 1, 9],
            candidate="0.812",
            oracle="0.203",
        )
        if told
        else None,
        diagnosis=[FailedProbe(name="all_zero", breaks="a division by the norm")] if told else [],
    )


def evaluation(
    source: str, mode: Mode, name: str = "torch_toy", *, refusal: Refusal | None = None, sandbox: bool = True
) -> Evaluation:
    """The facts of an exam of the toy contract."""
    timed = mode == "full" and refusal is None
    stages = STAGES[: 8 if timed else 7]
    return Evaluation(
        contract="toy",
        contract_version=3,
        contract_digest="c" * 64,
        judge_digest="d" * 64,
        candidate_name=name,
        candidate_digest=digest.of_bytes(source.encode()),
        mode=mode,
        started_at="2026-11-30T12:00:00Z",
        seconds=2.0,
        salt_commitment="e" * 64,
        salt=SALT,
        environment=Environment(
            device="cpu",
            architecture="x86_64",
            cpus=2,
            worker_threads=1,
            python="3.11",
            torch="2",
            system="Linux",
            sandbox="bubblewrap" if sandbox else "none",
        ),
        stages=[StageRecord(name=s, status="passed", planned=5, done=5, seconds=0.1) for s in stages],
        refusal=refusal,
        scored_cells=["small/plain"] if timed else [],
        cells=[_cell()] if timed else [],
        baselines=[BaselineState(name="loop", role="reference", state="available")] if timed else [],
        checked_timed_calls=9 if timed else 0,
    )


def _cell() -> Cell:
    rounds = [
        Round(first="candidate", candidate_ns=[1_000_000 + i for i in range(9)], baseline_ns=[2_000_000 + i] * 9)
        for i in range(3)
    ]
    clean = [BaselineTime(baseline="loop", clean_ns=[2_000_100] * 5)]
    return Cell(workload="small", regime="plain", bar="loop", rounds=rounds, baselines=clean)


@dataclass
class Played:
    """A run that is over, and everything that was part of it."""

    outcome: AgentOutcome
    model: ScriptedModel
    folder: Path
    lines: list[str]

    def answers(self) -> list[tuple[str, bool]]:
        """What the tools answered, with whether it was an error, as the model last saw it."""
        results = [message for message in self.model.shown[-1] if message.kind == "results"]
        return [(result.text, result.is_error) for message in results for result in message.results]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def examiner(clock: Clock) -> Examiner:
    return Examiner(clock)


def task_with(budget: Budget | None = None, goal: str = "Make it fast.") -> AgentTask:
    baseline = BaselineSource(name="loop", role="reference", source="# the loop\n")
    return AgentTask(
        contract=CONTRACT,
        contract_digest="c" * 64,
        device="cpu",
        goal=goal,
        baselines=[baseline],
        wiki={"clock.md": "Short cells are unresolved.\n"},
        budget=budget or Budget(),
    )


Play = Callable[..., Played]


@pytest.fixture
def play(tmp_path: Path, clock: Clock, examiner: Examiner) -> Play:
    """Runs the loop with a script; a last turn without calls is added."""

    def go(*script: Turn | ModelError, budget: Budget | None = None, folder: str = "run") -> Played:
        model, lines = ScriptedModel(*script, turn(text="I have nothing more.")), list[str]()
        outcome = run_agent(task_with(budget), model, examiner, tmp_path / folder, lines.append, clock)
        return Played(outcome, model, tmp_path / folder, lines)

    return go


def broken(text: str = "no device") -> InfrastructureError:
    return InfrastructureError(text)
