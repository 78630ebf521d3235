"""What a run is asked to do, what it may spend, how it can end, and what it leaves behind. Values only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from bot.contract.distribution import Frozen
from bot.contract.schema import Contract, Device
from bot.evaluation import AgentRun, BaselineSource


class Budget(Frozen):
    """What a run may spend; it ends before the model call that finds one of these used up. `tokens`: in and out."""

    turns: Annotated[int, Field(ge=1)] = 60
    tokens: Annotated[int, Field(ge=1)] = 4_000_000
    seconds: Annotated[float, Field(gt=0)] = 3600.0


@dataclass(frozen=True, slots=True)
class AgentTask:
    """One run. `baselines`, `incumbents` (what each is merged for → kernel) and `wiki` (file name → text) are what the
    agent may read.

    `goal`: free text of the issue, from outside.
    """

    contract: Contract
    contract_digest: str
    device: Device
    goal: str = ""
    baselines: Sequence[BaselineSource] = ()
    incumbents: Mapping[str, BaselineSource] = field(default_factory=dict)
    wiki: Mapping[str, str] = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)


class Submitted(Frozen):
    """The agent handed in an accepted candidate."""

    kind: Literal["submitted"] = "submitted"
    attempt: int


class TurnsSpent(Frozen):
    """The budget of model turns is used up."""

    kind: Literal["turns_spent"] = "turns_spent"
    turns: int


class TokensSpent(Frozen):
    """The budget of tokens is used up."""

    kind: Literal["tokens_spent"] = "tokens_spent"
    tokens: int


class TimeSpent(Frozen):
    """The budget of wall time is used up."""

    kind: Literal["time_spent"] = "time_spent"
    seconds: float


class ModelStopped(Frozen):
    """The model answered without a call; `text` is what it said."""

    kind: Literal["model_stopped"] = "model_stopped"
    text: str


class ModelFailed(Frozen):
    """The model's service gave no usable answer."""

    kind: Literal["model_failed"] = "model_failed"
    reason: str


class InfrastructureFailed(Frozen):
    """The verifier could not do its work, three times."""

    kind: Literal["infrastructure_failed"] = "infrastructure_failed"
    reason: str


Stop = Annotated[
    Submitted | TurnsSpent | TokensSpent | TimeSpent | ModelStopped | ModelFailed | InfrastructureFailed,
    Field(discriminator="kind"),
]


def sentence(stop: Stop) -> str:
    """Why a run ended, for reports."""
    match stop:
        case Submitted(attempt=attempt):
            return f"submitted attempt {attempt}"
        case TurnsSpent(turns=turns):
            return f"all {turns} turns spent"
        case TokensSpent(tokens=tokens):
            return f"token budget spent ({tokens:,} used)"
        case TimeSpent(seconds=seconds):
            return f"time budget spent ({seconds:.0f} s used)"
        case ModelStopped():
            return "the model stopped without submitting"
        case ModelFailed(reason=reason):
            return f"the model failed: {reason}"
        case InfrastructureFailed(reason=reason):
            return f"the verifier could not work: {reason}"


class Submission(Frozen):
    """A candidate the agent hands in: accepted by its last check, still to be examined."""

    path: str
    name: str
    source: str
    candidate_digest: str
    attempt: int


@dataclass(frozen=True, slots=True)
class AgentOutcome:
    """What a run leaves behind: how it went, and the submission if there is one."""

    agent_run: AgentRun
    submitted: Submission | None
    stop: Stop
