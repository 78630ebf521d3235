"""An exam spread over runners: each leaves its part, the publisher joins them or says what is missing."""

import pytest

from bot.errors import UsageError
from bot.evaluation import Evaluation, Job
from bot.forge.actions import Actions
from bot.handlers.evidence import EXAM, load_record
from bot.handlers.examine import examine
from bot.handlers.run import RunFolder
from bot.launch import Watch
from tests.handlers.conftest import PATH
from tests.handlers.street import Street
from tests.report.builders import evaluation
from tests.test_merge import dealt
from tests.verify.conftest import HONEST


def part_of(street: Street, job: Job, watch: Watch = lambda _: None) -> Evaluation:
    """What the played verifier finds of one shard."""
    whole = street.examiner(job.model_copy(update={"shard": None}))
    assert job.shard is not None
    found = dealt(whole, job.shard.of)[job.shard.number - 1]
    salt = f"{len(street.examiner.jobs)}-{found.salt}"
    again = found.confirmation
    second = again.model_copy(update={"salt": f"{salt}-again"}) if again else None
    return found.model_copy(update={"salt": salt, "confirmation": second})


def ordered(street: Street, *, shards: int = 2) -> tuple[int, RunFolder]:
    """A person's pull request whose exam two runners share."""
    number = street.proposal({PATH: HONEST})
    street.town.person("maintainer").post(f"issues/{number}/comments", body="/verify")
    passed, run = street.town.gate(shards=shards)
    assert passed.go
    assert passed.shards == run.order().shards == shards
    return number, run


def hold(street: Street, run: RunFolder, number: int) -> None:
    def launcher(job: Job, watch: Watch = lambda _: None) -> Evaluation:
        return part_of(street, job, watch)

    examine(run, street.town.project, launcher, lambda _: None, number)


def test_two_runners_share_an_exam_and_its_record_is_one_evaluation(street: Street) -> None:
    number, run = ordered(street)
    for shard in (2, 1):
        hold(street, run, shard)
    assert run.evaluations() == []
    done = street.published(run)
    assert done.verdict is not None
    assert (done.verdict.kind.value, done.verdict.runs) == ("improved", 1)
    assert {cell.name for cell in done.verdict.cells} == set(evaluation().scored_cells)
    assert street.statuses(number)[EXAM] == ("success", "improved, 1 runs")
    (kept,) = run.evaluations()
    assert kept.shard is None
    assert kept.salt.count("+") == 1


def test_what_one_runner_did_not_bring_is_named_and_nothing_is_published(street: Street) -> None:
    number, run = ordered(street)
    hold(street, run, 2)
    with pytest.raises(UsageError, match=r"^shard 1 of 2 is missing$"):
        street.published(run)
    assert street.statuses(number)[EXAM][0] == "pending", "the reconciler will say that it was interrupted"


def test_there_is_no_shard_beyond_the_order(street: Street) -> None:
    _, run = ordered(street)
    with pytest.raises(UsageError, match="there is no shard 3: the exam is spread over 2"):
        hold(street, run, 3)


def test_no_more_shards_than_workloads_that_are_scored(street: Street) -> None:
    _, run = ordered(street, shards=2)
    street.town.person("maintainer").post("issues/1/comments", body="/verify")
    assert street.town.gate(shards=16)[1].order().shards == run.order().shards


def test_a_rerun_of_one_workload_is_not_spread(street: Street) -> None:
    number = street.bots()
    street.town.person("maintainer").post(f"issues/{number}/comments", body="/rerun-bench workload=packed rounds=8")
    _, run = street.town.gate(shards=2)
    order = run.order()
    assert (order.shards, order.workload, order.rounds) == (1, "packed", 8)
    street.finish(run)
    job = street.examiner.jobs[-1]
    assert (job.workload, job.rounds, job.shard) == ("packed", 8, None)
    record = load_record(street.town.github.pull(number), "center", street.town.remote)
    assert len(record.evaluations) == 2


@pytest.mark.sandbox
@pytest.mark.alone
def test_the_workflow_files_spread_an_exam_over_a_matrix(street: Street) -> None:
    town, lines = street.town, list[str]()
    number = street.proposal({PATH: HONEST})
    variables = {"PROCTOR_DEVICE": "cpu", "PROCTOR_SHARDS": "2"}
    actions = Actions(town.forge, town.folder / "runs", "bot-token", variables, lines.append)
    actions.listen()
    town.person("maintainer").post(f"issues/{number}/comments", body="/verify")
    actions.drain()
    # The other workflow is started by the comment too, and its gate is skipped.
    (run,) = [run for run in town.forge.state.runs() if run.workflow == "commands"]
    jobs = [(job.name, job.conclusion) for job in run.jobs]
    assert jobs == [
        ("gate", "success"),
        ("verify / exam (1)", "success"),
        ("verify / exam (2)", "success"),
        ("publish", "success"),
    ], "\n".join(lines)
    assert [r.job for r in actions.results if r.workflow == "commands"] == ["gate", "verify", "publish"]
    (record,) = RunFolder(next(town.folder.glob("runs/*/run"))).evaluations()
    assert len({cell.workload for cell in record.cells}) == 2
    assert street.statuses(number)[EXAM][0] in {"success", "failure"}
