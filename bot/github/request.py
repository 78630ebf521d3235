"""What an issue asks for: the body of the issue form → `Request`. Pure; whether the contract exists, the caller knows.

GitHub renders a form as one level-three heading per field, followed by the answer, `_No response_` when empty, ticks as
a task list, code in a fence:
https://docs.github.com/en/communities/using-templates-to-encourage-useful-issues-and-pull-requests/syntax-for-githubs-form-schema
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Literal, get_args

from markdown_it import MarkdownIt

from bot import digest
from bot.contract.distribution import Frozen
from bot.contract.interchange.flashinfer_bench import Definition, read_definition
from bot.errors import DataError, UsageError
from bot.github.api import BODY_LIMIT
from bot.github.commands import SetBudget, read_command
from bot.sanitize import code_span, hidden_parts, redact, strip_hidden

Start = Literal["incumbent", "reference", "attached"]

GOAL_LIMIT = 4_000
"""Characters of free text: two pages, and a small part of what a model reads."""
CRITERIA_LIMIT = 1_000
HARDWARE_LIMIT = 100
ANCHORS_LIMIT = 16
SHOWN = 20
"""Problems in an answer; a body has room for thousands."""

RULES = {
    "can be captured in a CUDA graph": "graph-safe",
    "never synchronises": "no synchronisation in the call",
    "allocates nothing": "no allocation in the call",
}
"""What the form lets tick of a call, and how we say it."""

_CONTRACT, _DEFINITION, _START, _ATTACHED = "Contract", "Definition", "Start from", "Attached kernel"
_ANCHORS, _HARDWARE, _GOAL, _CRITERIA = "Anchor shapes", "Hardware", "What matters", "Acceptance criteria"
_SHARE, _RULES, _BUDGET = "Share of model time", "Deployment rules", "Budget"
HEADINGS = (
    _CONTRACT,
    _DEFINITION,
    _START,
    _ATTACHED,
    _ANCHORS,
    _HARDWARE,
    _GOAL,
    _CRITERIA,
    _SHARE,
    _RULES,
    _BUDGET,
)
"""The fields of the form, in their order; only the contract and what matters must be there."""
_NO_RESPONSE = "_No response_"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_WORKLOAD = re.compile(r"[A-Za-z0-9_]{1,40}")
_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,3})?) ?%?", re.ASCII)
_FENCE = re.compile(r"(`{3,})\w*\n(.*)\n\1", re.DOTALL)
_TICK = re.compile(r"- \[[xX]\] (.+)")
_BLOCKS = MarkdownIt("commonmark")
_BLOCKS.core.ruler.enableOnly(["normalize", "block"])

FORM = f"""```markdown
### {_CONTRACT}

kda_prefill

### {_GOAL}

Long prompts first; decoding does not matter.

### {_START}

incumbent
```"""


class Request(Frozen):
    """What to optimise and from where. `goal` and `criteria` are other people's text, `attached` a kernel of theirs:
    quoted data to a model, never an instruction. `share`: percent of a model's time, as they say; `rules`: what a call
    must keep to where it is deployed, which is told to the agent and to reviewers and decides nothing.

    `definition` is what was attached as one; without a contract's name, it says which contract is meant.

    `hidden_characters` were in the body but not to be seen by its readers; they are removed, and reviewers are shown
    them (`hidden`).
    """

    contract: str
    definition: Definition | None = None
    start: Start
    goal: str
    hidden_characters: int
    hidden: list[str] = []
    attached: str = ""
    anchors: list[str] = []
    hardware: str = ""
    criteria: str = ""
    share: float | None = None
    rules: list[str] = []
    turns: int | None = None
    tokens: int | None = None
    seconds: int | None = None


def request_digest(title: str, body: str) -> str:
    """What an issue asks for, as a digest: an edit changes it, however GitHub stores ends of lines."""
    lines = [" ".join(title.split()), body.replace("\r\n", "\n").strip()]
    return digest.of_document(lines)


def read_request(body: str) -> Request:
    """The request in an issue's body.

    Raises:
        UsageError: it is not the form; says everything that is missing, and shows the form.
    """
    unified = body.replace("\r\n", "\n")
    visible, hidden = strip_hidden(unified)
    problems: list[str] = []
    answers = _answers(visible[:BODY_LIMIT], problems)
    fields = {
        "contract": _contract(answers, problems),
        "definition": _definition(answers, problems),
        "start": _start(answers, problems),
        "goal": _text(answers, _GOAL, GOAL_LIMIT, problems),
        "attached": redact(_unfenced(answers.get(_ATTACHED, ""))),
        "anchors": _anchors(answers, problems),
        "hardware": " ".join(_text(answers, _HARDWARE, HARDWARE_LIMIT, problems).split()),
        "criteria": _text(answers, _CRITERIA, CRITERIA_LIMIT, problems),
        "share": _share(answers, problems),
        "rules": list(_rules(answers, problems)),
        **_budget(answers, problems),
    }
    if _GOAL not in answers:
        problems.append(f"“{_GOAL}” is missing (its answer may be empty)")
    if problems:
        shown = list(dict.fromkeys(problems))
        rest = [f"and {len(shown) - SHOWN} more"] if len(shown) > SHOWN else []
        listed = "\n".join(f"- {problem}" for problem in [*shown[:SHOWN], *rest])
        raise UsageError(
            f"This issue is not a filled-in request form:\n\n{listed}\n\nThe form looks like this:\n\n{FORM}"
        )
    return Request.model_validate({**fields, "hidden_characters": hidden, "hidden": hidden_parts(unified)})


def _contract(answers: dict[str, str], problems: list[str]) -> str:
    contract = answers.get(_CONTRACT, "")
    if not contract and not answers.get(_DEFINITION):
        problems.append(f"“{_CONTRACT}” is missing or empty")
    elif contract and not _NAME.fullmatch(contract):
        problems.append(f"“{_CONTRACT}” must be the name of one contract, not {code_span(contract, 60)}")
    return contract


def _definition(answers: dict[str, str], problems: list[str]) -> Definition | None:
    text = _unfenced(answers.get(_DEFINITION, ""))
    if not text:
        return None
    try:
        return read_definition(text, _DEFINITION)
    except DataError as error:
        problems += [
            f"“{_DEFINITION}”, {code_span(each.path or '(root)', 80)}: {code_span(each.reason)}"
            for each in error.problems
        ]
        return None


def _start(answers: dict[str, str], problems: list[str]) -> str:
    start = answers.get(_START, "").casefold() or "incumbent"
    if start not in get_args(Start):
        *some, last = get_args(Start)
        problems.append(f"“{_START}” must be {', '.join(some)} or {last}, not {code_span(start, 60)}")
    elif start == "attached" and not _unfenced(answers.get(_ATTACHED, "")):
        problems.append(f"“{_START}” says attached, and “{_ATTACHED}” is empty")
    return start


def _text(answers: dict[str, str], heading: str, limit: int, problems: list[str]) -> str:
    text = answers.get(heading, "")
    if len(text) > limit:
        problems.append(f"“{heading}” has {len(text)} characters; at most {limit} are read")
    return redact(text)


def _unfenced(answer: str) -> str:
    found = _FENCE.fullmatch(answer)
    return found[2] if found else answer


def _anchors(answers: dict[str, str], problems: list[str]) -> list[str]:
    names = re.split(r"[\s,;]+", answers.get(_ANCHORS, "").strip())
    wanted = list(dict.fromkeys(name for name in names if name))
    if wrong := [name for name in wanted if not _WORKLOAD.fullmatch(name)]:
        problems.append(f"“{_ANCHORS}” must be names of workloads, not {code_span(wrong[0], 60)}")
    if len(wanted) > ANCHORS_LIMIT:
        problems.append(f"“{_ANCHORS}” names {len(wanted)} workloads; at most {ANCHORS_LIMIT} are read")
    return wanted


def _share(answers: dict[str, str], problems: list[str]) -> float | None:
    answer = answers.get(_SHARE, "")
    found = _PERCENT.fullmatch(answer)
    share = float(found[1]) if found else None
    if answer and (share is None or share > 100):
        problems.append(f"“{_SHARE}” must be a percentage, not {code_span(answer, 60)}")
    return share


def _rules(answers: dict[str, str], problems: list[str]) -> Iterator[str]:
    for line in answers.get(_RULES, "").splitlines():
        ticked = _TICK.fullmatch(line.strip())
        if ticked and ticked[1] in RULES:
            yield RULES[ticked[1]]
        elif ticked:
            problems.append(f"“{_RULES}” has no such rule: {code_span(ticked[1], 60)}")


def _budget(answers: dict[str, str], problems: list[str]) -> dict[str, Any]:
    answer = " ".join(answers.get(_BUDGET, "").split())
    if not answer:
        return {}
    command = read_command(f"/budget {answer}")
    if not isinstance(command, SetBudget):
        problems.append(
            f"“{_BUDGET}” must be as in `turns=40 tokens=1000000 seconds=1800`, not {code_span(answer, 60)}"
        )
        return {}
    return {"turns": command.turns, "tokens": command.tokens, "seconds": command.seconds}


def _answers(body: str, problems: list[str]) -> dict[str, str]:
    """Known heading → its answer. Any other heading is part of the answer in which it stands."""
    lines = body.split("\n")
    found = [*_headings(body), ("", len(lines), len(lines))]
    if preamble := "\n".join(lines[: found[0][1]]).strip():
        problems.append(f"there is text before the first heading of the form: {code_span(preamble, 60)}")
    answers: dict[str, str] = {}
    for (heading, _, start), (_, end, _) in pairwise(found):
        if heading in answers:
            problems.append(f"“{heading}” stands twice")
        answer = "\n".join(lines[start:end]).strip()
        answers[heading] = "" if answer == _NO_RESPONSE else answer
    return answers


def _headings(body: str) -> Iterator[tuple[str, int, int]]:
    """Known headings at the top level, with their first line and the line after them."""
    for opening, content in pairwise(_BLOCKS.parse(body)):
        known = content.content in HEADINGS
        if opening.type == "heading_open" and opening.markup == "###" and opening.level == 0 and known and opening.map:
            first, after = opening.map
            yield content.content, first, after
