"""The second job: an agent writes candidates, each examined as it goes. It has a model key and no GitHub token."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bot.agent.loop import run_agent
from bot.agent.model import Model
from bot.agent.task import AgentTask, Budget
from bot.contract.load import load_contract
from bot.evaluation import BaselineSource, Commitment, Evaluation, Mode, Progress
from bot.handlers.project import Project
from bot.handlers.run import Candidate, Order, RunFolder, Steering
from bot.launch import Launcher


@dataclass(frozen=True, slots=True)
class AgentTools:
    """What the agent job works with; `say` prints a line for whoever watches."""

    project: Project
    folder: RunFolder
    launcher: Launcher
    say: Callable[[str], None]


def agent(model: Model, budget: Budget, tools: AgentTools) -> str:
    """Run the agent on the order; returns one line that says how it ended.

    Raises:
        UsageError: there is no order, or its contract is wrong.
    """
    order = tools.folder.order()
    loaded = load_contract(tools.project.contracts, order.contract)
    named = tools.folder.incumbents()
    incumbents = tools.project.incumbents(order.contract, order.device) if named is None else named
    task = AgentTask(
        contract=loaded.contract,
        contract_digest=loaded.digest,
        device=order.device,
        goal=_goal(order),
        baselines=_baselines(order, tools.project),
        incumbents={} if order.start == "reference" else incumbents,
        wiki=_wiki(tools.project),
        budget=_within(budget, order.steering),
    )

    def evaluate(source: str, name: str, mode: Mode) -> Evaluation:
        job = tools.project.job(order.contract, name, source, mode, order.device)
        job = job.model_copy(update={"incumbents": incumbents})
        return tools.launcher(job, lambda message: _tell(message, tools.say))

    outcome = run_agent(task, model, evaluate, tools.folder.workspace, tools.say)
    tools.folder.write_agent(outcome.agent_run)
    if outcome.submitted is not None:
        tools.folder.write_candidate(Candidate(path=outcome.submitted.path, source=outcome.submitted.source))
    return outcome.agent_run.stopped


def _goal(order: Order) -> str:
    """The request, and what people asked for in comments before the run; all of it quoted to the model."""
    steering = order.steering
    asked = [f"Focus on the workload {name}." for name in steering.focus]
    asked += [f"Hint: {hint}" for hint in steering.hints]
    return "\n".join([*asked, *([order.goal] if order.goal else [])])


def _within(budget: Budget, steering: Steering) -> Budget:
    """The budget, or less where less was asked for."""
    return Budget(
        turns=min(budget.turns, steering.turns or budget.turns),
        tokens=min(budget.tokens, steering.tokens or budget.tokens),
        seconds=min(budget.seconds, float(steering.seconds or budget.seconds)),
    )


def _tell(message: Progress | Commitment, say: Callable[[str], None]) -> None:
    if isinstance(message, Commitment):
        say(f"  salt committed to: {message.sha256}")


def _baselines(order: Order, project: Project) -> list[BaselineSource]:
    """What the agent may read beside incumbents: the contract's baselines for the device, and what is attached."""
    loaded = load_contract(project.contracts, order.contract)
    found = [
        BaselineSource(name=b.name, role=b.role, source=loaded.read(b.file))
        for b in loaded.contract.baselines
        if order.device in b.device
    ]
    if order.start == "attached":
        found.insert(0, BaselineSource(name="attached", role="competitor", source=order.attached))
    return found


def _wiki(project: Project) -> dict[str, str]:
    folder: Path = project.kernels / "wiki"
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.md"))}
