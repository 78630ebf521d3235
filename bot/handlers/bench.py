"""What goes on at this moment, and how to end it: GitHub's own list of workflow runs is asked, and nothing remembered.

A run belongs to an issue or pull request by its title, which the workflow files make of the number (`run-name`). It is
of interest once its gate has let something through; a gate itself takes seconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from bot.errors import UsageError
from bot.github import sticky
from bot.github.api import GitHub, Status, WorkflowJob, WorkflowRun
from bot.github.events import CommentCreated
from bot.github.push import default_branch
from bot.github.refusals import NO_RUN, NOT_ON_ISSUE, NOT_ON_PULL
from bot.github.request import read_request
from bot.handlers.approve import approve
from bot.handlers.asked import PROGRESS, WORKING, Gate, Passed, reply, speak
from bot.handlers.evidence import EXAM, RUN_URL
from bot.handlers.headroom import costs, read_earlier, target_of
from bot.report.figures import duration
from bot.sanitize import code_span

Workflow = Literal["commands", "optimize"]
_FILES: dict[str, Workflow] = {"commands.yml": "commands", "optimize.yml": "optimize"}
_OVER = frozenset({"skipped", "failure", "cancelled", "timed_out"})


@dataclass(frozen=True, slots=True)
class Bench:
    """A run that its gate has let through. `job`: the one that waits or goes on; None between two."""

    run: WorkflowRun
    job: WorkflowJob | None

    @property
    def link(self) -> str:
        """The run, as Markdown."""
        return f"[Run {self.run.id}]({self.run.url})"


def benches(github: GitHub) -> list[Bench]:
    """All that go on in this repository, oldest first."""
    ours = [run for run in github.unfinished_runs() if run.workflow in _FILES]
    found = (_bench(run, github.jobs(run.id)) for run in ours)
    return [bench for bench in found if bench is not None]


def _bench(run: WorkflowRun, jobs: Sequence[WorkflowJob]) -> Bench | None:
    gate = next((job for job in jobs if job.name == "gate"), None)
    if gate is None or gate.status != "completed":
        return None
    # A job that needs another is not in the list before that one has ended.
    open_ = [job for job in jobs if job.status != "completed"]
    over = any(job.conclusion in _OVER for job in jobs) or any(job.name == "publish" for job in jobs)
    return None if over and not open_ else Bench(run, open_[0] if open_ else None)


def bench_of(found: Sequence[Bench], number: int, workflow: Workflow) -> Bench | None:
    """The one of this issue or pull request."""
    mine = (b for b in found if _FILES[b.run.workflow] == workflow and b.run.title == f"{workflow} #{number}")
    return next(mine, None)


def _workflow(event: CommentCreated) -> Workflow:
    return "commands" if event.on_pull else "optimize"


def what_of(event: CommentCreated) -> str:
    """What somebody commented on."""
    return "pull request" if event.on_pull else "issue"


def bench_status(event: CommentCreated, tools: Gate) -> Passed:
    """Whether a run goes on, since when, how many began before it, and how long exams take."""
    found = benches(tools.github)
    mine = bench_of(found, event.number, _workflow(event))
    if mine is None:
        text = f"No run of this {what_of(event)} goes on; {len(found)} of others in this repository do."
        if event.on_pull:
            status = _newest(tools.github.statuses(tools.github.pull(event.number).head_sha))
            last = f"`{EXAM}` is {status.state}: {code_span(status.description)}" if status else f"no `{EXAM}` yet"
            text += f" At its head: {last}."
        return reply(event, tools, f"{text}{_expected(event, None, tools)}")
    return reply(event, tools, f"{_told(mine, found)}{_expected(event, mine.job, tools)}")


def _expected(event: CommentCreated, job: WorkflowJob | None, tools: Gate) -> str:
    """What exams of the contract have taken here, and when the one that goes on ends if it takes as long."""
    contract = _contract(event, tools.github)
    if contract is None:
        return ""
    earlier = read_earlier(tools.remote, default_branch(tools.remote)[1], contract)
    spent = costs(earlier, target_of(earlier, tools.device))
    if spent.exam_seconds is None:
        return f" No exam of {code_span(contract)} is on record here, so that nobody can say how long one takes."
    text = f" An exam of {code_span(contract)} takes {duration(spent.exam_seconds)} here (median, n={spent.exams})"
    if job is None or job.started_at is None or not job.name.startswith("verify"):
        return f"{text}."
    return f"{text}: by that this one ends about {job.started_at + timedelta(seconds=spent.exam_seconds):%H:%M} UTC."


def _contract(event: CommentCreated, github: GitHub) -> str | None:
    """The contract that is asked for there; None where that cannot be said in a word."""
    if event.on_pull:
        paths = (file.path.split("/") for file in github.pull_files(event.number))
        named = {parts[1] for parts in paths if parts[0] == "kernels" and len(parts) == 3}
        return named.pop() if len(named) == 1 else None
    try:
        return read_request(github.issue(event.number).body).contract or None
    except UsageError:
        return None


def _told(mine: Bench, found: Sequence[Bench]) -> str:
    since = f"{mine.run.created_at:%Y-%m-%d %H:%M} UTC"
    ahead = sum((b.run.created_at, b.run.id) < (mine.run.created_at, mine.run.id) for b in found)
    match mine.job:
        case None:
            stage = "is between two jobs"
        case WorkflowJob(status="in_progress", started_at=started) as job if started is not None:
            stage = f"is in its job `{job.name}` since {started:%H:%M}"
        case job:
            stage = f"waits for a runner for its job `{job.name}`"
    before = "none began" if not ahead else f"{ahead} began"
    return f"{mine.link} goes on since {since} and {stage}; of the other runs that go on, {before} before it."


def cancel_bench(event: CommentCreated, tools: Gate) -> Passed:
    """End the exam of a pull request; the exam's status is again what it was before.

    Raises:
        RefusedError: this is no pull request, or none goes on.
    """
    if not event.on_pull:
        raise NOT_ON_PULL.error(command="/cancel-bench")
    github = tools.github
    sha = github.pull(event.number).head_sha
    said = [status for status in github.statuses(sha) if status.creator == github.bot_login()]
    now = _newest(said)
    named = RUN_URL.search(now.url) if now is not None and now.state == "pending" else None
    _, link = _end(event, int(named[1]) if named else None, tools)
    before = _newest([status for status in said if status.state != "pending"])
    if before is not None:
        github.set_status(sha, EXAM, before.state, before.description)
        left = f"`{EXAM}` is again {before.state}"
    else:
        github.set_status(sha, EXAM, "error", f"the exam was cancelled by {event.author}")
        left = f"`{EXAM}` is error, for nothing was examined"
    # Its result may have been published meanwhile, and then that is what was known.
    approve(event.number, github, tools.remote)
    return reply(event, tools, f"{link} is being cancelled; nothing of it counts, and {left}.")


def stop_run(event: CommentCreated, tools: Gate) -> Passed:
    """End the run of an issue.

    Raises:
        RefusedError: this is no issue, or none goes on.
    """
    if event.on_pull:
        raise NOT_ON_ISSUE.error(command="/stop")
    github = tools.github
    found = sticky.find(github.comments(event.number), github.bot_login(), PROGRESS)
    named = found[1] if found is not None and found[0].body.startswith(WORKING) else None
    run, link = _end(event, named, tools)
    speak(github, event.number, PROGRESS, run, f"Stopped by @{event.author}: {link}.")
    text = f"{link} is being cancelled. What its agent wrote is lost; label the issue again to start anew."
    return reply(event, tools, text)


def withdrawn(number: int, why: str, tools: Gate) -> Passed:
    """End the run of an issue that is not asked for any more, if one goes on."""
    mine = bench_of(benches(tools.github), number, "optimize")
    if mine is None or not tools.github.cancel_run(mine.run.id):
        return Passed("ignored: no run of this issue goes on")
    text = f"Stopped: {why}. Nothing of {mine.link} is published; label the issue again to start anew."
    speak(tools.github, number, PROGRESS, mine.run.id, text)
    return Passed(f"stopped run {mine.run.id}")


def _end(event: CommentCreated, named: int | None, tools: Gate) -> tuple[int, str]:
    """End the run that goes on there; its id, and the run as Markdown.

    `named`: the one that a status or comment there names, if any; to look through its lists takes a dozen requests.
    """
    github, page = tools.github, (tools.run_url or "").rpartition("/")[0]
    run, link = named or 0, f"[Run {named}]({page}/{named})"
    if named is None or not github.cancel_run(named):
        mine = bench_of(benches(github), event.number, _workflow(event))
        if mine is None or not github.cancel_run(mine.run.id):
            raise NO_RUN.error(what=what_of(event))
        run, link = mine.run.id, mine.link
    return run, link


def _newest(statuses: Sequence[Status]) -> Status | None:
    return next((status for status in statuses if status.context == EXAM), None)
