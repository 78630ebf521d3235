"""The last job: what was found goes to GitHub. It has the write token and runs nothing of the candidate's.

An accepted candidate becomes a pull request with its report; without one the issue gets the reason. A rerun, and the
exam of other people's kernels, adds its evaluations to the evidence branch and renews the report; neither pushes to the
pull request.
"""

from dataclasses import dataclass

from bot.contract.load import Incumbents, dump_yaml, parse_yaml, validate
from bot.errors import GitHubError, UsageError
from bot.evaluation import Evaluation
from bot.github.api import GitHub
from bot.github.approvals import Rule
from bot.github.claims import EVIDENCE_BRANCH, issue_branch
from bot.github.push import (
    Change,
    Identity,
    Remote,
    append_files,
    default_branch,
    list_files,
    push_files,
    read_files,
)
from bot.github.refusals import RefusedError
from bot.github.request import request_digest
from bot.handlers.approve import approve
from bot.handlers.asked import GONE, PROGRESS, speak
from bot.handlers.evidence import EXAM, PUBLISHED, REPORT, exam_status, pooled, record_folder
from bot.handlers.reporting import facts_of, report_of
from bot.handlers.rule import rule_at
from bot.handlers.run import Candidate, Order, RunFolder
from bot.report import influence
from bot.report.comment import ReportFacts, render_comment, render_issue_outcome
from bot.sanitize import code_span
from bot.verdict import Verdict, decide


@dataclass(frozen=True, slots=True)
class Publisher:
    """What the publishing job works with."""

    github: GitHub
    remote: Remote
    folder: RunFolder
    author: Identity


@dataclass(frozen=True, slots=True)
class Published:
    """What came of it: the pull request, if there is one, the verdict over all runs, and what the report speaks of.
    `void`: why nothing is published."""

    pull: int | None
    verdict: Verdict | None
    facts: ReportFacts | None = None
    void: str = ""


def publish(tools: Publisher) -> Published:
    """Publish what the run folder holds.

    Raises:
        UsageError: there is no order, or the branch holds other people's commits.
        GitHubError: GitHub did not do what it should.
    """
    tools.folder.join()
    order, candidate, runs = tools.folder.order(), tools.folder.candidate(), tools.folder.numbered()
    runs = pooled(runs) if runs else runs
    evaluations = list(runs.values())
    verdict = decide(evaluations) if evaluations else None
    if order.kind == "optimize" and (why := _withdrawn(order, tools.github)):
        return _publish_nothing(order, why, verdict, tools)
    if order.kind != "optimize":
        if verdict is None or order.run_number not in runs:
            raise UsageError(f"the {order.kind} has no evaluation: the exam was not held")
        return _publish_rerun(order, runs, verdict, tools)
    if candidate is None or verdict is None or verdict.kind not in PUBLISHED:
        return _publish_outcome(order, evaluations, verdict, tools)
    return _open(order, candidate, evaluations, verdict, tools)


def _withdrawn(order: Order, github: GitHub) -> str:
    """Why nobody asks for this run any more; empty when somebody does."""
    try:
        issue = github.issue(order.issue)
    except GitHubError as error:
        if error.status not in GONE:
            raise
        return "the issue is gone"
    if issue.state != "open":
        return "the issue was closed meanwhile"
    if order.request_digest and request_digest(issue.title, issue.body) != order.request_digest:
        return "the issue was edited meanwhile, so that what was done is not what it says now"
    return ""


def _publish_nothing(order: Order, why: str, verdict: Verdict | None, tools: Publisher) -> Published:
    text = f"Void: {why}. Nothing of this run is published; label the issue again to start anew."
    speak(tools.github, order.issue, PROGRESS, order.workflow_run, text)
    return Published(None, verdict, void=why)


def _open(
    order: Order, candidate: Candidate, evaluations: list[Evaluation], verdict: Verdict, tools: Publisher
) -> Published:
    branch = issue_branch(order.issue)
    record = record_folder(order)
    files = {f"{record}/{name}": data for name, data in tools.folder.workspace_files().items() if _kept(name)}
    files |= {
        candidate.path: candidate.source.encode(),
        f"kernels/{order.contract}/index.yaml": _index(order, candidate, evaluations[-1], tools.remote),
        f"{record}/order.json": order.model_dump_json(indent=1).encode() + b"\n",
        f"{record}/evaluations/{order.run_number:03d}.json": evaluations[-1].model_dump_json(indent=1).encode() + b"\n",
    }
    agent_run = tools.folder.agent()
    if agent_run is not None:
        files[f"{record}/agent.json"] = agent_run.model_dump_json(indent=1).encode() + b"\n"
        for attempt in agent_run.attempts:
            files |= _picture(f"{record}/influence/attempt_{attempt.number:03d}.svg", attempt.evaluation)
    facts = ReportFacts(
        evaluations=evaluations, verdict=verdict, agent_run=agent_run, run_number=order.run_number, issue=order.issue
    )
    files[f"{record}/report.md"] = render_comment(facts).encode()
    change = Change(
        operation=order.contract,
        base_sha=order.base_sha,
        files=files,
        message=f"Add {candidate.path}, {verdict.kind.value}\n\nFor #{order.issue}, asked for by {order.requester}.\n",
        author=tools.author,
    )
    head = push_files(tools.remote, branch, change)
    # Before there is a pull request: whoever looks at one whose first status is another takes it for somebody else's.
    tools.github.set_status(head, EXAM, *exam_status(verdict, assisted=False))
    title = f"{order.contract}: {candidate.name}, {verdict.kind.value}"
    body = (
        f"A candidate for #{order.issue}, written by an agent and examined by the verifier of `{order.base_sha[:12]}`. "
        "The report is the comment below; the evidence is in "
        f"`{record}/`. `/rerun-bench` measures again.\n{_for_reviewers(order)}"
    )
    pull = tools.github.open_pull(branch, order.base_branch, title, body)
    _report(order, facts, verdict, pull.number, head, tools)
    speak(
        tools.github,
        order.issue,
        PROGRESS,
        order.workflow_run,
        f"`{verdict.kind.value}`: the candidate and its report are in #{pull.number}.",
    )
    return Published(pull.number, verdict, facts)


def _for_reviewers(order: Order) -> str:
    """What the requester wants, which the exam does not look at, and what the issue hid from its readers."""
    lines = [f"Worth merging, says the requester: {code_span(order.criteria, 1000)}"] if order.criteria else []
    lines += [f"A call must be, which is not examined: {', '.join(order.rules)}"] if order.rules else []
    if order.hidden:
        shown = "; ".join(code_span(part.replace("<!", "‹!")) for part in order.hidden[:20])
        lines.append(f"The issue held hidden text, which no model was shown: {shown}")
    return "".join(f"\n- {line}" for line in lines) + ("\n" if lines else "")


def _kept(name: str) -> bool:
    """The agent's journal, lessons and every candidate; not what it was given to read."""
    return name in {"journal.jsonl", "lessons.md"} or name.startswith("candidates/")


def _picture(path: str, evaluation: Evaluation) -> dict[str, bytes]:
    """The influence map of a refusal as a file; not beside the evaluations, where all that stands is read as one."""
    drawn = influence.of_evaluation(evaluation)
    return {} if drawn is None else {path: drawn.encode()}


def _index(order: Order, candidate: Candidate, newest: Evaluation, remote: Remote) -> bytes:
    """Merging the pull request makes the candidate the incumbent of what it was examined on, and of nothing else."""
    path = f"kernels/{order.contract}/index.yaml"
    known: dict[str, str] = {}
    if path in list_files(remote, order.base_sha, f"kernels/{order.contract}"):
        text = read_files(remote, order.base_sha, [path])[path].decode("utf-8", "replace")
        known = validate(Incumbents, parse_yaml(text, path), path).incumbents
    return dump_yaml(Incumbents(incumbents={**known, newest.environment.target: candidate.name}).model_dump()).encode()


def _publish_rerun(order: Order, runs: dict[int, Evaluation], verdict: Verdict, tools: Publisher) -> Published:
    head = order.head_sha
    if head is None:
        raise UsageError("a rerun's order names no head")
    record = record_folder(order)
    new = {number: run for number, run in runs.items() if number >= order.run_number}
    files: dict[str, bytes] = {}
    for number, run in new.items():
        files[f"{record}/orders/{number:03d}.json"] = order.model_dump_json(indent=1).encode() + b"\n"
        files[f"{record}/evaluations/{number:03d}.json"] = run.model_dump_json(indent=1).encode() + b"\n"
        files |= _picture(f"{record}/influence/run_{number:03d}.svg", run)
    if order.kind == "verify":
        files[f"{record}/order.json"] = order.model_dump_json(indent=1).encode() + b"\n"
    change = Change(
        operation=order.contract,
        base_sha=order.base_sha,
        files=files,
        message=f"Add run {', '.join(map(str, new))} of #{order.number}\n",
        author=tools.author,
    )
    append_files(tools.remote, EVIDENCE_BRANCH, change, new=[path for path in files if "/evaluations/" in path])
    facts = facts_of(order, runs, tools.folder.agent())
    _report(order.model_copy(update={"run_number": max(new)}), facts, verdict, order.number, head, tools)
    return Published(order.number, verdict, facts)


def _report(order: Order, facts: ReportFacts, verdict: Verdict, number: int, head: str, tools: Publisher) -> None:
    """Sticky comment, exam status, and the approval anew: a changed verdict voids what was approved."""
    try:
        needed = rule_at(tools.remote, default_branch(tools.remote)[1]).needed
    except RefusedError:
        # The approval's status says that it has mistakes.
        needed = Rule().needed
    speak(tools.github, number, REPORT, order.run_number, report_of(facts, number, head, needed))
    if order.kind != "optimize":
        tools.github.set_status(head, EXAM, *exam_status(verdict, assisted=order.assisted))
    approve(number, tools.github, tools.remote)


def _publish_outcome(
    order: Order, evaluations: list[Evaluation], verdict: Verdict | None, tools: Publisher
) -> Published:
    facts = ReportFacts(
        evaluations=evaluations,
        verdict=verdict,
        agent_run=tools.folder.agent(),
        run_number=order.run_number,
        issue=order.issue,
    )
    speak(tools.github, order.issue, PROGRESS, order.workflow_run, render_issue_outcome(facts))
    return Published(None, verdict, facts)
