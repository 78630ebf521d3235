"""Conduct one exam: choose the salt, fix the plan, run the stages in order, stop at the first refusal."""

import contextlib
import hashlib
import os
import platform
import secrets
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import torch

from bot import digest
from bot.contract.load import LoadedContract
from bot.errors import InfrastructureError, UsageError
from bot.evaluation import Commitment, Environment, Evaluation, Job, Refusal, StageName, StageRecord
from bot.verify import cpus
from bot.verify.calls import Worker
from bot.verify.counterexample import save
from bot.verify.exam import Exam, Stage, Watch
from bot.verify.oracle import load_oracle
from bot.verify.plan import ROUNDS, baseline_kernels, plan_checks, plan_stages
from bot.verify.stages.answers import correctness, probes, smoke
from bot.verify.stages.baselines import screen_baselines
from bot.verify.stages.build import build
from bot.verify.stages.controls import controls
from bot.verify.stages.timing import timing
from bot.verify.variants import draw_variants

VARIANT_SHARE = 0.1
"""Share of all gated and graded controls that one exam meets, at least one of each kind of gate. design.md asks for a
quarter, which adds 13 s to a KDA exam on two slow cores; the judge's own issue raises it with a faster oracle."""


def open_exam(job: Job, loaded: LoadedContract, worker: Worker | None, watch: Watch, salt: bytes | None = None) -> Exam:
    """Choose the salt, fix the plan. `worker` was started before, so that it imports torch while we do; to look at an
    exam that has been held, there is none, and the salt is the revealed one.

    Raises:
        UsageError: the contract has nothing to score on this device, or its oracle is wrong.
        InfrastructureError: ours.
    """
    if job.device == "cuda" and not torch.cuda.is_available():
        raise InfrastructureError("no CUDA device on this machine: use --device cpu")
    if not loaded.contract.scored(job.device):
        raise UsageError(f"contract {job.contract} has no scored workload for {job.device}")
    torch.set_num_threads(1)
    salt = secrets.token_bytes(32) if salt is None else salt
    ours, theirs = cpus.split()
    os.sched_setaffinity(0, ours)
    exam = Exam(job, loaded, load_oracle(loaded.folder), salt, watch, theirs, ours, worker)
    exam.checks = plan_checks(exam)
    exam.baselines_planned = baseline_kernels(exam)
    if job.mode == "exam":
        exam.variants = draw_variants(loaded, exam.root.child("variants"), VARIANT_SHARE)
    exam.plan = plan_stages(exam)
    return exam


STAGE_FUNCTIONS: Mapping[StageName, Stage] = {
    "build": build,
    "smoke": smoke,
    "correctness": correctness,
    "probes": probes,
    "timing": timing,
    "controls": controls,
}


def examine(job: Job, loaded: LoadedContract, worker: Worker, watch: Watch) -> Evaluation:
    """Run the stages that the mode asks for; the facts, whatever they are. `worker` waits for the candidate.

    Raises:
        UsageError: the job names something that is not there or is wrong.
        InfrastructureError: the exam could not be held.
    """
    started, clock = datetime.now(UTC), time.monotonic()
    exam = open_exam(job, loaded, worker, watch)
    commitment = hashlib.sha256(exam.salt).hexdigest()
    watch(Commitment(sha256=commitment))
    try:
        refusal = _run(exam)
    finally:
        exam.close()
    if job.keep is not None and exam.shown:
        save(Path(job.keep), exam.shown)
    return Evaluation(
        contract=exam.contract.name,
        contract_version=exam.contract.version,
        contract_digest=exam.loaded.digest,
        judge_digest=judge_digest(),
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
        scored_cells=[f"{w.name}/{r}" for w, r in exam.scored()],
    )


def _run(exam: Exam) -> Refusal | None:
    """All stages; returns what refused the candidate."""
    if exam.planned("timing") and exam.job.mode != "claim":
        exam.prewarm(len(exam.baselines_planned) + 2 * ROUNDS[exam.job.mode], house=exam.planned("controls") > 0)
    for index in range(len(exam.checks)):
        exam.question(index)
    if exam.planned("timing"):
        exam.settle()
        screen_baselines(exam)
    refusal: Refusal | None = None
    for name, stage in STAGE_FUNCTIONS.items():
        planned, begun = exam.planned(name), time.monotonic()
        if refusal is not None or planned == 0:
            exam.records.append(StageRecord(name=name, status="not_run", planned=planned, done=0, seconds=0.0))
            continue
        outcome = stage(exam)
        refusal = outcome.refusal
        exam.records.append(
            StageRecord(
                name=name,
                status="refused" if refusal else "invalid" if outcome.invalid else "passed",
                planned=planned,
                done=outcome.done,
                seconds=round(time.monotonic() - begun, 3),
                note=outcome.invalid,
            )
        )
    return refusal


def judge_digest() -> str:
    """SHA-256 over the verifier's own files and what it imports of ours: which judge decided."""
    bot = Path(__file__).resolve().parents[1]
    files = sorted([*(bot / "verify").rglob("*.py"), *(bot / "contract").rglob("*.py"), bot / "evaluation.py"])
    return digest.of_files({str(path.relative_to(bot)): path.read_bytes() for path in files})


def _environment(exam: Exam) -> Environment:
    return Environment(
        device=_cpu_name(),
        architecture=platform.machine() if exam.device == "cpu" else "cuda",
        cpus=os.cpu_count() or 1,
        worker_threads=1,
        python=platform.python_version(),
        torch=torch.__version__,
        system=f"{platform.system()} {platform.release()}",
        sandbox=exam.job.sandbox,
    )


def _cpu_name() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or sys.platform
