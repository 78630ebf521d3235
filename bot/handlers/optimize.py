"""The label `optimize`, and `/go`: an issue to the order for an agent, with an echo of what was understood.

Where earlier exams say that the best known kernel is near the device's floor already, the run waits for `/go`. The
comment that waits holds what is needed to go on: who asked, and the digest of the request that was read.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bot.agent.task import Budget
from bot.contract.load import LoadedContract
from bot.errors import GitHubError
from bot.evaluation import BaselineSource
from bot.github import sticky
from bot.github.api import Comment
from bot.github.claims import issue_branch
from bot.github.events import CommentCreated, IssueLabeled
from bot.github.push import default_branch
from bot.github.refusals import (
    CLOSED,
    CONTRACT_BROKEN,
    DEFINITION_ALONE,
    DEFINITION_DIFFERS,
    DEFINITION_SHARED,
    EDITED,
    NOT_ON_ISSUE,
    NOTHING_WAITS,
    PULL_OPEN,
    REQUEST_FORM,
    UNKNOWN_CONTRACT,
    UNKNOWN_WORKLOAD,
)
from bot.github.request import Request, request_digest
from bot.handlers.asked import (
    LABEL,
    MAY_WRITE,
    NEEDS_INFO,
    PROGRESS,
    WAITING,
    WORKING,
    Gate,
    Passed,
    admit,
    check_workload,
    contract_of,
    shards_of,
)
from bot.handlers.definition import uncovered
from bot.handlers.digests import digests_of
from bot.handlers.evidence import incumbents_at
from bot.handlers.headroom import LITTLE, Earlier, Headroom, costs, headroom, read_earlier, target_of
from bot.handlers.run import Order, Steering
from bot.handlers.steer import request_of, steering_of, told
from bot.report.echo import Understood, render_echo

LACKING = frozenset(
    refusal.code
    for refusal in (
        *(REQUEST_FORM, UNKNOWN_CONTRACT, UNKNOWN_WORKLOAD, CONTRACT_BROKEN),
        *(DEFINITION_ALONE, DEFINITION_DIFFERS, DEFINITION_SHARED),
    )
)
"""Refusals of a request that lacks something."""
_DIGITS = 16
_ASKED = re.compile(r"^Asked for by @([A-Za-z0-9-]{1,39})\.", re.MULTILINE)
_DIGEST = re.compile(r"^\| request \| `([0-9a-f]{16})`", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Asked:
    """Who asks for what, and by which act."""

    repo: str
    number: int
    title: str
    body: str
    requester: str
    key: str
    let_go_by: str | None = None


def optimize(event: IssueLabeled, tools: Gate) -> Passed:
    """Leave the order for an agent, or wait for `/go`.

    Raises:
        RefusedError: the sender may not, or the issue holds no request that can be carried out.
    """
    if not event.is_open:
        raise CLOSED.error(what="issue", act="label it")
    admit(event.sender, tools, "label the issue")
    asked = _Asked(event.repo, event.number, event.title, event.body, event.sender, event.key)
    passed = _begin(asked, tools.github.comments(event.number), tools)
    if NEEDS_INFO in event.labels:
        tools.github.remove_label(event.number, NEEDS_INFO)
    return passed


def go(event: CommentCreated, tools: Gate) -> Passed:
    """Let the run go on that waits.

    Raises:
        RefusedError: none waits, or what it waits with is not what the issue says now.
    """
    github = tools.github
    if event.on_pull:
        raise NOT_ON_ISSUE.error(command="/go")
    comments = github.comments(event.number)
    found = sticky.find(comments, github.bot_login(), PROGRESS)
    asked, read = (pattern.search(found[0].body) if found else None for pattern in (_ASKED, _DIGEST))
    if found is None or not found[0].body.startswith(WAITING) or asked is None or read is None:
        raise NOTHING_WAITS.error()
    issue = github.issue(event.number)
    if issue.state != "open" or LABEL not in [label.name for label in issue.labels]:
        raise NOTHING_WAITS.error()
    if not request_digest(issue.title, issue.body).startswith(read[1]):
        raise EDITED.error()
    again = _Asked(event.repo, event.number, issue.title, issue.body, asked[1], event.key, let_go_by=event.author)
    return _begin(again, comments, tools)


def _begin(asked: _Asked, comments: Sequence[Comment], tools: Gate) -> Passed:
    github = tools.github
    request = request_of(asked.body, tools.project)
    loaded = contract_of(tools.project, request.contract)
    for name in request.anchors:
        check_workload(loaded, name, tools.device)
    branch, sha = default_branch(tools.remote)
    there = github.find_pull(issue_branch(asked.number))
    if there is not None:
        raise PULL_OPEN.error(pull=there.number)
    steering = _steered(request, steering_of(comments, loaded.contract, tools.device, _Writers(tools)))
    incumbents = incumbents_at(tools.remote, sha, request.contract, tools.device)
    if not github.claim(tools.claim_of(asked.number, asked.key), sha):
        return Passed("ignored: this event has been handled")
    earlier = read_earlier(tools.remote, sha, request.contract)
    room = headroom(earlier, loaded.digest, target_of(earlier, tools.device))
    order = Order(
        kind="optimize",
        repo=asked.repo,
        number=asked.number,
        issue=asked.number,
        contract=request.contract,
        device=tools.device,
        goal=_goal(request),
        start=request.start,
        attached=request.attached,
        criteria=request.criteria,
        rules=request.rules,
        hidden=request.hidden,
        request_digest=request_digest(asked.title, asked.body),
        requester=asked.requester,
        authors=[asked.let_go_by] if asked.let_go_by else [],
        base_branch=branch,
        base_sha=sha,
        digests=digests_of(tools.project, request.contract),
        steering=steering,
        workflow_run=tools.run,
        shards=shards_of(loaded, tools),
    )
    echo = render_echo(_understood(order, request, loaded, earlier, room, incumbents))
    waits = room is not None and room.ratio < LITTLE and asked.let_go_by is None
    first = _waiting(asked, room) if room is not None and waits else _working(order, request)
    sticky.upsert(github, asked.number, PROGRESS, tools.run, f"{first}\n\n{echo}", comments)
    if waits:
        return Passed(f"waits for /go: headroom {room.ratio:.2f}" if room else "waits for /go")
    tools.folder.write_order(order)
    tools.folder.write_incumbents(incumbents)
    return Passed(f"optimize {request.contract} for issue {asked.number}", go=True, shards=order.shards, base=sha)


def _working(order: Order, request: Request) -> str:
    hidden = request.hidden_characters
    note = f" {hidden} hidden characters of the issue were removed before anybody reads it." if hidden else ""
    return (
        f"{WORKING}`{order.contract}` for @{order.requester}, on top of `{order.base_sha[:12]}`: an agent writes, then "
        f"the exam decides. A pull request or the reason for none follows here.{note}{told(order.steering)}"
    )


def _waiting(asked: _Asked, room: Headroom) -> str:
    return (
        f"{WAITING}the best known kernel takes {room.ratio:.2f} times what the device allows at best; below "
        f"{LITTLE} there is hardly anything to gain. Whoever may write here lets the run go on by `/go`, or takes the "
        f"label off.\n\nAsked for by @{asked.requester}."
    )


def _goal(request: Request) -> str:
    """What the agent is told of the request, all of it quoted."""
    lines = [f"A call must be: {', '.join(request.rules)}."] if request.rules else []
    lines += [f"It will run on: {request.hardware}."] if request.hardware else []
    lines += [f"Worth merging, says the requester: {request.criteria}"] if request.criteria else []
    return "\n".join([*lines, *([request.goal] if request.goal else [])])


def _steered(request: Request, steering: Steering) -> Steering:
    """The form's anchors and budget, and over them what comments ask for."""
    return steering.model_copy(
        update={
            "focus": list(dict.fromkeys([*request.anchors, *steering.focus])),
            "turns": steering.turns or request.turns,
            "tokens": steering.tokens or request.tokens,
            "seconds": steering.seconds or request.seconds,
        }
    )


def _understood(
    order: Order,
    request: Request,
    loaded: LoadedContract,
    earlier: Earlier,
    room: Headroom | None,
    incumbents: Mapping[str, BaselineSource],
) -> Understood:
    scored = loaded.contract.scored(order.device)
    target = target_of(earlier, order.device)
    spent, most, asked = costs(earlier, target), Budget(), order.steering
    return Understood(
        contract=order.contract,
        version=loaded.contract.version,
        contract_digest=loaded.digest,
        request_digest=order.request_digest[:_DIGITS],
        start=order.start,
        incumbents={merged_for: kernel.name for merged_for, kernel in incumbents.items()},
        anchors=request.anchors,
        workloads=len({workload.name for workload, _ in scored}),
        cells=len(scored),
        device=order.device,
        target=target,
        runners=order.shards,
        hardware=request.hardware,
        rules=request.rules,
        criteria=request.criteria,
        share=request.share,
        hidden=request.hidden,
        turns=min(most.turns, asked.turns or most.turns),
        tokens=min(most.tokens, asked.tokens or most.tokens),
        seconds=min(most.seconds, float(asked.seconds or most.seconds)),
        headroom=room.ratio if room else None,
        best=room.kernel if room else None,
        headroom_cells=room.cells if room else 0,
        measured_at=room.measured_at if room else "",
        exam_seconds=spent.exam_seconds,
        exams=spent.exams,
        agent_seconds=spent.agent_seconds,
        agent_tokens=spent.agent_tokens,
        agents=spent.agents,
        definition=request.definition.name if request.definition else None,
        definition_digest=request.definition.digest if request.definition else "",
        differences=uncovered(request.definition, loaded) if request.definition else (),
    )


class _Writers:
    """Who may write, each asked once; nobody of whom GitHub does not say so."""

    def __init__(self, tools: Gate) -> None:
        self._github = tools.github
        self._known: dict[str, bool] = {}

    def __call__(self, login: str) -> bool:
        if login not in self._known:
            try:
                self._known[login] = self._github.permission(login) in MAY_WRITE
            except GitHubError:
                self._known[login] = False
        return self._known[login]
