"""Conduct one exam: choose the salt, fix the plan, run the stages in order, stop at the first refusal."""

import contextlib
import hashlib
import os
import platform
import secrets
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import torch

from bot import digest
from bot.contract.load import LoadedContract
from bot.errors import UsageError
from bot.evaluation import STAGES, Commitment, Environment, Evaluation, Job, Mode, Refusal, StageName, StageRecord
from bot.verify import cpus
from bot.verify.calls import Allowance, Worker
from bot.verify.counterexample import save
from bot.verify.exam import Exam, Outcome, Step, Watch
from bot.verify.memory import keep_freed
from bot.verify.oracle import load_oracle
from bot.verify.packages import versions
from bot.verify.plan import ROUNDS, baseline_kernels, plan_checks, plan_stages, plan_turns, rounds_of
from bot.verify.stages.answers import MIXED, questions, relations, smoke
from bot.verify.stages.baselines import planned_baselines, screen_baselines
from bot.verify.stages.build import build, look, looked_at
from bot.verify.stages.controls import controls, houses
from bot.verify.stages.timing import timing
from bot.verify.start import drawer_for, gpu_facts
from bot.verify.variants import draw_variants

VARIANT_SHARE = 0.25
"""Share of all gated and graded controls that one exam meets, at least one of each kind of gate (design.md)."""


CANDIDATE_SECONDS: dict[Mode, float] = {"quick": 60.0, "full": 600.0, "exam": 600.0, "confirm": 600.0, "claim": 60.0}
"""What a candidate's calls may take in all. Honest kernels of the contracts here take one to ten seconds of it."""
COMPILING = 3
"""On a GPU so many times as much: kernels are compiled in the first call of their kind."""
QUICK_RUNS = 3
"""Noisy runs of a quick exam, when nothing was prepared: they are most of its time. Their units have heavy tails, so
what they refuse is judged again with all runs; what they let pass, a full exam judges."""


def open_exam(
    job: Job,
    loaded: LoadedContract,
    worker: Worker | None,
    watch: Watch,
    salt: bytes | None = None,
    *,
    prepared: bool = False,
) -> Exam:
    """Choose the salt, fix the plan. `worker` was started before, so that it imports torch while we do; to look at an
    exam that has been held, there is none, and the salt is the revealed one. `prepared`: for any candidate.

    Raises:
        UsageError: the contract has nothing to score on this device, or its oracle is wrong.
        InfrastructureError: ours.
    """
    torch.set_num_threads(1)
    keep_freed()
    salt = secrets.token_bytes(32) if salt is None else salt
    os.sched_setaffinity(0, cpus.first())
    exam = Exam(job, loaded, load_oracle(loaded.folder), salt, watch, worker, drawer_for(job.device))
    if not exam.scored():
        what = f"workload {job.workload}" if job.workload else f"shard {job.shard.number}" if job.shard else "contract"
        raise UsageError(f"contract {job.contract}: this {what} has nothing to score for {job.device}")
    exam.prepared = prepared
    exam.gpu = gpu_facts(job.device)
    longer = max(1.0, rounds_of(exam) / (ROUNDS[job.mode] or 1))
    exam.allowance = Allowance(CANDIDATE_SECONDS[job.mode] * longer * (1 if job.device == "cpu" else COMPILING))
    if worker is not None:
        worker.allowance, worker.spent = exam.allowance, exam.spent
    if job.mode == "quick" and worker is not None and not prepared:
        exam.noisy_runs = QUICK_RUNS
    exam.checks = plan_checks(exam)
    exam.turns = plan_turns(exam)
    exam.baselines_planned = baseline_kernels(exam)
    if job.mode == "exam":
        exam.variants = draw_variants(loaded, exam.root.child("variants"), VARIANT_SHARE)
    exam.plan = plan_stages(exam)
    return exam


STEPS: tuple[tuple[tuple[StageName, ...], Step], ...] = (
    (("build",), build),
    (("smoke",), smoke),
    (MIXED, questions),
    (("relations",), relations),
    (("timing",), timing),
    (("controls",), controls),
)
"""In this order; the first refusal ends the exam."""


def examine(job: Job, loaded: LoadedContract, worker: Worker, watch: Watch) -> Evaluation:
    """Run the stages that the mode asks for, and once more with another salt what an exam has not refused; the facts,
    whatever they are. `worker` waits for the candidate. Whoever calls this holds the device (`start.turn_on`), since
    before that worker was started.

    Raises:
        UsageError: the job names something that is not there or is wrong.
        InfrastructureError: the exam could not be held.
    """
    exam = open_exam(job, loaded, worker, watch)
    second: Exam | None = None

    def confirming() -> Exam:
        # Its workers import torch while kernels of ours are graded: nothing is timed then.
        nonlocal second
        second = open_exam(job.model_copy(update={"mode": "confirm"}), loaded, exam.start_worker(), watch)
        second.bar, second.baselines = exam.bar, exam.baselines
        second.overhead_ns, second.flush_ns = exam.overhead_ns, exam.flush_ns
        _ready_timers(second)
        return second

    try:
        evaluation = hold(exam, confirming if job.mode == "exam" else None)
        grade = evaluation.grade
        if second is None or evaluation.refusal or (grade and (grade.survivors or grade.refused_faithful)):
            return evaluation
        return evaluation.model_copy(update={"confirmation": hold(second)})
    finally:
        if second is not None:
            second.close()
            second.candidate_worker.close()


def hold(exam: Exam, confirming: Callable[[], Exam] | None = None) -> Evaluation:
    """One exam from commitment to facts. `confirming` opens the one that confirms it, before controls.

    Raises:
        UsageError, InfrastructureError: as `examine`.
    """
    job, started, clock = exam.job, datetime.now(UTC), time.monotonic()
    commitment = hashlib.sha256(exam.salt).hexdigest()
    exam.spent.clear()
    exam.watch(Commitment(sha256=commitment))
    try:
        refusal = _stages(exam, confirming)
    finally:
        exam.close()
    if job.keep is not None and exam.shown:
        save(Path(job.keep), exam.shown)
    return Evaluation(
        contract=exam.contract.name,
        contract_version=exam.contract.version,
        contract_digest=exam.loaded.digest,
        judge_digest=digest.of_judge(),
        candidate_name=job.candidate_name,
        candidate_digest=digest.of_bytes(job.source.encode()),
        mode=job.mode,
        started_at=started.isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - clock, 3),
        salt_commitment=commitment,
        salt=exam.salt.hex(),
        environment=_environment(exam),
        stages=exam.records,
        refusal=refusal,
        cells=exam.cells,
        baselines=exam.baselines,
        accuracy=list(exam.accuracy.values()),
        grade=exam.grade,
        checked_timed_calls=exam.checked_timed_calls,
        prepared=exam.prepared,
        workload=job.workload,
        shard=job.shard,
        scored_cells=[f"{w.name}/{r}" for w, r in exam.scored()],
        latency=exam.spent.latency(),
        machine_code=exam.machine_code,
    )


def _stages(exam: Exam, confirming: Callable[[], Exam] | None) -> Refusal | None:
    """All stages; returns what refused the candidate."""
    look(exam)
    own_workers = exam.planned("timing") > 0 and exam.job.mode in {"full", "exam"}
    if own_workers:
        _ready_screening(exam)
    for index in exam.indices("smoke", "correctness", "probes", "influence"):
        exam.question(index)
    if exam.planned("timing"):
        exam.settle()
        if exam.job.mode != "confirm":
            screen_baselines(exam)
    refusal: Refusal | None = None
    second: Exam | None = None
    for names, step in STEPS:
        if refusal is None and own_workers:
            _ready_workers(exam, names)
        if refusal is None and confirming is not None and names == ("controls",) and exam.planned("controls"):
            second = confirming()
        refusal = _step(exam, names, step, refusal)
    if refusal is None and exam.job.mode == "quick":
        refusal = _late(exam)
    if second is not None:
        with exam.spent.on("start"):
            second.settle()  # Whoever has the device next finds it idle.
    exam.records.sort(key=lambda record: STAGES.index(record.name))
    return refusal


def _late(exam: Exam) -> Refusal | None:
    """What the machine code of a quick exam's candidate says, which nothing has waited for."""
    note, refusal = looked_at(exam)
    if note or refusal:
        status = "refused" if refusal else "passed"
        exam.records = [
            r.model_copy(update={"status": status, "note": note}) if r.name == "build" else r for r in exam.records
        ]
    return refusal


def _ready_screening(exam: Exam) -> None:
    """Have the baselines' workers come up by themselves."""
    if exam.device == "cpu":
        exam.prewarm(len(exam.baselines_planned), houses=0)
    else:
        exam.screen_ahead([kernel for kernel, missing in planned_baselines(exam) if not missing])


def _ready_workers(exam: Exam, names: tuple[StageName, ...]) -> None:
    """Before these stages, start what later ones need: once most refusals have come, or for nothing; but those for a
    GPU's timing first of all, since they take as long to come up as all questions."""
    if names == (("relations",) if exam.device == "cpu" else ("build",)):
        _ready_timers(exam)
    if names == ("relations",) and exam.planned("controls"):
        exam.prewarm(0, houses=houses())


def _ready_timers(exam: Exam) -> None:
    """Have the workers that timing will take come up by themselves."""
    rounds = rounds_of(exam)
    if exam.device == "cpu":
        exam.prewarm(2 * rounds, houses=0)
    elif exam.bar is not None:
        exam.time_ahead(rounds)


def _step(exam: Exam, names: tuple[StageName, ...], step: Step, refusal: Refusal | None) -> Refusal | None:
    """One step, unless something was refused before; a record for each of its stages."""
    begun, outcomes = time.monotonic(), dict[StageName, Outcome]()
    if refusal is None and any(exam.planned(name) for name in names):
        outcomes.update(step(exam))
    taken = time.monotonic() - begun
    for name in names:
        planned = exam.planned(name)
        outcome = outcomes.get(name, Outcome(0, seconds=0.0))
        refused = outcome.refusal is not None
        finished = bool(planned) and name in outcomes and outcome.done >= planned
        exam.records.append(
            StageRecord(
                name=name,
                status="refused" if refused else "invalid" if outcome.invalid else "passed" if finished else "not_run",
                planned=planned,
                done=outcome.done,
                seconds=round(taken if outcome.seconds is None else outcome.seconds, 3),
                note=outcome.invalid or outcome.note,
            )
        )
        refusal = refusal or outcome.refusal
    return refusal


def _environment(exam: Exam) -> Environment:
    required = [baseline.requires for baseline in exam.contract.baselines if baseline.requires]
    others = {*exam.contract.may_use, *(needs.distribution or needs.module for needs in required)}
    return Environment(
        device=_cpu_name() if exam.device == "cpu" else torch.cuda.get_device_name(),
        architecture=exam.gpu.capability if exam.gpu else platform.machine(),
        cpus=os.cpu_count() or 1,
        worker_threads=1,
        python=platform.python_version(),
        torch=torch.__version__,
        system=f"{platform.system()} {platform.release()}",
        sandbox=exam.job.sandbox,
        packages=versions(others),
        gpu=exam.gpu,
    )


def _cpu_name() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or sys.platform
