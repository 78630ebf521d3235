"""What the bot says: the pull request's comment, the short summary of a job, the answer on an issue. Pure.

The words stand in templates/; here is what they may speak of, and how much of it fits.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bot import digest, sanitize, stats
from bot.contract.distribution import Frozen
from bot.evaluation import AgentRun, BaselineState, Evaluation, Refusal
from bot.report import runs as several
from bot.report import tables, templates
from bot.verdict import Verdict

COMMENT_LIMIT = 65_536 - 1_024
"""GitHub refuses a body above 65,536 characters; the rest is for hidden markers."""

SUMMARY_BYTES = 1 << 20
"""GitHub drops a step's summary of more: https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands"""

_ROW_LIMITS = (200, 60, 20, 6, 1)
_COLUMN_LIMIT = 6


class ReportFacts(Frozen):
    """All a report speaks of.

    `evaluations`: the runs that `verdict` pools. `approval`: the digest to approve, None when nobody must; `needed`: by
    how many people.
    `previous`: the verdict before the newest run. `assisted`: people changed what the bot had opened. Without any
    candidate there are no evaluations and no verdict.
    """

    evaluations: list[Evaluation]
    verdict: Verdict | None
    agent_run: AgentRun | None = None
    run_number: int = 1
    approval: str | None = None
    needed: int = 1
    issue: int | None = None
    pull: int | None = None
    previous: Verdict | None = None
    assisted: bool = False


@dataclass(frozen=True, slots=True)
class Feedback:
    """How long the agent waited for an answer, in seconds."""

    median: float
    longest: float
    samples: int


@dataclass(frozen=True, slots=True)
class Page:
    """The facts as the templates use them. `runs`: every exam and every confirmation, each as a run of its own;
    `compared`: of several runs each, its confirmation included, against all."""

    facts: ReportFacts
    runs: list[Evaluation]
    verdict: Verdict
    last: Evaluation
    times: tables.TimeTable
    accuracy: list[tables.AccuracyRow]
    less_accurate: str | None
    stages: list[tables.StageRow]
    grade: tables.GradeRow | None
    refused: list[tables.RefusedRow]
    compared: list[several.RunRow]
    long_claims: list[tables.LongClaims]

    @property
    def reproduced(self) -> int:
        """How many of several runs conclude what the first does, itself included."""
        return sum(row.agrees for row in self.compared)

    @property
    def incumbent(self) -> bool:
        """Whether the bar is the incumbent, in every cell."""
        return self.times.bar is not None and self.times.bar.role == "incumbent"

    @property
    def plural_cells(self) -> bool:
        """Whether there is more than one cell."""
        return len(self.verdict.cells) != 1

    @property
    def loose(self) -> list[BaselineState]:
        """Baselines that are less accurate than an honest kernel."""
        shown = [*self.times.columns, *([self.times.bar] if self.times.bar else [])]
        return [state for state in shown if state.less_accurate]

    @property
    def refusals(self) -> list[Refusal]:
        """Why the candidate itself was refused, of the kind that decided first."""
        return _refusals(self.runs, self.verdict)

    @property
    def confirmed(self) -> int:
        """How many of the exams were held once more with another salt, and refused nothing then either."""
        again = [run.confirmation for run in self.facts.evaluations if run.confirmation]
        return sum(not run.refusal and not run.infrastructure for run in again)

    @property
    def feedback(self) -> Feedback | None:
        """How long the agent waited for its answers."""
        waits = self.facts.agent_run.feedback_seconds if self.facts.agent_run else []
        waits = [wait for wait in waits if wait > 0]
        return Feedback(stats.median(waits), max(waits), len(waits)) if waits else None

    @property
    def approve(self) -> str | None:
        """What to write as a comment to approve this evidence."""
        return f"/approve {self.facts.approval[: digest.APPROVAL_DIGITS]}" if self.facts.approval else None

    @property
    def host_bound(self) -> list[tuple[str, int]]:
        """Whose calls needed their process in their midst, and in how many cells."""
        found = {
            "candidate": {cell.name for run in self.runs for cell in run.cells if "candidate" in cell.host_bound},
            "bar": {cell.name for run in self.runs for cell in run.cells if "baseline" in cell.host_bound},
        }
        return [(who, len(cells)) for who, cells in found.items() if cells]

    @property
    def command(self) -> str:
        """The command that examines the same candidate again."""
        name = re.sub(r"[^A-Za-z0-9_]", "_", self.last.candidate_name.removesuffix(".py"))
        contract = re.sub(r"[^A-Za-z0-9_]", "_", self.last.contract)
        device = "cpu" if self.last.environment.target == "cpu" else "cuda"
        return f"proctor verify kernels/{contract}/{name}.py --contract {contract} --device {device} --mode exam"


def render_comment(facts: ReportFacts) -> str:
    """The sticky comment: verdict first, details folded, never longer than GitHub takes.

    Raises:
        ValueError: there is no evaluation to report.
    """
    return _report("comment.md.j2", facts)


def render_full(facts: ReportFacts) -> str:
    """The report at a length that a comment does not have, for a job's summary: every row where that fits."""
    if facts.verdict is None or not facts.evaluations:
        return render_issue_outcome(facts)
    page = _page(facts, facts.verdict)
    for limit in (10_000, *_ROW_LIMITS):
        text = _rendered("comment.md.j2", page, limit)
        if len(text.encode()) <= SUMMARY_BYTES:
            return text
    return render_comment(facts)


def render_summary(facts: ReportFacts) -> str:
    """Verdict, reasons and one table, for a job's summary or a terminal.

    Raises:
        ValueError: there is no evaluation to report.
    """
    return _report("summary.md.j2", facts)


def render_issue_outcome(facts: ReportFacts) -> str:
    """The answer on the issue when no candidate was accepted."""
    refused = tables.refused_rows(facts.agent_run)
    attempts = facts.agent_run.attempts if facts.agent_run else []
    known = [*(attempt.evaluation for attempt in attempts), *facts.evaluations]
    page = {
        "facts": facts,
        "verdict": facts.verdict,
        "last": known[-1] if known else None,
        "refused": refused,
        "refusals": _refusals(_runs(facts), facts.verdict) if facts.verdict else [],
    }
    return _fitted("outcome.md.j2", page)


def _report(template: str, facts: ReportFacts) -> str:
    if facts.verdict is None or not facts.evaluations:
        raise ValueError("there is no evaluation to report")
    return _fitted(template, _page(facts, facts.verdict))


def _fitted(template: str, page: object) -> str:
    """Rendered with as many rows of each table as fit; the verdict stands first and is never cut."""
    text = ""
    for limit in _ROW_LIMITS:
        text = _rendered(template, page, limit)
        if len(text) <= COMMENT_LIMIT:
            break
    return sanitize.shorten(text, COMMENT_LIMIT)


def _rendered(template: str, page: object, limit: int) -> str:
    rendered = templates.render(template, page=page, limit=limit, columns=_COLUMN_LIMIT)
    return re.sub(r"\n{3,}", "\n\n", rendered).strip() + "\n"


def _page(facts: ReportFacts, verdict: Verdict) -> Page:
    runs = _runs(facts)
    times = tables.time_table(runs, verdict)
    accuracy = tables.accuracy_rows(runs)
    return Page(
        facts=facts,
        runs=runs,
        verdict=verdict,
        last=max(facts.evaluations, key=lambda run: run.started_at),
        times=times,
        accuracy=accuracy,
        less_accurate=tables.less_accurate(runs, times.bar.name) if times.bar else None,
        stages=tables.stage_rows(runs),
        grade=tables.grade_row(runs),
        refused=tables.refused_rows(facts.agent_run),
        compared=several.run_rows(facts.evaluations, verdict),
        long_claims=tables.long_claims(runs, verdict),
    )


def _runs(facts: ReportFacts) -> list[Evaluation]:
    """What confirms an exam is a run like the exam itself: its checks, times and salt count as much."""
    return [run for evaluation in facts.evaluations for run in evaluation.runs]


def _refusals(runs: Sequence[Evaluation], verdict: Verdict) -> list[Refusal]:
    found = [run.refusal for run in runs if run.refusal]
    return sorted(found, key=lambda refusal: refusal.kind != verdict.kind)
