"""The third job: the exam of record. It has the device and no secret of ours, and it installs nothing."""

from dataclasses import dataclass

from bot.errors import InfrastructureError, UsageError
from bot.evaluation import Evaluation, Mode, Shard
from bot.handlers.project import Project
from bot.handlers.run import Candidate, Order, RunFolder
from bot.launch import Launcher, Watch

RETRIES = 2
"""Outcomes of ours are tried again twice, and counted (design.md, Positive evidence)."""


def examine(
    folder: RunFolder, project: Project, launcher: Launcher, watch: Watch, number: int = 1
) -> Evaluation | None:
    """Examine the candidate in the run folder, if there is one, and add the facts to it; of an exam that is spread over
    several runners, shard `number`.

    A rerun measures again with a new salt, as often as it was asked to; the judge grades itself again only when it or
    the contract has changed. What was found before an exam could not be held counts.

    Raises:
        UsageError: there is no order, it has no such shard, or its contract is wrong.
        InfrastructureError: the exam could not be held, three times.
    """
    order, candidate = folder.order(), folder.candidate()
    if candidate is None:
        return None
    if number > order.shards:
        raise UsageError(f"there is no shard {number}: the exam is spread over {order.shards}")
    shard = Shard(number=number, of=order.shards) if order.shards > 1 else None
    exams = _Exams(folder, project, launcher, watch, order, candidate, shard)
    found = exams.once()
    exams.keep(found, order.run_number)
    for run_number in range(order.run_number + 1, order.run_number + order.exams):
        try:
            found = exams.once()
        except InfrastructureError:
            break
        exams.keep(found, run_number)
    return found


@dataclass(frozen=True, slots=True)
class _Exams:
    """The exams of one order, of which this runner holds one shard or all."""

    folder: RunFolder
    project: Project
    launcher: Launcher
    watch: Watch
    order: Order
    candidate: Candidate
    shard: Shard | None

    def once(self) -> Evaluation:
        graded = [run for run in self.folder.evaluations() if run.grade is not None]
        evaluation = self._held("full" if graded else "exam")
        if graded and not any(_same_judge(run, evaluation) for run in graded):
            evaluation = self._held("exam")
        return evaluation

    def keep(self, evaluation: Evaluation, run_number: int) -> None:
        if self.shard is None:
            self.folder.write_evaluation(evaluation, run_number)
        else:
            self.folder.write_shard(evaluation, run_number, self.shard.number)

    def _held(self, mode: Mode) -> Evaluation:
        order, candidate = self.order, self.candidate
        job = self.project.job(order.contract, candidate.name, candidate.source, mode, order.device)
        job = job.model_copy(update={"shard": self.shard, "workload": order.workload, "rounds": order.rounds})
        # A run that had to wait has the checkout of the day on which it was asked for, and the gate looked later.
        if (named := self.folder.incumbents()) is not None:
            job = job.model_copy(update={"incumbents": named})
        for _ in range(RETRIES):
            try:
                return self.launcher(job, self.watch)
            except InfrastructureError:
                continue
        return self.launcher(job, self.watch)


def _same_judge(one: Evaluation, other: Evaluation) -> bool:
    return (one.judge_digest, one.contract_digest) == (other.judge_digest, other.contract_digest)
