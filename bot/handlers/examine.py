"""The third job: the exam of record. It has the device and no secret of ours, and it installs nothing."""

from bot.errors import InfrastructureError
from bot.evaluation import Evaluation, Mode
from bot.handlers.project import Project
from bot.handlers.run import RunFolder
from bot.launch import Launcher, Watch

RETRIES = 2
"""Outcomes of ours are tried again twice, and counted (design.md, Positive evidence)."""


def examine(folder: RunFolder, project: Project, launcher: Launcher, watch: Watch) -> Evaluation | None:
    """Examine the candidate in the run folder, if there is one, and add the facts to it.

    A rerun measures again with a new salt; the judge grades itself again only when it or the contract has changed.

    Raises:
        UsageError: there is no order, or its contract is wrong.
        InfrastructureError: the exam could not be held, three times.
    """
    order, candidate = folder.order(), folder.candidate()
    if candidate is None:
        return None

    def held(mode: Mode) -> Evaluation:
        job = project.job(order.contract, candidate.name, candidate.source, mode, order.device)
        for _ in range(RETRIES):
            try:
                return launcher(job, watch)
            except InfrastructureError:
                continue
        return launcher(job, watch)

    graded = [run for run in folder.evaluations() if run.grade is not None]
    evaluation = held("full" if graded else "exam")
    if graded and not any(_same_judge(run, evaluation) for run in graded):
        evaluation = held("exam")
    folder.write_evaluation(evaluation, order.run_number)
    return evaluation


def _same_judge(one: Evaluation, other: Evaluation) -> bool:
    return (one.judge_digest, one.contract_digest) == (other.judge_digest, other.contract_digest)
