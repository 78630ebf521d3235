"""`/rerun-bench` and `/verify`: a pull request to the order for an exam. Nothing of its head is run, only read.

The first measures once more what the bot opened, and pools. The second examines anybody's kernel, and a pull request of
the bot that people have changed: its record is the bot's own, on the branch of evidence.
"""

from collections.abc import Sequence

from bot import digest
from bot.errors import UsageError
from bot.github.api import GitHub, Pull, Status
from bot.github.claims import issue_of
from bot.github.commands import RerunBench
from bot.github.events import CommentCreated
from bot.github.push import default_branch
from bot.github.refusals import (
    ASSISTED,
    CLOSED,
    CONTRACT_CHANGED,
    FORK,
    JUDGE_CHANGED,
    NO_RECORD,
    NOT_ON_PULL,
    NOT_OURS,
    RUN_GOES_ON,
)
from bot.handlers.asked import Gate, Passed, check_workload, contract_of, shards_of
from bot.handlers.bench import bench_of, benches
from bot.handlers.digests import digests_of
from bot.handlers.evidence import (
    EXAM,
    Record,
    authors_of,
    incumbents_at,
    kernel_of,
    load_record,
    load_verified,
    next_run,
    read_kernel,
    untouched,
)
from bot.handlers.run import Candidate, Order
from bot.sanitize import code_span, plain_line


def rerun(event: CommentCreated, command: RerunBench, tools: Gate) -> Passed:
    """Leave the order to measure a pull request of the bot again.

    Raises:
        RefusedError: it is not one, is not as it was opened, or an argument cannot be followed.
    """
    pull = _pull(event, "/rerun-bench", tools.github)
    if pull.author != tools.github.bot_login() or issue_of(pull.head_ref) is None:
        raise NOT_OURS.error()
    said = tools.github.statuses(pull.head_sha)
    if not untouched(pull, tools.github, said):
        raise ASSISTED.error()
    return _again(event, pull, command, said, tools)


def verify(event: CommentCreated, tools: Gate) -> Passed:
    """Leave the order to examine the kernel of a pull request, whoever wrote it.

    Raises:
        RefusedError: it holds not one kernel, or comes from a fork.
    """
    github = tools.github
    pull = _pull(event, "/verify", github)
    said = github.statuses(pull.head_sha)
    if untouched(pull, github, said):
        return _again(event, pull, RerunBench(), said, tools)
    _alone(event, tools)
    by_bot = pull.author == github.bot_login()
    candidate = read_kernel(tools.remote, pull.head_sha, kernel_of(github.pull_files(pull.number), by_bot=by_bot))
    operation = candidate.path.split("/")[1]
    loaded = contract_of(tools.project, operation)
    try:
        record = load_verified(pull.number, candidate, tools.remote)
    except UsageError as error:
        raise NO_RECORD.error(detail=code_span(plain_line(str(error)))) from None
    if record is not None and record.evaluations[-1].contract_digest != loaded.digest:
        record = None
    _, base_sha = default_branch(tools.remote)
    order = Order(
        kind="verify",
        repo=event.repo,
        number=pull.number,
        issue=issue_of(pull.head_ref) or pull.number,
        contract=operation,
        device=tools.device,
        requester=event.author,
        base_branch=pull.base_ref,
        base_sha=base_sha,
        digests=digests_of(tools.project, operation),
        head_sha=pull.head_sha,
        run_number=next_run(pull, operation, tools.remote),
        assisted=by_bot,
        authors=authors_of(pull, github),
        shards=shards_of(loaded, tools),
    )
    return _start(event, order, candidate, record, tools)


def _pull(event: CommentCreated, command: str, github: GitHub) -> Pull:
    if not event.on_pull:
        raise NOT_ON_PULL.error(command=command)
    pull = github.pull(event.number)
    if not pull.same_repository:
        raise FORK.error()
    if pull.state != "open":
        raise CLOSED.error(what="pull request", act=f"comment `{command}`")
    return pull


def _again(event: CommentCreated, pull: Pull, command: RerunBench, said: Sequence[Status], tools: Gate) -> Passed:
    github = tools.github
    # The head has been the same since the pull request was opened: what it says of an exam is all there is to know.
    newest = next((status for status in said if status.context == EXAM and status.creator == github.bot_login()), None)
    if newest is not None and newest.state == "pending":
        _alone(event, tools)
    path = kernel_of(github.pull_files(pull.number), by_bot=True)
    loaded = contract_of(tools.project, path.split("/")[1])
    if command.workload is not None:
        check_workload(loaded, command.workload, tools.device, scored=True)
    candidate = read_kernel(tools.remote, pull.head_sha, path)
    try:
        record = load_record(pull, loaded.contract.name, tools.remote)
    except UsageError as error:
        raise NO_RECORD.error(detail=code_span(plain_line(str(error)))) from None
    if any(run.contract_digest != loaded.digest for run in record.evaluations):
        raise CONTRACT_CHANGED.error()
    if command.workload is not None and record.evaluations[-1].judge_digest != digest.of_judge():
        raise JUDGE_CHANGED.error()
    _, base_sha = default_branch(tools.remote)
    order = record.order.model_copy(
        update={
            "kind": "rerun",
            "number": pull.number,
            "device": tools.device,
            "base_sha": base_sha,
            "digests": digests_of(tools.project, loaded.contract.name),
            "head_sha": pull.head_sha,
            "run_number": next_run(pull, loaded.contract.name, tools.remote),
            "exams": command.n,
            "against": command.against,
            "workload": command.workload,
            "rounds": command.rounds,
            "shards": 1 if command.workload else shards_of(loaded, tools),
        }
    )
    return _start(event, order, candidate, record, tools)


def _alone(event: CommentCreated, tools: Gate) -> None:
    """Nothing, when no exam of this pull request goes on.

    Raises:
        RefusedError: one does.
    """
    going = bench_of(benches(tools.github), event.number, "commands")
    if going is not None:
        raise RUN_GOES_ON.error(run=going.link, what="pull request", stop="/cancel-bench")


def _start(event: CommentCreated, order: Order, candidate: Candidate, record: Record | None, tools: Gate) -> Passed:
    """Claim, write what the next job needs, and say on the head that an exam goes on."""
    github, folder = tools.github, tools.folder
    base = record.order.base_sha if record is not None and order.against == "report" else order.base_sha
    incumbents = incumbents_at(tools.remote, base, order.contract, order.device)
    if not github.claim(tools.claim_of(event.number, event.key), order.base_sha):
        return Passed("ignored: this event has been handled")
    folder.write_order(order.model_copy(update={"workflow_run": tools.run}))
    folder.write_candidate(candidate)
    folder.write_incumbents(incumbents)
    if record is not None:
        if record.agent_run is not None:
            folder.write_agent(record.agent_run)
        for number, evaluation in zip(record.numbers, record.evaluations, strict=True):
            folder.write_evaluation(evaluation, number)
    head = order.head_sha or ""
    github.set_status(head, EXAM, "pending", f"run {order.run_number} goes on", tools.run_url)
    why = f"run {order.run_number} of pull request {order.number}"
    return Passed(why, go=True, shards=order.shards, base=order.base_sha)
