"""The third job: the exam of record. It has the device and no secret of ours, and it installs nothing."""

from bot.errors import InfrastructureError
from bot.evaluation import Evaluation, Mode
from bot.handlers.project import Project
from bot.handlers.run import Candidate, Order, RunFolder
from bot.launch import Launcher, Watch

RETRIES = 2
"""Outcomes of ours are tried again twice, and counted (design.md, Positive evidence)."""
MODE: Mode = "exam"


def examine(folder: RunFolder, project: Project, launcher: Launcher, watch: Watch) -> Evaluation | None:
    """Examine the candidate in the run folder, if there is one, and add the facts to it.

    Raises:
        UsageError: there is no order, or its contract is wrong.
        InfrastructureError: the exam could not be held, three times.
    """
    order, candidate = folder.order(), folder.candidate()
    if candidate is None:
        return None
    evaluation = _held(order, candidate, project, launcher, watch)
    folder.write_evaluation(evaluation, order.run_number)
    return evaluation


def _held(order: Order, candidate: Candidate, project: Project, launcher: Launcher, watch: Watch) -> Evaluation:
    job = project.job(order.contract, candidate.name, candidate.source, MODE, order.device)
    for _ in range(RETRIES):
        try:
            return launcher(job, watch)
        except InfrastructureError:
            continue
    return launcher(job, watch)
