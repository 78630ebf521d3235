"""Two runs that meet at each call: one stops there, the other goes from its beginning to its end, the first goes on.

Between two requests of a run nothing changes but its own memory, so that the point after one call is the point before
the next; the exam is a point as well, and so are the beginning and the end. Concurrency groups are not kept, so
that any two may meet. `make interleavings` plays all pairs at all points.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from bot.contract.load import load_contract
from bot.forge.records import PullPart
from bot.github.claims import EVIDENCE_BRANCH
from bot.handlers.asked import WORKING
from bot.handlers.demo import BOT
from bot.handlers.evidence import APPROVAL, EXAM
from bot.handlers.reconcile import GRACE
from tests.handlers.conftest import PATH
from tests.handlers.interleaved import City, Run, city
from tests.handlers.test_interleavings import REPORT, STORIES, look, settle
from tests.report.builders import BASE_NS, cell, evaluation
from tests.verify.conftest import HONEST

POINTS_AT_MOST = 200
ISSUE, PULL = 1, 2


def label(place: City, who: str = "maintainer", number: int = ISSUE) -> Run:
    (run,) = place.acts(lambda: place.person(who).post(f"issues/{number}/labels", labels=["optimize"]))
    return run


def says(place: City, text: str, number: int = PULL, who: str = "maintainer") -> Run:
    (run,) = place.acts(lambda: place.person(who).post(f"issues/{number}/comments", body=text))
    return run


def reviews(place: City, event: str = "APPROVE", number: int = PULL) -> Run:
    post = place.person("reviewer").post
    (run,) = place.acts(lambda: post(f"pulls/{number}/reviews", event=event, body="Read it."))
    return run


def digest_of(place: City, number: int = PULL) -> str:
    (report,) = (comment.body for comment in place.state.comments(number) if REPORT.search(comment.body))
    found = re.search(r"`/approve ([0-9a-f]{16})`", report)
    return found[1] if found else "0" * 16


# What there is to begin with.


def nothing(place: City) -> None:
    """An issue that asks for a kernel."""
    place.open_issue()


def waiting(place: City) -> None:
    """With so little to gain that the run waits for `/go`."""
    nothing(place)
    cells = [cell(w, r, 0.9, floor_ns=round(BASE_NS / 1.05)) for w in ("packed", "two") for r in ("a", "b")]
    known = load_contract(place.project.contracts, "center").digest
    text = evaluation(contract="center", contract_digest=known, cells=cells).model_dump_json()
    place.push(EVIDENCE_BRANCH, {"reports/center/issue-90/evaluations/002.json": text}, "main")
    place.finish(label(place))


def pulled(place: City) -> None:
    """A pull request of the bot's."""
    nothing(place)
    place.finish(label(place))


def proposed(place: City) -> None:
    """A person's, in the place of the bot's; nobody has asked for its exam."""
    nothing(place)
    place.push("faster", {PATH: HONEST}, "main")
    post = place.person("maintainer").post
    for run in place.acts(lambda: post("pulls", title="Faster", head="faster", base="main", body="")):
        place.finish(run)


def two_pulled(place: City) -> None:
    pulled(place)
    place.finish(label(place, number=place.open_issue()))


# The run that is stopped at each of its calls; what is asked for here has not begun.


def labelled(place: City) -> Run:
    return label(place)


def let_go(place: City) -> Run:
    return says(place, "/go", ISSUE)


def reran(place: City) -> Run:
    return says(place, "/rerun-bench")


def reran_beside_another(place: City) -> Run:
    return says(place, "/rerun-bench")


def verified(place: City) -> Run:
    return says(place, "/verify")


def approved(place: City) -> Run:
    return says(place, f"/approve {digest_of(place)}", who="reviewer")


def reviewed(place: City) -> Run:
    return reviews(place)


def reconciled(place: City) -> Run:
    return place.begin("schedule", {})


def made_stale(place: City) -> Run:
    """By another incumbent on the default branch."""
    return _incumbent(place)


def cancelled(place: City) -> Run:
    """While the exam goes on."""
    _to_the(place, "verify", says(place, "/rerun-bench"))
    return says(place, "/cancel-bench")


def cancelled_late(place: City) -> Run:
    """While its result is published."""
    _to_the(place, "publish", says(place, "/rerun-bench"))
    return says(place, "/cancel-bench")


def stopped(place: City) -> Run:
    _to_the(place, "verify", label(place))
    return says(place, "/stop", ISSUE)


def withdrawn(place: City) -> Run:
    _to_the(place, "verify", label(place))
    return _unlabel(place)


def _to_the(place: City, stage: str, run: Run) -> None:
    while run.stage != stage:
        place.step(run)


def _incumbent(place: City) -> Run:
    """What reconcile.yml does of a push to the default branch."""
    new = {"kernels/center/index.yaml": "incumbents:\n  cpu: torch_new.py\n", "kernels/center/torch_new.py": HONEST}
    place.push("main", new, "main")
    return place.begin("schedule", {})


def _unlabel(place: City) -> Run:
    (run,) = place.acts(lambda: place.state.unlabel("maintainer", ISSUE, "optimize"))
    return run


# What comes between: whole, from the act to the last job.

Between = Callable[[City, Run], object]


def the_same_again(place: City, run: Run) -> None:
    (again,) = place.deliver(run.event, run.payload) if run.event != "workflow_run" else [_woken_again(place, run)]
    place.finish(again)


def _woken_again(place: City, run: Run) -> Run:
    return place.begin(run.event, run.payload)


def another_rerun(place: City, _: Run) -> None:
    place.finish(says(place, "/rerun-bench", who="reviewer"))


def a_rerun_of_the_other(place: City, _: Run) -> None:
    place.finish(says(place, "/rerun-bench", max(issue.number for issue, _ in place.state.pulls()), "reviewer"))


def a_rerun_that_refuses(place: City, _: Run) -> None:
    place.right = False
    place.finish(says(place, "/rerun-bench", who="reviewer"))
    place.right = True


def another_go(place: City, _: Run) -> None:
    place.finish(says(place, "/go", ISSUE, "reviewer"))


def another_verify(place: City, _: Run) -> None:
    place.finish(says(place, "/verify", who="reviewer"))


def unlabelling(place: City, _: Run) -> None:
    place.finish(_unlabel(place))


def labelling_anew(place: City, _: Run) -> None:
    if place.state.issue(ISSUE).labels:
        place.finish(_unlabel(place))
    place.finish(label(place))


def closing(place: City, _: Run) -> None:
    for run in place.acts(lambda: place.state.edit_issue("maintainer", ISSUE, state="closed")):
        place.finish(run)


def editing(place: City, _: Run) -> None:
    for run in place.acts(lambda: place.state.edit_issue("visitor", ISSUE, body="### Contract\n\nother\n")):
        place.finish(run)


def a_strangers_label(place: City, _: Run) -> None:
    place.finish(_unlabel(place))
    place.finish(label(place, "visitor"))


def a_push(place: City, _: Run) -> None:
    """A person's onto the branch of the pull request, if it is there by then."""
    pull = next((part for issue, part in place.state.pulls() if issue.number == PULL), None)
    branch = pull.head_ref if pull else "elsewhere"
    base = branch if pull else "main"
    for run in place.acts(lambda: place.push(branch, {PATH: HONEST + "# by hand\n"}, base)):
        place.finish(run)


def another_incumbent(place: City, _: Run) -> None:
    place.finish(_incumbent(place))


def an_approval(place: City, _: Run) -> None:
    place.finish(says(place, f"/approve {digest_of(place)}", who="reviewer"))


def a_review(place: City, _: Run) -> None:
    place.finish(reviews(place))


def an_objection(place: City, _: Run) -> None:
    place.finish(reviews(place, "REQUEST_CHANGES"))


def a_strangers_approval(place: City, _: Run) -> None:
    place.finish(says(place, f"/approve {digest_of(place)}", who="visitor"))


def a_twin(place: City, _: Run) -> None:
    """Another pull request of the same head."""
    sha = place.state.pull(PULL)[1].head_sha
    place.state.create_ref("maintainer", "refs/heads/twin", sha)
    post = place.person("maintainer").post
    for run in place.acts(lambda: post("pulls", title="Twin", head="twin", base="main", body="")):
        place.finish(run)


def a_reconciliation(place: City, _: Run) -> None:
    place.finish(place.begin("schedule", {}))


def a_cancelling(place: City, _: Run) -> None:
    place.finish(says(place, "/cancel-bench", who="reviewer"))


def a_stop(place: City, _: Run) -> None:
    place.finish(says(place, "/stop", ISSUE, "reviewer"))


def a_question(place: City, _: Run) -> None:
    place.finish(says(place, "/bench-status"))


def its_end(place: City, _: Run) -> None:
    """What was going on when the stopped run began goes to its end."""
    place.finish(place.runs[-2])


PAIRS: dict[Callable[[City], Run], tuple[Between, ...]] = {
    labelled: (
        *(the_same_again, labelling_anew, a_strangers_label, unlabelling, closing, editing),
        *(a_stop, a_reconciliation, a_push),
    ),
    let_go: (the_same_again, another_go, unlabelling, editing),
    reran: (
        *(the_same_again, another_rerun, a_rerun_that_refuses, an_approval, a_review, a_strangers_approval),
        *(a_push, another_incumbent, a_reconciliation, a_cancelling, a_question, a_twin),
    ),
    reran_beside_another: (a_rerun_of_the_other,),
    verified: (the_same_again, another_verify, a_push, another_incumbent, a_reconciliation, a_cancelling),
    approved: (
        *(the_same_again, a_rerun_that_refuses, an_objection, a_push, another_incumbent, a_twin),
        a_reconciliation,
    ),
    reviewed: (the_same_again, a_rerun_that_refuses, an_objection, an_approval, another_incumbent, a_twin),
    reconciled: (another_rerun, a_rerun_that_refuses, an_approval, a_push, another_incumbent, a_twin, a_reconciliation),
    made_stale: (another_rerun, an_approval, a_push, a_reconciliation),
    cancelled: (the_same_again, its_end, an_approval, a_reconciliation, a_cancelling),
    cancelled_late: (its_end,),
    stopped: (the_same_again, its_end, labelling_anew, a_reconciliation),
    withdrawn: (the_same_again, its_end, labelling_anew, a_reconciliation),
}


BEGINNINGS: dict[Callable[[City], Run], Callable[[City], None]] = {
    labelled: nothing,
    let_go: waiting,
    reran_beside_another: two_pulled,
    verified: proposed,
    stopped: nothing,
    withdrawn: nothing,
}
"""With a pull request of the bot's, where nothing else is said."""
READS = re.compile(r"POST .*/git-upload-pack")
"""The second half of one question to git, about commits, which never change."""


@dataclass(frozen=True)
class Meeting:
    """Where the stopped run was, and whether it had ended."""

    where: str
    over: bool


STATUS = r"POST .*/statuses/"
AT_RISK: list[tuple[Callable[[City], Run], Between, str]] = [
    (labelled, the_same_again, r"POST .*/pulls$"),
    (labelled, labelling_anew, r"POST .*/pulls$"),
    (reran, another_rerun, r"- exam"),
    (reran, another_incumbent, r"PATCH "),
    (approved, a_rerun_that_refuses, STATUS),
    (approved, another_incumbent, STATUS),
    (reviewed, an_objection, STATUS),
    (reconciled, a_rerun_that_refuses, r"GET .*/reviews"),
    (made_stale, another_rerun, r"PATCH "),
    (cancelled_late, its_end, STATUS),
]
"""What `make test` plays: the first stops before its first request of that form."""


@contextmanager
def met(like: City, stop: Callable[[City], Run], between: Between, point: int | str) -> Iterator[tuple[City, Meeting]]:
    """The city after both have met, at the call of a number or of a form, and gone to their ends."""
    with city(like) as place:
        place.groups, place.ahead = False, 2 * GRACE
        run, calls = stop(place), 0
        while not run.over and not (calls == point or re.match(str(point), _waiting(run))):
            place.step(run)
            calls += not READS.match(_waiting(run))
        meeting = Meeting(_waiting(run), run.over)
        between(place, run)
        place.drain()
        yield place, meeting


def _waiting(run: Run) -> str:
    return " ".join(run.waiting or (run.stage,))


def examine(place: City) -> None:
    """The invariants; and whoever looks anew finds that everything is said, but of what was abandoned.

    Raises:
        AssertionError: one does not hold.
    """
    before = {issue.number: said_of(place, part) for issue, part in place.state.pulls() if issue.state == "open"}
    settle(place)
    look(place)
    for number, said in before.items():
        after = said_of(place, place.state.pull(number)[1])
        if said.get(EXAM, "").startswith("pending"):
            said[EXAM] = after[EXAM]
        assert said == after, f"#{number}: an answer that does not hold any more stood over one that does"
        wanted = re.search(r"approvals of ([0-9a-f]{16}) at this head", after.get(APPROVAL, ""))
        assert wanted is None or wanted[1] == digest_of(place, number), f"#{number}: the report is of other evidence"
    for issue in place.state.issues():
        assert not any(c.body.startswith(WORKING) for c in place.state.comments(issue.number) if c.user.login == BOT)


def said_of(place: City, part: PullPart) -> dict[str, str]:
    """Statuses of a pull request's head, without who said what does not count: of that nobody is told."""
    latest = place.state.latest_statuses(part.head_sha)
    return {s.context: f"{s.state}: {s.description}".partition(";")[0] for s in latest}


@pytest.mark.skipif(STORIES < 500, reason="some 2,200 points: make interleavings")
@pytest.mark.parametrize(
    ("stop", "between"),
    [pytest.param(a, b, id=f"{a.__name__}-{b.__name__}") for a, others in PAIRS.items() for b in others],
)
def test_two_runs_that_meet_at_any_call(stop: Callable[[City], Run], between: Between) -> None:
    found = []
    with city() as like:
        BEGINNINGS.get(stop, pulled)(like)
        for point in range(POINTS_AT_MOST):
            with met(like, stop, between, point) as (place, meeting):
                try:
                    examine(place)
                except AssertionError as error:
                    found.append(f"{point}, {meeting.where}: {str(error)[:300]}")
            if meeting.over:
                assert not found, "\n".join(found)
                return
    pytest.fail(f"more than {POINTS_AT_MOST} points")


@pytest.mark.parametrize(
    ("stop", "between", "where"), [pytest.param(*each, id=f"{each[0].__name__}-{each[1].__name__}") for each in AT_RISK]
)
def test_two_runs_that_meet_where_it_matters(stop: Callable[[City], Run], between: Between, where: str) -> None:
    with city() as like:
        BEGINNINGS.get(stop, pulled)(like)
        with met(like, stop, between, where) as (place, meeting):
            assert not meeting.over
            examine(place)
