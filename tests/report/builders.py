"""Evaluations as the verifier would write them, for tests of whoever reads them. Keywords replace any field."""

import random
from collections.abc import Sequence
from typing import Any

from bot.evaluation import (
    Accuracy,
    AgentRun,
    Attempt,
    BaselineState,
    BaselineTime,
    Cell,
    ControlResult,
    Counterexample,
    Environment,
    Evaluation,
    FailedProbe,
    Grade,
    Refusal,
    Round,
    StageRecord,
)
from bot.report.comment import ReportFacts
from bot.verdict import decide

BASE_NS = 4_000_000
"""The bar's time in every cell, before noise."""


def noisy(mean: float, count: int, seed: str) -> list[int]:
    """Times around a mean with 0.5 % noise, the same for the same seed."""
    rng = random.Random(seed)  # noqa: S311 - repeatable, not secret
    return [round(mean * rng.gauss(1, 0.005)) for _ in range(count)]


def cell(workload: str = "T256_H4", regime: str = "fast", speedup: float = 1.5, pairs: int = 10, **fields: Any) -> Cell:
    """A cell of two rounds in which the candidate is `speedup` times as fast as the bar."""
    name = f"{workload}/{regime}"
    rounds = [
        Round(
            first=first,
            candidate_ns=noisy(BASE_NS / speedup, pairs, f"{name} candidate {first}"),
            baseline_ns=noisy(BASE_NS, pairs, f"{name} bar {first}"),
        )
        for first in ("candidate", "baseline")
    ]
    times = [
        BaselineTime(baseline="token_loop", clean_ns=noisy(1.001 * BASE_NS, pairs, f"{name} clean")),
        BaselineTime(baseline="chunked_fp32", clean_ns=noisy(1.3 * BASE_NS, pairs, f"{name} other")),
    ]
    made = Cell(workload=workload, regime=regime, bar="token_loop", rounds=rounds, baselines=times)
    return made.model_copy(update=fields)


def cells() -> list[Cell]:
    """Two workloads in two regimes."""
    return [cell(w, r, s) for w, s in (("T256_H4", 1.5), ("mixed", 1.4)) for r in ("fast", "slow")]


def stages(mode: str = "exam") -> list[StageRecord]:
    """Records of an exam that passed everything it planned."""
    planned = {"build": 1, "smoke": 1, "correctness": 27, "probes": 9, "timing": 80, "controls": 9}
    names = {"quick": 4, "full": 5, "exam": 6, "claim": 1}[mode]
    return [
        StageRecord.model_validate({"name": name, "status": "passed", "planned": count, "done": count, "seconds": 1.5})
        for name, count in list(planned.items())[:names]
    ]


def accuracy(kernel: str = "candidate", output: str = "out", error: float = 1.0) -> Accuracy:
    """An error ledger entry with all three statistics in proportion to `error`."""
    return Accuracy(
        kernel=kernel,
        output=output,
        median=error,
        p99=3.1 * error,
        maximum=5.0 * error,
        worst_group="H=3",
        relative_l2=0.0021,
        octaves=[error, error, 1.1 * error, 1.2 * error, 1.5 * error],
        limit_median=1.8,
        limit_p99=6.0,
        limit_maximum=16.0,
    )


def grade(survivors: Sequence[str] = (), refused_faithful: Sequence[str] = ()) -> Grade:
    """Two controls and one honest variant; those named get the wrong answer."""
    controls = ("controls/constant_norm.py", "controls/history_cut_32.py")
    faithful = ("faithful/chunked.py",)
    return Grade(
        controls=[
            ControlResult(file=f, refused=f not in survivors, where="probe long_memory", margin=3.4 + i)
            for i, f in enumerate(controls)
        ],
        faithful=[ControlResult(file=f, refused=f in refused_faithful, where="", margin=0.4) for f in faithful],
    )


def counterexample(**fields: Any) -> Counterexample:
    """The element that refuses the constant norm."""
    made = Counterexample(
        where="probe scaled_queries",
        axes={"H": 1, "lengths": [16]},
        output="out",
        group="H=0",
        statistic="maximum",
        error_units=58.0,
        limit_units=16.0,
        index=[3, 0, 17],
        candidate="0.812",
        oracle="0.203",
    )
    return made.model_copy(update=fields)


def refusal(**fields: Any) -> Refusal:
    """A candidate refused by a probe."""
    made = Refusal(
        kind="incorrect",
        stage="probes",
        where="probe scaled_queries",
        reason="out is 58 units from the oracle where 16 are allowed",
        counterexample=counterexample(),
        diagnosis=[FailedProbe(name="scaled_queries", breaks="a norm replaced by a constant")],
    )
    return made.model_copy(update=fields)


def evaluation(mode: str = "exam", **fields: Any) -> Evaluation:
    """An evaluation of an honest, faster candidate; consistent until a field is replaced."""
    timed = fields.pop("cells", cells() if mode in {"full", "exam"} else [])
    made = Evaluation.model_validate(
        {
            "contract": "kda_prefill",
            "contract_version": 1,
            "contract_digest": "4f2a" + "0" * 60,
            "judge_digest": "9d31" + "0" * 60,
            "candidate_name": "torch_chunked",
            "candidate_digest": "c0de" + "0" * 60,
            "mode": mode,
            "started_at": "2026-11-30T10:02:11Z",
            "seconds": 46.0,
            "salt_commitment": "ab" * 32,
            "salt": "cd" * 32,
            "environment": Environment(
                device="cpu",
                architecture="x86_64",
                cpus=2,
                worker_threads=1,
                python="3.11.9",
                torch="2.13.0+cpu",
                system="Linux 6.8",
                sandbox="bubblewrap",
            ),
            "stages": stages(mode),
            "scored_cells": [one.name for one in timed],
            "cells": timed,
            "baselines": [
                BaselineState(name="token_loop", role="reference", state="available"),
                BaselineState(name="chunked_fp32", role="competitor", state="available"),
                BaselineState(name="fla", role="official", state="unavailable", note="no module fla"),
            ],
            "accuracy": [accuracy(), accuracy("token_loop", error=0.95)],
            "grade": grade() if mode == "exam" else None,
            "checked_timed_calls": 80 if mode in {"full", "exam"} else 0,
        }
    )
    return made.model_copy(update=fields)


def refused(number: int = 1, claimed: float | None = 3.74, **fields: Any) -> Attempt:
    """An attempt refused by a probe, with what it would have claimed."""
    claim = None
    if claimed is not None:
        one = cell(speedup=claimed)
        claim = evaluation("claim", cells=[one.model_copy(update={"rounds": one.rounds[:1]})])
    facts = evaluation("quick", candidate_name=f"torch_attempt_{number}", refusal=refusal(**fields))
    return Attempt(number=number, evaluation=facts, claim=claim)


def agent_run(*attempts: Attempt) -> AgentRun:
    """A run of the replay model with these attempts."""
    return AgentRun(
        model="replay",
        turns=14,
        seconds=61.5,
        input_tokens=24_000,
        output_tokens=5_100,
        stopped="submitted",
        submitted=True,
        attempts=list(attempts),
        feedback_seconds=[2.9, 3.1, 3.0],
    )


def report_facts(*runs: Evaluation, **fields: Any) -> ReportFacts:
    """Facts of a report on these runs, or on one good exam."""
    pooled = list(runs) or [evaluation()]
    made = ReportFacts(evaluations=pooled, verdict=decide(pooled), run_number=len(pooled))
    return made.model_copy(update=fields)
