"""Evaluations as the verifier would write them, for tests of whoever reads them. Keywords replace any field."""

import math
import random
from collections.abc import Callable, Sequence
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
    Influence,
    Refusal,
    Round,
    Smallest,
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
    planned = {"build": 1, "smoke": 1, "correctness": 27, "probes": 9, "influence": 12, "relations": 3, "integrity": 4}
    planned |= {"timing": 80, "controls": 9}
    names = {"quick": 7, "full": 8, "exam": 9, "confirm": 8, "claim": 1}[mode]
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


def smallest(**fields: Any) -> Smallest:
    """The same miss on one sequence of one token."""
    found = counterexample(axes={"H": 1, "lengths": [1]}, index=[0, 0, 0], error_units=61.0, candidate="1.2")
    made = Smallest(counterexample=found, inputs={"q": "as drawn", "k": "ones", "state": "absent"}, tried=9)
    return made.model_copy(update=fields)


def influence_map() -> list[Influence]:
    """A kernel that forgets after four parts, lets one later token reach an earlier one, and turns the state around."""
    return [
        picture("q", lambda part, reached: 1.02 if part == reached else None, final=None),
        picture("k", lambda part, reached: (0.99 if reached - part < 4 else 0.01) if reached >= part else None),
        picture("beta", lambda part, reached: 0.5 if reached >= part else None, leaks=[(3, 2)]),
        picture("state", lambda part, reached: -1.0 if reached < 5 else 2.5, final=1.0, axis="V"),
        picture("bias", lambda part, reached: 0.0, final=0.0, axis="last axis"),
    ]


def picture(
    name: str,
    share: Callable[[int, int], float | None],
    final: float | None = 1.0,
    leaks: Sequence[tuple[int, int]] = (),
    axis: str = "tokens",
) -> Influence:
    """Eight parts by eight of `out`, and eight of `final_state`, which all answer alike."""
    numbers = range(1, 9)
    return Influence(
        input=name,
        axis=axis,
        outputs=["out", "final_state"],
        shares=[[*(share(part, reached) for reached in numbers), *[final] * 8] for part in numbers],
        leaks=[[*((part, reached) in leaks for reached in numbers), *[False] * 8] for part in numbers],
    )


def taught(**fields: Any) -> Refusal:
    """A refusal with all that is found for people afterwards."""
    found = {"smallest": smallest(), "influence": influence_map(), "influence_where": "T256_H4/fast"}
    return refusal(**{**found, **fields})


def confirmed(**fields: Any) -> Evaluation:
    """An exam whose confirmation has these fields."""
    exam = evaluation()
    assert exam.confirmation is not None
    return exam.model_copy(update={"confirmation": exam.confirmation.model_copy(update=fields)})


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
    """An evaluation of an honest, faster candidate; consistent until a field is replaced, and confirmed if an exam."""
    measured = mode in {"full", "exam", "confirm"}
    timed = fields.pop("cells", cells() if measured else [])
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
            "checked_timed_calls": 80 if measured else 0,
        }
    )
    made = made.model_copy(update=fields)
    if mode == "exam" and made.refusal is None and "confirmation" not in fields:
        made = made.model_copy(update={"confirmation": confirmation(made)})
    return made


def confirmation(exam: Evaluation) -> Evaluation:
    """The same exam held again with another salt, which came out the same."""
    again = {"salt": "ef" * 32, "salt_commitment": "fe" * 32, "started_at": "2026-11-30T10:03:00Z", "seconds": 21.0}
    stages = [record for record in exam.stages if record.name != "controls"]
    return exam.model_copy(update={"mode": "confirm", "stages": stages, "grade": None, **again})


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


def simulated(
    seed: int, rounds: int = 2, *, worker: float = 0.01, call: float = 0.03, clean: bool = True, **fields: Any
) -> Evaluation:
    """A run of six cells and seven pairs a round, 1.5 times as fast as the bar, as noise leaves it.

    Relative deviations: `worker` of what a worker has for its life, in all cells; a third of it more in each cell;
    `call` of each call, one in ten up to some times longer. A third round is the confirming exam's. `clean`: the bar
    alone is as fast as beside the candidate, otherwise slower, so that no cell rests on its time alone.
    """
    rng = random.Random(seed)  # noqa: S311 - repeatable, not secret
    names = [f"w{i}" for i in range(6)]

    def times(mean: float, count: int) -> dict[str, list[int]]:
        life = rng.gauss(0, worker)
        means = {name: mean * math.exp(life + rng.gauss(0, worker / 3)) for name in names}
        return {name: [round(means[name] * math.exp(_late(rng, call))) for _ in range(count)] for name in names}

    def cells(count: int, alone: dict[str, list[int]]) -> list[Cell]:
        taken = [(times(BASE_NS / 1.5, 7), times(BASE_NS, 7)) for _ in range(count)]
        return [
            Cell(
                workload=name,
                regime="fast",
                bar="token_loop",
                rounds=[Round(first="candidate", candidate_ns=m[name], baseline_ns=b[name]) for m, b in taken],
                baselines=[BaselineTime(baseline="token_loop", clean_ns=alone[name])] if alone else [],
            )
            for name in names
        ]

    made = evaluation("exam", cells=cells(2, times(BASE_NS if clean else 2 * BASE_NS, 5)), confirmation=None)
    made = made.model_copy(update={"started_at": f"2026-11-30T11:00:00Z #{seed}", "salt": f"{seed:064x}", **fields})
    if rounds == 2:
        return made
    return made.model_copy(update={"confirmation": confirmation(made).model_copy(update={"cells": cells(1, {})})})


def _late(rng: random.Random, deviation: float) -> float:
    """Noise of a call: it is late more often than early."""
    late = abs(rng.gauss(0, 4 * deviation)) if rng.random() < 0.1 else 0.0
    return rng.gauss(0, deviation) + late
