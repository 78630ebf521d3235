"""What an issue asks for: the body of the issue form → `Request`. Pure; whether the contract exists, the caller knows.

GitHub renders a form as one level-three heading per field, followed by the answer, `_No response_` when empty:
https://docs.github.com/en/communities/using-templates-to-encourage-useful-issues-and-pull-requests/syntax-for-githubs-form-schema
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Literal, cast, get_args

from markdown_it import MarkdownIt

from bot.contract.distribution import Frozen
from bot.errors import UsageError
from bot.github.api import BODY_LIMIT
from bot.sanitize import code_span, redact, strip_hidden

Start = Literal["incumbent", "reference"]

GOAL_LIMIT = 4_000
"""Characters of free text: two pages, and a small part of what a model reads."""

_CONTRACT, _GOAL, _START = "Contract", "What matters", "Start from"
_NO_RESPONSE = "_No response_"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
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
    """What to optimise and from where. `goal` is other people's text: quoted data to a model, never an instruction.

    `hidden_characters` were in the body but not to be seen by its readers; they are removed, and reviewers are told.
    """

    contract: str
    start: Start
    goal: str
    hidden_characters: int


def read_request(body: str) -> Request:
    """The request in an issue's body.

    Raises:
        UsageError: it is not the form; says everything that is missing, and shows the form.
    """
    visible, hidden = strip_hidden(body.replace("\r\n", "\n"))
    problems: list[str] = []
    answers = _answers(visible[:BODY_LIMIT], problems)
    contract, start, goal = (answers.get(heading, "") for heading in (_CONTRACT, _START, _GOAL))
    start = start.casefold() or "incumbent"
    if not contract:
        problems.append(f"“{_CONTRACT}” is missing or empty")
    elif not _NAME.fullmatch(contract):
        problems.append(f"“{_CONTRACT}” must be the name of one contract, not {code_span(contract, 60)}")
    if _GOAL not in answers:
        problems.append(f"“{_GOAL}” is missing (its answer may be empty)")
    if len(goal) > GOAL_LIMIT:
        problems.append(f"“{_GOAL}” has {len(goal)} characters; at most {GOAL_LIMIT} are read")
    if start not in get_args(Start):
        problems.append(f"“{_START}” must be {' or '.join(get_args(Start))}, not {code_span(start, 60)}")
    if problems:
        listed = "\n".join(f"- {problem}" for problem in problems)
        raise UsageError(
            f"This issue is not a filled-in request form:\n\n{listed}\n\nThe form looks like this:\n\n{FORM}"
        )
    return Request(contract=contract, start=cast("Start", start), goal=redact(goal), hidden_characters=hidden)


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
        known = content.content in (_CONTRACT, _GOAL, _START)
        if opening.type == "heading_open" and opening.markup == "###" and opening.level == 0 and known and opening.map:
            first, after = opening.map
            yield content.content, first, after
