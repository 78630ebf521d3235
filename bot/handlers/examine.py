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

    A rerun measures again with a new salt, as often as it was asked to; the judge grades itself again only when it or
    the contract has changed. What was found before an exam could not be held counts.

    Raises:
        UsageError: there is no order, or its contract is wrong.
        InfrastructureError: the exam could not be held, three times.
    """
    order, candidate = folder.order(), folder.candidate()
    if candidate is None:
        return None

    def held(mode: Mode) -> Evaluation:
        job = project.job(order.contract, candidate.name, candidate.source, mode, order.device)
        if order.against == "report":
            job = job.model_copy(update={"incumbent": folder.incumbent()})
        for _ in range(RETRIES):
            try:
                return launcher(job, watch)
            except InfrastructureError:
                continue
        return launcher(job, watch)

    def once() -> Evaluation:
        graded = [run for run in folder.evaluations() if run.grade is not None]
        evaluation = held("full" if graded else "exam")
        if graded and not any(_same_judge(run, evaluation) for run in graded):
            evaluation = held("exam")
        return evaluation

    found = once()
    folder.write_evaluation(found, order.run_number)
    for number in range(order.run_number + 1, order.run_number + order.exams):
        try:
            found = once()
        except InfrastructureError:
            break
        folder.write_evaluation(found, number)
    return found


def _same_judge(one: Evaluation, other: Evaluation) -> bool:
    return (one.judge_digest, one.contract_digest) == (other.judge_digest, other.contract_digest)
