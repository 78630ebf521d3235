"""The commands people give in comments: text → one command, a problem to answer, or nothing. Pure.

A command is the first line of a paragraph at the top level of the Markdown, from its first character. What stands in
code, quotes, lists, headings, tables and HTML is inert, and nothing is read after the first HTML block, since a
paragraph inside `<details>` is folded away from the reader.
"""

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, get_args

from markdown_it import MarkdownIt

from bot.digest import APPROVAL_DIGITS
from bot.github.api import BODY_LIMIT
from bot.sanitize import code_span, printable


@dataclass(frozen=True, slots=True)
class RerunBench:
    """Measure the candidate of this pull request again."""

    USAGE: ClassVar[str] = "/rerun-bench"
    MEANING: ClassVar[str] = "measure the candidate of this pull request again; the runs are pooled"
    ARGUMENTS: ClassVar[re.Pattern[str]] = re.compile("")


@dataclass(frozen=True, slots=True)
class Approve:
    """Approve the evidence that has this digest."""

    USAGE: ClassVar[str] = "/approve DIGEST"
    MEANING: ClassVar[str] = f"approve the evidence with this digest ({APPROVAL_DIGITS} to 64 hexadecimal digits)"
    ARGUMENTS: ClassVar[re.Pattern[str]] = re.compile(rf"(?P<digest>[0-9a-f]{{{APPROVAL_DIGITS},64}})")
    digest: str


@dataclass(frozen=True, slots=True)
class Help:
    """List the commands."""

    USAGE: ClassVar[str] = "/help"
    MEANING: ClassVar[str] = "list the commands"
    ARGUMENTS: ClassVar[re.Pattern[str]] = re.compile("")


@dataclass(frozen=True, slots=True)
class CommandProblem:
    """Meant as a command, but none that can be followed; `text` is the answer, in Markdown."""

    text: str


Command = RerunBench | Approve | Help

_CATALOGUE: dict[str, type[RerunBench] | type[Approve] | type[Help]] = {
    command.USAGE.split()[0]: command for command in get_args(Command)
}
# Blocks are all that is needed. Inline parsing would be work in the hands of whoever writes the comment.
_BLOCKS = MarkdownIt("commonmark").enable("table")
_BLOCKS.core.ruler.enableOnly(["normalize", "block"])


def help_text() -> str:
    """The table of commands, in Markdown."""
    rows = [f"| `{command.USAGE}` | {command.MEANING} |" for command in _CATALOGUE.values()]
    note = "One command a comment, on the first line of its own paragraph. Only people with write access are followed."
    return "\n".join(["| command | what it does |", "|---|---|", *rows, "", note])


def read_command(body: str) -> Command | CommandProblem | None:
    """The command in a comment; None when it holds none."""
    if len(body) > BODY_LIMIT:
        return CommandProblem(f"The comment is longer than {BODY_LIMIT} characters; no command was read.")
    lines = [line for line in _first_lines(body) if _is_command(printable(line))]
    match lines:
        case []:
            return None
        case [line]:
            return _parse(line)
        case _:
            return CommandProblem("The comment holds more than one command; none was followed. Send one at a time.")


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


def _parse(line: str) -> Command | CommandProblem:
    if printable(line) != line:
        return CommandProblem("The command line holds characters that cannot be seen, so it was not followed.")
    # Spaces and tabs only: a space that is none to the parser must not look like one to the reader.
    word, *arguments = re.split(r"[ \t]+", line)
    command = _CATALOGUE.get(word)
    if command is None:
        close = difflib.get_close_matches(word.casefold(), _CATALOGUE, n=1)
        hint = f" Did you mean `{close[0]}`?" if close else ""
        return CommandProblem(f"There is no command {code_span(word, 40)}.{hint}\n\n{help_text()}")
    match = command.ARGUMENTS.fullmatch(" ".join(arguments))
    if match is None:
        return CommandProblem(f"{code_span(line, 80)} is not of the form `{command.USAGE}`: {command.MEANING}.")
    return command(**match.groupdict())
