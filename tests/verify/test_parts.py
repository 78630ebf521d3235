"""Exams of a part: a shard's cells, one workload alone, another number of rounds."""

from collections import Counter

import pytest

from bot import digest
from bot.contract.load import load_contract
from bot.errors import UsageError
from bot.evaluation import Job, Shard
from bot.launch import launch
from bot.verify.exam import Exam
from bot.verify.oracle import load_oracle
from bot.verify.plan import baseline_kernels, plan_checks, plan_stages, plan_turns
from tests.report.builders import evaluation
from tests.verify.conftest import CENTER, CONTRACTS, HONEST

JOB = Job(contracts_dir=str(CONTRACTS), contract="center", candidate_name="torch_x.py", source=HONEST, mode="full")
LOADED = load_contract(CONTRACTS, "center")


def planned(**part: object) -> Exam:
    """An exam that is planned and not held."""
    exam = Exam(JOB.model_copy(update=part), LOADED, load_oracle(CENTER), bytes(32), lambda _: None, None)
    exam.checks = plan_checks(exam)
    exam.turns = plan_turns(exam)
    exam.baselines_planned = baseline_kernels(exam)
    exam.plan = plan_stages(exam)
    return exam


def cells(exam: Exam) -> Counter[str]:
    return Counter(c.recipe.name for c in exam.checks if c.stage == "correctness" and c.recipe.kind == "cell")


def test_shards_hold_the_cells_between_them_and_each_everything_else() -> None:
    whole, parts = planned(), [planned(shard=Shard(number=number, of=2)) for number in (1, 2)]
    assert cells(parts[0]) + cells(parts[1]) == cells(whole)
    assert not cells(parts[0]) & cells(parts[1])
    assert sorted(p.scored() != [] for p in parts) == [True, True]
    for part in parts:
        assert {stage: part.plan[stage] for stage in ("build", "smoke", "probes", "relations")} == {
            stage: whole.plan[stage] for stage in ("build", "smoke", "probes", "relations")
        }
    assert sum(part.plan["timing"] for part in parts) == whole.plan["timing"]


def test_shards_draw_from_salts_of_their_own_even_if_the_salt_were_one() -> None:
    roots = {planned(shard=Shard(number=number, of=2)).root.child("x").below(2**30)[0] for number in (1, 2)}
    assert len(roots) == 2


def test_one_workload_alone_and_its_rounds() -> None:
    exam = planned(workload="packed", rounds=5)
    assert {workload.name for workload, _ in exam.scored()} == {"packed"}
    assert exam.plan["timing"] == 5 * len(exam.scored())
    confirming = planned(workload="packed", rounds=5, mode="confirm")
    assert confirming.plan["timing"] == len(exam.scored()), "a confirmation has one round, whatever was asked for"


@pytest.mark.sandbox
def test_an_exam_of_a_part_says_so() -> None:
    found = launch(JOB.model_copy(update={"workload": "packed", "rounds": 3}))
    assert (found.workload, found.shard, found.refusal) == ("packed", None, None)
    assert {name.partition("/")[0] for name in found.scored_cells} == {"packed"}
    assert all(len(cell.rounds) == 3 for cell in found.cells)


@pytest.mark.sandbox
def test_a_part_without_anything_to_score_is_refused() -> None:
    with pytest.raises(UsageError, match="this shard 16 has nothing to score"):
        launch(JOB.model_copy(update={"shard": Shard(number=16, of=16)}))


def test_there_is_no_third_of_two_shards() -> None:
    with pytest.raises(ValueError, match="no shard 3 of 2"):
        Shard(number=3, of=2)


LATER = {"workload", "shard", "latency", "machine_code", "packages", "host_bound", "baseline_claimed_ns"}
LATER |= {"memory_mhz", "ceilings_sm_mhz", "moving_ns", "computing_ns", "clocks_mhz", "replay_ns", "baseline_replay_ns"}
"""Fields that the evaluations of the first reports do not have."""


def without(told: object) -> object:
    if isinstance(told, dict):
        return {name: without(held) for name, held in told.items() if held or name not in LATER}
    return [without(held) for held in told] if isinstance(told, list) else told


def test_what_an_evaluation_does_not_say_leaves_its_digest_as_it_was() -> None:
    whole = evaluation()
    before = without(whole.model_dump(mode="json"))
    assert whole.digest() == digest.of_document(before)
    assert whole.model_copy(update={"workload": "packed"}).digest() != whole.digest()
