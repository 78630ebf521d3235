"""Shards joined: in any order the same, as the whole where cells are independent, and refused by name when they do not
belong together."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.errors import UsageError
from bot.evaluation import Evaluation, Shard
from bot.merge import merge
from bot.verdict import Kind, decide
from tests.report.builders import cell, confirmation, evaluation, grade, refusal

WORKLOADS = ("a", "b", "c", "d", "e")


def whole(speedups: Sequence[float]) -> Evaluation:
    """An exam of one cell a workload and regime; `seconds` and stages as four shards would add up to."""
    cells = [cell(w, r, s) for w, s in zip(WORKLOADS, speedups, strict=False) for r in ("fast", "slow")]
    return evaluation(cells=cells)


def dealt(exam: Evaluation, of: int) -> list[Evaluation]:
    """The shards that the exam would have had: their own cells and salts, and their share of each count."""
    names = list(dict.fromkeys(cell.workload for cell in exam.cells))
    return [_part(exam, number, of, names[number - 1 :: of]) for number in range(1, of + 1)]


def _part(exam: Evaluation, number: int, of: int, workloads: Sequence[str]) -> Evaluation:
    cells = [cell for cell in exam.cells if cell.workload in workloads]
    stages = []
    for record in exam.stages:
        count = record.planned // of + (record.planned % of if number == of else 0)
        stages.append(record.model_copy(update={"planned": count, "done": count, "seconds": record.seconds / of}))
    second = exam.confirmation
    return exam.model_copy(
        update={
            "shard": Shard(number=number, of=of),
            "cells": cells,
            "scored_cells": [cell.name for cell in cells],
            "salt": f"{exam.mode}-{number}",
            "salt_commitment": f"sha-{exam.mode}-{number}",
            "stages": stages,
            "checked_timed_calls": exam.checked_timed_calls // of,
            "confirmation": _part(second, number, of, workloads) if second else None,
        }
    )


def facts(exam: Evaluation) -> dict[str, Any]:
    """What an exam and its joined shards have in common."""
    found = exam.model_dump(exclude={"salt", "salt_commitment", "confirmation", "stages", "checked_timed_calls"})
    found["cells"] = sorted(found["cells"], key=lambda one: (one["workload"], one["regime"]))
    found["scored_cells"] = sorted(found["scored_cells"])
    found["stages"] = [(record.name, record.status) for record in exam.stages]
    return found


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_shards_in_any_order_are_the_whole(data: st.DataObject) -> None:
    speedups = data.draw(st.lists(st.sampled_from([0.6, 0.9, 1.0, 1.3, 2.0]), min_size=1, max_size=5))
    exam = whole(speedups)
    of = data.draw(st.integers(1, len(speedups)))
    shards = dealt(exam, of)
    joined = merge(data.draw(st.permutations(shards)))
    assert joined == merge(shards)
    assert facts(joined) == facts(exam)
    assert joined.confirmation is not None
    assert exam.confirmation is not None
    assert facts(joined.confirmation) == facts(exam.confirmation)
    assert joined.salt == "+".join(f"exam-{number}" for number in range(1, of + 1))
    there, here = decide([exam]), decide([joined])
    assert (here.kind, here.accepted, here.noise_floor) == (there.kind, there.accepted, there.noise_floor)
    assert [(c.name, c.direction) for c in here.cells] == [(c.name, c.direction) for c in there.cells]


def test_what_one_shard_refused_is_refused() -> None:
    one, two, three = dealt(whole([1.5, 1.5, 1.5]), 3)
    worst = refusal(kind="tampered", where="probe x")
    two = two.model_copy(update={"refusal": refusal(kind="timed_out"), "confirmation": None})
    three = three.model_copy(update={"refusal": worst, "confirmation": None})
    joined = merge([one, two, three])
    assert joined.refusal == worst
    assert joined.confirmation is None
    assert decide([joined]).kind == Kind.TAMPERED


@pytest.mark.parametrize(
    "lacking",
    [
        {"stages": []},
        {"confirmation": None},
        {"checked_timed_calls": 0},
        {"grade": None, "stages": evaluation("full").stages},
    ],
    ids="+".join,
)
def test_evidence_must_be_there_from_every_shard(lacking: dict[str, Any]) -> None:
    one, two = dealt(whole([1.5, 1.5]), 2)
    assert decide([merge([one, two])]).kind == Kind.IMPROVED
    joined = merge([one, two.model_copy(update=lacking)])
    assert decide([joined]).kind in {Kind.NO_GAIN, Kind.INFRASTRUCTURE}


def test_a_control_that_passed_in_one_shard_passed() -> None:
    one, two = dealt(whole([1.5, 1.5]), 2)
    weak = two.model_copy(update={"grade": grade(survivors=["controls/history_cut_32.py"])})
    assert decide([merge([one, weak])]).kind == Kind.VERIFIER_WEAK
    strict = two.model_copy(update={"grade": grade(refused_faithful=["faithful/chunked.py"])})
    assert decide([merge([one, strict])]).kind == Kind.VERIFIER_WEAK


def test_a_baseline_counts_where_every_shard_had_it() -> None:
    one, two = dealt(whole([1.5, 1.5]), 2)
    lost = [b.model_copy(update={"state": "incorrect", "note": "wrong"}) for b in two.baselines[:1]]
    joined = merge([one, two.model_copy(update={"baselines": lost + two.baselines[1:]})])
    assert (joined.baselines[0].state, joined.baselines[0].note) == ("incorrect", "wrong")
    assert decide([joined]).kind != Kind.IMPROVED


def _changed(part: Evaluation, **fields: Any) -> Evaluation:
    return part.model_copy(update=fields)


def test_what_does_not_belong_together_is_refused_by_name() -> None:
    one, two, three = dealt(whole([1.5, 1.4, 1.3]), 3)
    other = two.environment.model_copy(update={"device": "another"})
    cases: dict[str, list[Evaluation]] = {
        "shard 2 of 3 is missing": [one, three],
        "shard 1, 3 of 3 is missing": [two],
        "shard 2 of 3 is there twice": [one, two, two, three],
        "shard 2 has another judge_digest than shard 1": [one, _changed(two, judge_digest="0" * 64), three],
        "shard 3 has another contract_digest than shard 1": [one, two, _changed(three, contract_digest="0" * 64)],
        "shard 2 has another candidate_digest than shard 1": [one, _changed(two, candidate_digest="0" * 64), three],
        "shard 2 has another mode, prepared than shard 1": [one, _changed(two, mode="full", prepared=True), three],
        "shard 2 has another environment.device than shard 1": [one, _changed(two, environment=other), three],
        "two shards scored the same cell": [one, _changed(two, scored_cells=one.scored_cells), three],
        "two shards drew from the same salt": [one, _changed(two, salt=one.salt), three],
        "these are not the shards of one exam": [one, two, _changed(three, shard=Shard(number=3, of=4))],
    }
    for said, parts in cases.items():
        with pytest.raises(UsageError, match=f"^{said}$"):
            merge(parts)
    for none in ([], [evaluation()]):
        with pytest.raises(UsageError, match="not the shards"):
            merge(none)


def test_a_salt_of_a_confirmation_is_no_salt_of_an_exam() -> None:
    one, two = dealt(whole([1.5, 1.5]), 2)
    assert two.confirmation is not None
    copied = _changed(two, confirmation=_changed(confirmation(two), salt=one.salt))
    with pytest.raises(UsageError, match="the same salt"):
        merge([one, copied])
