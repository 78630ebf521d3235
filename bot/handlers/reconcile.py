"""Turn what says “in progress” and is not into “interrupted”, with what to do; and look at each open pull request anew.

A runner that dies leaves its issue's comment or its pull request's status as it was. Both name the workflow run that
wrote them, and GitHub's list of unfinished runs says whether that one lives. It is asked after what it is held against
was read, and what is a few minutes old at most is left alone: GitHub's lists lag behind its writes.

Claims need no such care: a run that somebody repeats is another attempt, and claims its event under another name.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from bot.github import sticky
from bot.github.api import GitHub, Pull
from bot.github.push import Remote
from bot.handlers.asked import LABEL, PROGRESS, WORKING
from bot.handlers.evidence import EXAM, RUN_URL
from bot.handlers.stale import newest_statuses
from bot.handlers.standing import look

GRACE = timedelta(minutes=10)
_NUMBER = re.compile(r"run (\d{1,6}) goes on\Z")


@dataclass(frozen=True, slots=True)
class Suspect:
    """Something that says that a workflow run goes on. `comment`: the comment that does, or else a status at `head`."""

    number: int
    run: int
    comment: int = 0
    pull: Pull | None = None


def reconcile(github: GitHub, remote: Remote, now: datetime) -> list[str]:
    """Look at everything that is open; returns a line for each thing found.

    Raises:
        GitHubError: GitHub did not do what it should.
    """
    pulls = github.open_pulls()
    suspects = [s for issue in github.open_issues(LABEL) for s in _of_issue(issue.number, github, now)]
    suspects += [s for pull in pulls for s in _of_pull(pull, github, now)]
    lines = settle(suspects, github)
    return [*lines, *(f"#{pull.number}: {look(pull, github, remote)}" for pull in pulls)]


def reconcile_one(number: int, *, on_pull: bool, github: GitHub, now: datetime) -> list[str]:
    """As `reconcile`, of one issue or pull request; two requests where nothing says that a run goes on.

    Raises:
        GitHubError: GitHub did not do what it should.
    """
    found = _of_pull(github.pull(number), github, now) if on_pull else _of_issue(number, github, now)
    return settle(list(found), github)


def _of_issue(number: int, github: GitHub, now: datetime) -> Iterator[Suspect]:
    found = sticky.find(github.comments(number), github.bot_login(), PROGRESS)
    if found is not None and found[0].body.startswith(WORKING) and found[0].updated_at < now - GRACE:
        yield Suspect(number, found[1], comment=found[0].id)


def _of_pull(pull: Pull, github: GitHub, now: datetime) -> Iterator[Suspect]:
    status = newest_statuses(pull.head_sha, github).get(EXAM)
    if pull.state == "open" and status and status.state == "pending" and status.created_at < now - GRACE:
        named = RUN_URL.search(status.url)
        yield Suspect(pull.number, int(named[1]) if named else 0, pull=pull)


def settle(suspects: Sequence[Suspect], github: GitHub) -> list[str]:
    """Say of each whose run has ended that it was interrupted.

    Raises:
        GitHubError: GitHub did not do what it should.
    """
    if not suspects:
        return []
    alive = {run.id for run in github.unfinished_runs()}
    dead = [suspect for suspect in suspects if suspect.run not in alive]
    return [line for suspect in dead for line in _interrupt(suspect, github)]


def _interrupt(suspect: Suspect, github: GitHub) -> Iterator[str]:
    """Unless it has been said meanwhile what came of the run."""
    if suspect.pull is not None:
        status = newest_statuses(suspect.pull.head_sha, github).get(EXAM)
        if status is None or status.state != "pending":
            return
        number = _NUMBER.match(status.description)
        # It measures the bot's own again as well.
        text = f"interrupted: run {number[1] if number else 0} ended without a result; /verify begins anew"
        github.set_status(suspect.pull.head_sha, EXAM, "error", text, status.url or None)
    else:
        found = sticky.find(github.comments(suspect.number), github.bot_login(), PROGRESS)
        if found is None or found[1] != suspect.run or not found[0].body.startswith(WORKING):
            return
        text = (
            f"**Interrupted.** Workflow run {suspect.run} ended without a result; nothing of it was published. To "
            f"begin anew, take the label `{LABEL}` off this issue and put it on again. The run's log says why: a "
            "lost runner and a time limit are the usual reasons."
        )
        github.update_comment(found[0].id, sticky.marked(PROGRESS, suspect.run, text))
    yield f"#{suspect.number}: run {suspect.run} was interrupted"
