"""The report of a pull request: what it says follows from the record, so that whoever finds it behind can renew it.

A comment cannot be written on condition: whoever marks a report as stale may put back the text of an earlier run, when
a newer one is published between his reading and his writing; and a publisher may be lost between record and report.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bot.github import sticky
from bot.github.approvals import evidence_digest
from bot.handlers.asked import speak
from bot.handlers.evidence import REPORT, Record
from bot.verdict import decide

_APPROVE = re.compile(r"`/approve ([0-9a-f]{16})`")
_SEVERAL = re.compile(r"needs (\d{1,2}) approvals, each by `/approve ")

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.evaluation import AgentRun, Evaluation
    from bot.github.api import Comment, GitHub, Pull
    from bot.handlers.run import Order
    from bot.report.comment import ReportFacts


def facts_of(order: Order, runs: Mapping[int, Evaluation], agent_run: AgentRun | None) -> ReportFacts:
    """What a report speaks of after the runs of `order`, which are the newest of `runs`."""
    from bot.report.comment import ReportFacts  # noqa: PLC0415 - jinja2 takes a tenth of the time in which a gate starts

    before = [run for number, run in runs.items() if number < order.run_number]
    return ReportFacts(
        evaluations=list(runs.values()),
        verdict=decide(list(runs.values())),
        agent_run=agent_run,
        run_number=len(runs),
        issue=order.issue if order.kind != "verify" or order.assisted else None,
        previous=decide(before) if before else None,
        assisted=order.assisted,
    )


def report_of(facts: ReportFacts, pull: int, head_sha: str, needed: int) -> str:
    """The report in Markdown, with the digest to approve and how many must."""
    from bot.report.comment import render_comment  # noqa: PLC0415 - as above

    digest = evidence_digest(facts.evaluations[-1], facts.verdict, head_sha) if facts.verdict else None
    return render_comment(facts.model_copy(update={"approval": digest, "needed": needed, "pull": pull}))


def bring_up(pull: Pull, record: Record, needed: int, comments: Sequence[Comment], github: GitHub) -> bool:
    """Report the newest run on record, and that so many are `needed` to approve; whether that was not what was there.

    A run whose label was taken away while it published has the number of the one that followed, and other evidence.

    Raises:
        GitHubError: GitHub did not do what it should.
    """
    found = sticky.find(comments, github.bot_login(), REPORT)
    newest = max(record.numbers)
    if found is not None and found[1] >= newest and not _asks_otherwise(found[0], pull, record, needed):
        return False
    facts = facts_of(record.newest, dict(zip(record.numbers, record.evaluations, strict=True)), record.agent_run)
    speak(github, pull.number, REPORT, newest, report_of(facts, pull.number, pull.head_sha, needed))
    return True


def _asks_otherwise(comment: Comment, pull: Pull, record: Record, needed: int) -> bool:
    """Whether a report asks to approve what is not on record, or asks another number of people. Of a head that was
    pushed to it may: that is stale."""
    named = _APPROVE.search(comment.body)
    if named is None or record.newest.head_sha not in (None, pull.head_sha):
        return False
    several = _SEVERAL.search(comment.body)
    asked = int(several[1]) if several else 1
    return asked != needed or not record.evidence(pull.head_sha).digest.startswith(named[1])
