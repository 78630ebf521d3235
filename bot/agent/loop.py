"""The agent: ask the model, run its calls, and so on until something ends it. What a call does is the bench's matter,
what was accepted the evaluations'.
"""

import time
from dataclasses import dataclass
from pathlib import Path

from bot.agent import tools
from bot.agent.bench import Bench, Clock, Evaluate, Watch, retried
from bot.agent.journal import End, Journal, create_journal, header_of
from bot.agent.model import Message, Model, Prompt, Results, Turn
from bot.agent.prompt import CUT, first_message, starting_files, system_prompt
from bot.agent.task import (
    AgentOutcome,
    AgentTask,
    Budget,
    InfrastructureFailed,
    ModelFailed,
    ModelStopped,
    Stop,
    Submitted,
    TimeSpent,
    TokensSpent,
    TurnsSpent,
    sentence,
)
from bot.agent.workspace import Workspace
from bot.errors import InfrastructureError, ModelError
from bot.evaluation import AgentRun
from bot.sanitize import plain_line


def run_agent(
    task: AgentTask, model: Model, evaluate: Evaluate, workspace: Path, watch: Watch, clock: Clock = time.monotonic
) -> AgentOutcome:
    """One run in a folder of its own, which keeps the journal, the lessons and every candidate.

    Raises:
        UsageError: the folder holds a run already.
    """
    workspace.mkdir(parents=True, exist_ok=True)
    meter = _Meter(clock)
    with create_journal(workspace / "journal.jsonl") as journal:
        journal.write(header_of(task, model.name))
        place = Workspace(workspace, task.contract.name)
        place.lay_out(starting_files(task))
        bench = Bench(task, place, evaluate, journal, watch, clock)
        stop = _converse(task, model, bench, journal, meter, watch)
        journal.write(End(stop=stop))
    watch(sentence(stop))
    run = AgentRun(
        model=model.name,
        turns=meter.turns,
        seconds=meter.seconds(),
        input_tokens=meter.input_tokens,
        output_tokens=meter.output_tokens,
        stopped=sentence(stop),
        submitted=bench.submission is not None,
        attempts=bench.attempts,
        feedback_seconds=bench.feedback_seconds,
    )
    return AgentOutcome(run, bench.submission, stop)


def _converse(task: AgentTask, model: Model, bench: Bench, journal: Journal, meter: "_Meter", watch: Watch) -> Stop:
    system, specs = system_prompt(task), tools.specs()
    transcript: list[Message] = [Prompt(text=first_message(task))]

    def ask() -> Turn:
        return model.respond(system, transcript, specs)

    while (spent := meter.spent(task.budget)) is None:
        try:
            turn = retried(ask)
            meter.count(turn)
            journal.write(turn)
            watch(f"turn {meter.turns}: {plain_line(turn.text)}")
            results = bench.use_all(turn.calls)
        except ModelError as error:
            return ModelFailed(reason=plain_line(str(error)))
        except InfrastructureError as error:
            return InfrastructureFailed(reason=plain_line(str(error)))
        if bench.submission:
            return Submitted(attempt=bench.submission.attempt)
        if not results and not turn.cut:
            return ModelStopped(text=plain_line(turn.text))
        transcript.extend([turn, Results(results=results) if results else Prompt(text=CUT)])
    return spent


@dataclass(slots=True)
class _Meter:
    """What the run has used up, and the one place where that is held against its budget."""

    clock: Clock
    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    started: float = 0.0

    def __post_init__(self) -> None:
        self.started = self.clock()

    def seconds(self) -> float:
        return self.clock() - self.started

    def count(self, turn: Turn) -> None:
        self.turns += 1
        self.input_tokens += turn.input_tokens
        self.output_tokens += turn.output_tokens

    def spent(self, budget: Budget) -> Stop | None:
        if self.turns >= budget.turns:
            return TurnsSpent(turns=self.turns)
        if (tokens := self.input_tokens + self.output_tokens) >= budget.tokens:
            return TokensSpent(tokens=tokens)
        if (seconds := self.seconds()) >= budget.seconds:
            return TimeSpent(seconds=seconds)
        return None
