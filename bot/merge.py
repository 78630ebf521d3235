"""Join the evaluations of an exam's shards into one. Pure; the order in which they come does not count.

Each shard holds the cells of its own workloads and everything else of the exam again, so that cells are gathered and
all other evidence must be there from every shard: what one of them refused, did not do or found unsound holds for all.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import zip_longest
from typing import Any, TypeVar

from bot.errors import UsageError
from bot.evaluation import (
    STAGES,
    Accuracy,
    BaselineState,
    ControlResult,
    Environment,
    Evaluation,
    Grade,
    Latency,
    Refusal,
    StageRecord,
)

T = TypeVar("T")
K = TypeVar("K")

_SAME = (
    "contract",
    "contract_version",
    "contract_digest",
    "judge_digest",
    "candidate_name",
    "candidate_digest",
    "mode",
    "workload",
    "prepared",
)
_MACHINE = ("device", "architecture", "worker_threads", "python", "torch", "sandbox")
_GPU = ("capability", "driver", "cuda")
_PRECEDENCE = ("tampered", "incorrect", "build_failed", "timed_out")
_STATES = ("incorrect", "unavailable", "available")


def merge(parts: Sequence[Evaluation]) -> Evaluation:
    """The evaluation that shards amount to.

    Raises:
        UsageError: a shard is missing, there twice, or of another exam; says which and what differs.
    """
    shards = _in_order(parts)
    _check_same(shards)
    confirmations = [part.confirmation for part in shards if part.confirmation is not None]
    first = min(shards, key=_begin)
    accuracy = (entry for part in shards for entry in part.accuracy)
    return shards[0].model_copy(
        update={
            "shard": None,
            "started_at": first.started_at,
            "seconds": round((max(map(_end, shards)) - _begin(first)).total_seconds(), 3),
            "salt_commitment": "+".join(part.salt_commitment for part in shards),
            "salt": "+".join(part.salt for part in shards),
            "stages": list(_stages(shards)),
            "refusal": _refusal(shards),
            "scored_cells": [name for part in shards for name in part.scored_cells],
            "cells": [cell for part in shards for cell in part.cells],
            "baselines": _joined((b for p in shards for b in p.baselines), lambda b: b.name, _worse_baseline),
            "accuracy": _joined(accuracy, lambda entry: (entry.kernel, entry.output), _worse_accuracy),
            "grade": _grade([part.grade for part in shards if part.grade is not None]),
            "checked_timed_calls": _least_or_sum([part.checked_timed_calls for part in shards]),
            "infrastructure": "; ".join(dict.fromkeys(part.infrastructure for part in shards if part.infrastructure)),
            "latency": _latency([part.latency for part in shards if part.latency is not None]),
            "confirmation": merge(confirmations) if len(confirmations) == len(shards) else None,
        }
    )


def _latency(parts: Sequence[Latency]) -> Latency | None:
    """What all shards spent, each on a machine of its own."""
    if not parts:
        return None
    return Latency.model_validate({work: round(sum(getattr(p, work) for p in parts), 3) for work, _ in parts[0]})


def _in_order(parts: Sequence[Evaluation]) -> list[Evaluation]:
    known: dict[int, Evaluation] = {}
    counts = {part.shard.of for part in parts if part.shard}
    if not parts or len(counts) > 1 or any(part.shard is None for part in parts):
        raise UsageError("these are not the shards of one exam")
    for part in parts:
        assert part.shard is not None  # noqa: S101 - looked at above
        if part.shard.number in known:
            raise UsageError(f"shard {part.shard.number} of {part.shard.of} is there twice")
        known[part.shard.number] = part
    of = counts.pop()
    if missing := [number for number in range(1, of + 1) if number not in known]:
        raise UsageError(f"shard {', '.join(map(str, missing))} of {of} is missing")
    return [known[number] for number in sorted(known)]


def _check_same(shards: Sequence[Evaluation]) -> None:
    first = shards[0]
    for number, part in enumerate(shards[1:], start=2):
        found = [name for name in _SAME if getattr(part, name) != getattr(first, name)]
        found += [f"environment.{name}" for name in _differing(part.environment, first.environment)]
        if found:
            raise UsageError(f"shard {number} has another {', '.join(found)} than shard 1")
    cells = [name for part in shards for name in part.scored_cells]
    if len(set(cells)) < len(cells):
        raise UsageError("two shards scored the same cell")
    salts = [run.salt for part in shards for run in part.runs]
    if len(set(salts)) < len(salts):
        raise UsageError("two shards drew from the same salt")


def _differing(one: Environment, other: Environment) -> Iterator[str]:
    yield from (name for name in _MACHINE if getattr(one, name) != getattr(other, name))
    yield from (name for name in _GPU if getattr(one.gpu, name, None) != getattr(other.gpu, name, None))


def _begin(part: Evaluation) -> datetime:
    return datetime.fromisoformat(part.started_at)


def _end(part: Evaluation) -> datetime:
    return _begin(part) + timedelta(seconds=part.seconds)


def _stages(shards: Sequence[Evaluation]) -> Iterator[StageRecord]:
    """What each stage did in all. It has passed where it has in every shard."""
    for name in STAGES:
        records = [record for part in shards for record in part.stages if record.name == name]
        if not records:
            continue
        states = {record.status for record in records} | ({"not_run"} if len(records) < len(shards) else set())
        worst = next(state for state in ("refused", "invalid", "not_run", "passed") if state in states)
        yield StageRecord.model_validate(
            {
                "name": name,
                "status": worst,
                "planned": sum(record.planned for record in records),
                "done": sum(record.done for record in records),
                "seconds": round(sum(record.seconds for record in records), 3),
                "note": "; ".join(dict.fromkeys(record.note for record in records if record.note)),
            }
        )


def _refusal(shards: Sequence[Evaluation]) -> Refusal | None:
    found = [part.refusal for part in shards if part.refusal]
    return min(found, key=lambda refusal: _PRECEDENCE.index(refusal.kind), default=None)


def _least_or_sum(counts: Sequence[int]) -> int:
    """0 where one of them is: no part of an exam may go unchecked."""
    return sum(counts) if all(counts) else 0


def _joined(items: Iterable[T], key: Callable[[T], K], worse: Callable[[T, T], T]) -> list[T]:
    """One of each key, in the order of first appearance."""
    found: dict[K, T] = {}
    for item in items:
        found[key(item)] = worse(found[key(item)], item) if key(item) in found else item
    return list(found.values())


def _worse_baseline(one: BaselineState, other: BaselineState) -> BaselineState:
    worst = min((one, other), key=lambda state: _STATES.index(state.state))
    notes = dict.fromkeys(note for note in (one.note, other.note) if note)
    loose = one.less_accurate or other.less_accurate
    return worst.model_copy(update={"less_accurate": loose, "note": "; ".join(notes)})


def _worse_accuracy(one: Accuracy, other: Accuracy) -> Accuracy:
    most: dict[str, Any] = {
        name: max(getattr(one, name), getattr(other, name)) for name in ("median", "p99", "maximum", "relative_l2")
    }
    octaves = [max(pair) for pair in zip_longest(one.octaves, other.octaves, fillvalue=0.0)]
    worst = max(one, other, key=lambda accuracy: accuracy.maximum)
    return worst.model_copy(update={**most, "octaves": octaves})


def _grade(grades: Sequence[Grade]) -> Grade | None:
    if not grades:
        return None
    return Grade(
        controls=_joined((c for grade in grades for c in grade.controls), lambda c: c.file, _weaker),
        faithful=_joined((c for grade in grades for c in grade.faithful), lambda c: c.file, _looser),
        variants=[c for grade in grades for c in grade.variants],
    )


def _weaker(one: ControlResult, other: ControlResult) -> ControlResult:
    """The one in which a control came closer to passing."""
    return min((one, other), key=lambda result: (result.refused, result.margin if result.margin is not None else 1e300))


def _looser(one: ControlResult, other: ControlResult) -> ControlResult:
    """The one in which an honest kernel came closer to being refused."""
    return max((one, other), key=lambda result: (result.refused, result.margin or 0.0))
