"""What holds whatever is asked, by whom, in which order, and however GitHub fails meanwhile.

Each example is a story: people act, deliveries are repeated, and the runs that this starts advance one request at a
time, in any order, some requests meeting a fault. At its end all that is under way goes on without faults, whatever a
lost runner left is reconciled, and the invariants are looked at. `make interleavings` plays 500 stories.
"""

import json
import os
import re
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from bot.github.claims import EVIDENCE_BRANCH, issue_of
from bot.github.client import connect
from bot.github.push import Remote, branch_tip, list_files
from bot.handlers.demo import BOT, REPOSITORY
from bot.handlers.evidence import APPROVAL, EXAM
from bot.handlers.reconcile import GRACE, reconcile
from tests.github.flaky import Fault
from tests.handlers.interleaved import City, city

STORIES = int(os.environ.get("PROCTOR_STORIES", "12"))
"""Some four seconds each."""
FAULTS: list[Fault] = ["502 after", "502 instead", "drop after", "drop instead", "403 wait", "429 wait", "stale"]
WRITERS = {"maintainer", "reviewer"}
COMMANDS = [
    "/rerun-bench",
    "/verify",
    "/cancel-bench",
    "/bench-status",
    "/help",
    "/approve {digest}",
    "/stop",
    "/nonsense",
]
RUN = re.compile(r"run \d+ of pull request \d+")
REPORT = re.compile(r"<!-- proctor:report run=(\d+) -->\s*\Z")
MARKER = re.compile(r"<!-- proctor:([a-z0-9-]+) run=(\d+) -->\s*\Z")
WITHDRAWN = re.compile(r"POST .*/actions/runs/\d+/cancel$|POST .*/comments$|PATCH .*/issues/comments/")
"""All that a run may write of a request that somebody took back or changed: whom GitHub lets do so, may."""
REFUSED = re.compile(r"POST .*/reactions$|DELETE .*/labels/|POST .*/comments$|DELETE .*/issues/comments/")
"""All that a run may write which somebody started who may not: an answer, less its twin."""


def look(place: City) -> None:
    """The invariants.

    Raises:
        AssertionError: one does not hold.
    """
    state = place.state
    for number, count in Counter(issue_of(part.head_ref) for _, part in state.pulls()).items():
        assert number is None or count == 1, f"issue {number} has {count} pull requests"
    for issue in state.issues():
        ours = [c for c in state.comments(issue.number) if c.user.login == BOT]
        kinds = Counter(found[1] for c in ours if (found := MARKER.search(c.body)))
        assert all(count == 1 for count in kinds.values()), f"#{issue.number} has twins: {kinds}"
    for issue, part in state.pulls():
        latest = {status.context: status for status in state.latest_statuses(part.head_sha)}
        assert EXAM in latest, f"#{issue.number} has no {EXAM}"
        assert latest[EXAM].state != "pending", f"#{issue.number}: {latest[EXAM].description}"
        if APPROVAL in latest and latest[APPROVAL].state == "success":
            assert "reviewer" in (latest[APPROVAL].description or ""), "only the reviewer may approve here"
    for issue in state.issues():
        plain = [c for c in state.comments(issue.number) if c.user.login == BOT and not _of_a_run(c.body)]
        asked = _asked_on(place, issue.number)
        assert len(plain) <= asked, f"#{issue.number}: {len(plain)} answers to {asked} acts: {[c.body for c in plain]}"
    started = Counter(run.why for run in place.runs if RUN.match(run.why))
    # Two commands whose gates overlap may see the same number; the workflow's concurrency group keeps them apart.
    assert not place.groups or all(count == 1 for count in started.values()), f"two runs have one number: {started}"
    for issue, part in state.pulls():
        _recorded(place, issue.number, part.head_sha)
    edits = _edits(place)
    for at, (before, after) in enumerate(edits):
        # A comment cannot be written on condition: whoever marks a report may put back an earlier one, and renews it.
        renewed = place.groups is False and any(later >= before for _, later in edits[at + 1 :])
        assert before <= after or renewed, f"a report of run {before} was overwritten by one of run {after}"
    for run in place.runs:
        writes = [f"{r.method} {r.path}" for r in run.sent if r.method != "GET" and ".git/" not in r.path]
        if run.asked and run.who not in WRITERS:
            allowed = REFUSED if run.payload["action"] in ("labeled", "created") else WITHDRAWN
            assert all(allowed.search(write) for write in writes), writes
            assert not any(r.method == "POST" and "receive-pack" in r.path for r in run.sent)


def _of_a_run(body: str) -> bool:
    """Whether a comment is one of those that runs keep up to date, and no answer to somebody."""
    found = MARKER.search(body)
    return found is not None and found[1] in ("report", "progress")


def _asked_on(place: City, number: int) -> int:
    """How many things people did there that started a run, however often each was delivered."""
    acts = {json.dumps(run.payload, sort_keys=True) for run in place.runs if run.asked and run.number == number}
    return len(acts)


def _recorded(place: City, number: int, head: str) -> None:
    """The report is of the newest run, and of every run that was reported the evaluation is there."""
    remote = Remote(place.forge.clone_url, "bot-token")
    tip = branch_tip(remote, EVIDENCE_BRANCH)
    paths = {
        path for sha in (head, tip) if sha for path in list_files(remote, sha, "reports") if "evaluations/" in path
    }
    record = re.compile(rf"/(?:issue-{place.issue_of(number)}|pull-{number})/evaluations/(\d+)\.json")
    there = {int(found[1]) for path in paths if (found := record.search(path))}
    reports = [int(found[1]) for c in place.state.comments(number) if (found := REPORT.search(c.body))]
    assert reports == ([max(there)] if there else []), f"#{number} reports run {reports}, and there are {sorted(there)}"
    assert there == set(range(1, len(there) + 1)), f"#{number} has lost a run: {sorted(there)}"


def _edits(place: City) -> list[tuple[int, int]]:
    """Numbers of the runs before and after each rewriting of a report."""
    found = []
    for event in place.state.events:
        if event.name == "issue_comment" and event.payload["action"] == "edited":
            before = MARKER.search(event.payload["changes"]["body"]["from"])
            after = MARKER.search(event.payload["comment"]["body"])
            if before and after and before[1] == "report":
                found.append((int(before[2]), int(after[2])))
    return found


@dataclass(frozen=True)
class Act:
    """Somebody does something to the issue, or to one of the pull requests there are by then."""

    who: str
    text: str
    which: int = 0


@dataclass(frozen=True)
class Again:
    """An event is delivered once more, as GitHub does when it is unsure and people do with a button."""

    which: int


@dataclass(frozen=True)
class Move:
    """A run goes on by so many requests, the last of which meets a fault."""

    which: int
    requests: int
    fault: Fault | None


Part = Act | Again | Move
WHO = st.sampled_from(["maintainer", "reviewer", "visitor"])
INDEX = st.integers(0, 3)
ASKS = st.builds(Act, WHO, st.sampled_from([*COMMANDS, "/rerun-bench", "/rerun-bench"]), INDEX)
LABELS = st.builds(Act, WHO, st.just("label"))
MOVES = st.builds(Move, INDEX, st.integers(1, 40), st.none() | st.sampled_from(FAULTS))
AGAIN = st.builds(Again, INDEX)


@st.composite
def stories(draw: st.DrawFn) -> tuple[bool, int, list[Part]]:
    """Whether concurrency groups are kept, how many pull requests there are to begin with, and what happens.

    Two acts come first, so that there is something to interleave.
    """
    pulls = draw(st.integers(0, 2))
    acts = st.one_of(ASKS, LABELS) if pulls else LABELS
    first = draw(st.lists(acts, min_size=2, max_size=3))
    rest = draw(st.lists(st.one_of(MOVES, MOVES, MOVES, AGAIN, ASKS), min_size=4, max_size=12))
    return draw(st.booleans()), pulls, [*first, *rest]


def play(place: City, part: Part) -> None:
    """One part of a story; nothing, where there is nothing to do it to."""
    match part:
        case Act(who=who, text="label"):
            if place.state.issue(1).labels:
                place.acts(lambda: place.state.unlabel("maintainer", 1, "optimize"))
            place.acts(lambda: place.person(who).post("issues/1/labels", labels=["optimize"]))
        case Act(who=who, text=text, which=which):
            numbers = [issue.number for issue, _ in place.state.pulls()] or [1]
            number = numbers[which % len(numbers)]
            said = " ".join(comment.body for comment in place.state.comments(number))
            digest = re.search(r"`/approve ([0-9a-f]{16})`", said)
            text = text.replace("{digest}", digest[1] if digest else "0" * 16)
            place.acts(lambda: place.person(who).post(f"issues/{number}/comments", body=text))
        case Again(which=which):
            recent = place.events[-4:]
            place.deliver(*recent[which % len(recent)])
        case Move(which=which, requests=requests, fault=fault):
            ready = place.ready()
            run = ready[which % len(ready)] if ready else None
            for left in range(requests, 0, -1):
                if run is not None and not run.over:
                    place.step(run, fault if left == 1 else None)


def settle(place: City) -> None:
    """All that is under way to its end, and what died is said to have been interrupted."""
    place.drain()
    github = connect(place.forge.api_url, "bot-token", REPOSITORY, login=BOT)
    reconcile(github, Remote(place.forge.clone_url, "bot-token"), datetime.now(UTC) + 2 * GRACE)


@settings(
    max_examples=STORIES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=STORIES <= 60,
    phases=[Phase.generate],
)
@given(stories())
def test_the_invariants_hold_after_every_story(story: tuple[bool, int, list[Part]]) -> None:
    groups, pulls, parts = story
    with city() as place:
        place.groups = groups
        for _ in range(max(1, pulls)):
            place.open_issue()
        for number in range(1, 1 + pulls):
            place.acts(partial(place.person("maintainer").post, f"issues/{number}/labels", labels=["optimize"]))
        place.drain()
        for part in parts:
            play(place, part)
        settle(place)
        look(place)
