"""The commands people give in comments: text → one command, a problem to answer, or nothing. Pure.

A command is the first line of a paragraph at the top level of the Markdown, from its first character. What stands in
code, quotes, lists, headings, tables and HTML is inert, and nothing is read after the first HTML block, since a
paragraph inside `<details>` is folded away from the reader.
"""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal, get_args

from markdown_it import MarkdownIt

from bot.digest import APPROVAL_DIGITS
from bot.github.api import BODY_LIMIT
from bot.github.refusals import (
    BAD_ARGUMENTS,
    COMMENT_TOO_LONG,
    HIDDEN_TEXT,
    MANY_COMMANDS,
    OUT_OF_RANGE,
    UNKNOWN_COMMAND,
    RefusedError,
)
from bot.sanitize import code_span, printable

HINT_LIMIT = 500
"""Characters of a hint: one line that says something."""

_WORKLOAD = r"[A-Za-z0-9_]{1,40}"


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number between two bounds, without signs or leading zeros."""

    least: int
    most: int

    @property
    def said(self) -> str:
        """What it may be."""
        return f"a whole number from {self.least} to {self.most}"

    def read(self, text: str) -> int | None:
        """The value; None when it is none."""
        known = re.fullmatch(r"[1-9][0-9]{0,11}", text, re.ASCII) is not None
        return int(text) if known and self.least <= int(text) <= self.most else None


@dataclass(frozen=True, slots=True)
class Matching:
    """A word of this form."""

    pattern: str
    said: str

    def read(self, text: str) -> str | None:
        """The value; None when it is none."""
        return text if re.fullmatch(self.pattern, text) else None


Keys = Mapping[str, Whole | Matching]
_NOTHING: Keys = {}
_ANY_WORKLOAD = Matching(_WORKLOAD, "the name of a workload")


@dataclass(frozen=True, slots=True)
class RerunBench:
    """Measure the candidate of this pull request again, `n` times, against the incumbent of the default branch or of
    the commit that the report began with."""

    USAGE: ClassVar[str] = "/rerun-bench [workload=NAME] [rounds=N] [against=main|report] [n=N]"
    MEANING: ClassVar[str] = (
        "examine the candidate of this pull request again; the runs are pooled. `n` (1 to 5): so many exams. "
        "`against`: the incumbent of the default branch (as without it) or the one that the report began with. "
        "`workload`: this one alone; `rounds` (2 to 64): so many pairs of fresh workers time each cell"
    )
    ARGUMENTS: ClassVar[re.Pattern[str]] = re.compile("")
    KEYS: ClassVar[Keys] = {
        "workload": _ANY_WORKLOAD,
        "rounds": Whole(2, 64),
        "against": Matching("main|report", "`main` or `report`"),
        "n": Whole(1, 5),
    }
    workload: str | None = None
    rounds: int | None = None
    against: Literal["main", "report"] = "main"
    n: int = 1


@dataclass(frozen=True, slots=True)
class CancelBench:
    """End the exam that goes on."""

    USAGE: ClassVar[str] = "/cancel-bench"
    MEANING: ClassVar[str] = "end the exam of this pull request that goes on; what was known before stands"
    ARGUMENTS: ClassVar[re.Pattern[str]] = re.compile("")
    KEYS: ClassVar[Keys] = _NOTHING


@dataclass(frozen=True, slots=True)
class BenchStatus:
    """Say whether a run goes on."""

    USAGE: ClassVar[str] = "/bench-status"
    MEANING: ClassVar[str] = (
        "say whether a run of this issue or pull request goes on, since when, and what is before it"
    )
    ARGUMENTS: ClassVar[re.Pattern[str]] = re.compile("")
    KEYS: ClassVar[Keys] = _NOTHING


@dataclass(frozen=True, slots=True)
class Verify:
    """Examine the one kernel file that this pull request changes, whoever wrote it."""

    USAGE: ClassVar[str] = "/verify"
    MEANING: ClassVar[str] = (
        "examine the one kernel file of this pull request, whoever wrote it: the same exam, the same statuses"
    )
    ARGUMENTS: ClassVar[re.Pattern[str]] = re.compile("")
    KEYS: ClassVar[Keys] = _NOTHING


@dataclass(frozen=True, slots=True)
class Approve:
    """Approve the evidence that has this digest."""

    USAGE: ClassVar[str] = "/approve DIGEST"
    MEANING: ClassVar[str] = f"approve the evidence with this digest ({APPROVAL_DIGITS} to 64 hexadecimal digits)"
    ARGUMENTS: ClassVar[re.Pattern[str]] = re.compile(rf"(?P<digest>[0-9a-f]{{{APPROVAL_DIGITS},64}})")
    KEYS: ClassVar[Keys] = _NOTHING
    digest: str


@dataclass(frozen=True, slots=True)
class Go:
    """Let a waiting run go on."""

    USAGE: ClassVar[str] = "/go"
    MEANING: ClassVar[str] = "let a run go on that waits, because there is little to gain"
    ARGUMENTS: ClassVar[re.Pattern[str]] = re.compile("")
    KEYS: ClassVar[Keys] = _NOTHING


@dataclass(frozen=True, slots=True)
class Hint:
    """Tell the agent something."""

    USAGE: ClassVar[str] = "/hint TEXT"
    MEANING: ClassVar[str] = (
        f"tell the agent something (one line of at most {HINT_LIMIT} characters), before the label starts it"
    )
    ARGUMENTS: ClassVar[re.Pattern[str]] = re.compile(rf"(?P<text>.{{1,{HINT_LIMIT}}})")
    KEYS: ClassVar[Keys] = _NOTHING
    text: str


@dataclass(frozen=True, slots=True)
class Focus:
    """Name the workload that matters most."""

    USAGE: ClassVar[str] = "/focus WORKLOAD"
    MEANING: ClassVar[str] = "name the workload that matters most to the agent, before the label starts it"
    ARGUMENTS: ClassVar[re.Pattern[str]] = re.compile(rf"(?P<workload>{_WORKLOAD})")
    KEYS: ClassVar[Keys] = _NOTHING
    workload: str


@dataclass(frozen=True, slots=True)
class SetBudget:
    """Let the agent spend less; never more than its workflow lets it."""

    USAGE: ClassVar[str] = "/budget KEY=VALUE…"
    MEANING: ClassVar[str] = (
        "let the agent spend less, before the label starts it: `turns` (1 to 60), `tokens` (10000 to 4000000), "
        "`seconds` (60 to 3600)"
    )
    ARGUMENTS: ClassVar[re.Pattern[str]] = re.compile("(?!)")
    KEYS: ClassVar[Keys] = {
        "turns": Whole(1, 60),
        "tokens": Whole(10_000, 4_000_000),
        "seconds": Whole(60, 3600),
    }
    turns: int | None = None
    tokens: int | None = None
    seconds: int | None = None


@dataclass(frozen=True, slots=True)
class StopRun:
    """End the run of this issue that goes on."""

    USAGE: ClassVar[str] = "/stop"
    MEANING: ClassVar[str] = "end the run of this issue that goes on; nothing of it is published"
    ARGUMENTS: ClassVar[re.Pattern[str]] = re.compile("")
    KEYS: ClassVar[Keys] = _NOTHING


@dataclass(frozen=True, slots=True)
class Help:
    """List the commands."""

    USAGE: ClassVar[str] = "/help"
    MEANING: ClassVar[str] = "list the commands"
    ARGUMENTS: ClassVar[re.Pattern[str]] = re.compile("")
    KEYS: ClassVar[Keys] = _NOTHING


@dataclass(frozen=True, slots=True)
class CommandProblem:
    """Meant as a command, but none that can be followed."""

    refused: RefusedError

    @property
    def text(self) -> str:
        """The answer, in Markdown."""
        return str(self.refused)


Command = RerunBench | CancelBench | BenchStatus | Verify | Approve | Go | Hint | Focus | SetBudget | StopRun | Help

_CATALOGUE: dict[str, type[Command]] = {command.USAGE.split()[0]: command for command in get_args(Command)}
# Blocks are all that is needed. Inline parsing would be work in the hands of whoever writes the comment.
_BLOCKS = MarkdownIt("commonmark").enable("table")
_BLOCKS.core.ruler.enableOnly(["normalize", "block"])


def help_text() -> str:
    """The table of commands, in Markdown."""
    pipe = r"\|"  # or it would end the cell
    rows = [f"| `{command.USAGE.replace('|', pipe)}` | {command.MEANING} |" for command in _CATALOGUE.values()]
    note = (
        "One command a comment, on the first line of its own paragraph. Only people with write access are followed: "
        "each of their commands gets 👀 when it is taken, and what comes of it stands in a comment or in a status of "
        "the head; whoever may not gets 👎 and no word."
    )
    return "\n".join(["| command | what it does |", "|---|---|", *rows, "", note])


def read_command(body: str) -> Command | CommandProblem | None:
    """The command in a comment; None when it holds none."""
    if len(body) > BODY_LIMIT:
        return CommandProblem(COMMENT_TOO_LONG.error(limit=BODY_LIMIT))
    lines = [line for line in _first_lines(body) if _is_command(printable(line))]
    match lines:
        case []:
            return None
        case [line]:
            try:
                return _parse(line)
            except RefusedError as refused:
                return CommandProblem(refused)
        case _:
            return CommandProblem(MANY_COMMANDS.error())


def _first_lines(body: str) -> Iterator[str]:
    """First source line of each top-level paragraph, up to the first HTML block."""
    for opening, content in pairwise(_BLOCKS.parse(body)):
        if opening.type == "html_block":
            return
        if opening.type == "paragraph_open" and opening.level == 0:
            yield content.content.split("\n", 1)[0].rstrip(" \t")


def _is_command(line: str) -> bool:
    """A slash and a word; `/usr/bin` is a path and `//` a comment."""
    return re.match(r"/[^\s/]+(?:\s|\Z)", line) is not None


def _parse(line: str) -> Command:
    # An HTML comment in the line is as invisible to its readers as a character without width.
    if printable(line) != line or "<!" in line:
        raise HIDDEN_TEXT.error()
    # Spaces and tabs only: a space that is none to the parser must not look like one to the reader.
    word, *arguments = re.split(r"[ \t]+", line)
    command = _CATALOGUE.get(word)
    if command is None:
        close = difflib.get_close_matches(word.casefold(), _CATALOGUE, n=1)
        hint = f"Did you mean `{close[0]}`? " if close else ""
        raise UNKNOWN_COMMAND.error(word=code_span(word, 40), hint=hint)
    if command.KEYS and arguments:
        return command(**_pairs(command, line, arguments))
    match = command.ARGUMENTS.fullmatch(" ".join(arguments))
    if match is None:
        raise _malformed(command, line)
    named: dict[str, Any] = match.groupdict()
    return command(**named)


def _pairs(command: type[Command], line: str, arguments: Sequence[str]) -> dict[str, Any]:
    """`KEY=VALUE` in any order, each key at most once."""
    found: dict[str, Any] = {}
    for argument in arguments:
        key, equals, text = argument.partition("=")
        kind = command.KEYS.get(key)
        if kind is None or not equals:
            raise _malformed(command, line)
        if key in found:
            raise _malformed(command, line, f": `{key}` stands twice")
        found[key] = kind.read(text)
        if found[key] is None:
            raise OUT_OF_RANGE.error(key=key, said=kind.said, value=code_span(text, 40))
    return found


def _malformed(command: type[Command], line: str, detail: str = "") -> RefusedError:
    meaning = command.MEANING[0].upper() + command.MEANING[1:]
    return BAD_ARGUMENTS.error(line=code_span(line, 80), usage=f"`{command.USAGE}`", detail=detail, meaning=meaning)
