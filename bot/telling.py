"""What reports and the agent's feedback say alike of a refusal: what a counterexample was compared with, what the
smallest one holds, and the influence map as text. Pure; every line it returns is plain, printable and bounded.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, TypeVar

from bot.evaluation import Influence, Smallest, Statistic
from bot.sanitize import plain_line

T = TypeVar("T")
Answer = Literal["leaks", "silent", "unread", "little", "half", "mostly", "full", "over", "reversed"]
"""How one part of an output answers to one part of an input, see `MARKS`; silent: the oracle does not answer either."""

MARKS: dict[Answer, str] = {
    "full": "█",
    "mostly": "▓",
    "half": "▒",
    "little": "░",
    "unread": "·",
    "over": "+",
    "reversed": "x",
    "leaks": "!",
    "silent": " ",
}
_LEGEND: tuple[tuple[str, str], ...] = (
    ("█", "answers as it must"),
    ("▓▒░", "answers partly"),
    ("·", "not read"),
    ("+", "over-reacts"),
    ("x", "answers the other way"),
    ("!", "read where it must not be"),
    (" ", "blank: the oracle does not answer either"),
)
_OTHER: dict[Statistic, str] = {
    "bar": "bar",
    "leak": "itself before",
    "relation": "itself asked otherwise",
    "set": "the cut",
}
INPUTS, OUTPUTS, PARTS = 24, 4, 8
"""Inputs of a map, outputs of an input, and parts of either that are shown."""
_DRAWN = 3
"""Inputs whose parts are drawn in text; the others are told in words, for a picture each would be a page."""
_NAME = 24

_UNREAD = 0.05
"""Below this share of the oracle's change an input counts as not read; rounding alone can move an output a little."""
_FULL = 0.1
"""Within a tenth of the oracle's change an answer is as it must be, for a map that people read."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One part of an input (from 1) and one of an output: how it answers, and by what share."""

    part: int
    reached: int
    answer: Answer
    share: float | None


@dataclass(frozen=True, slots=True)
class Block:
    """One output of one input's picture: a row a part of the input, a cell a part of the output."""

    output: str
    rows: list[list[Cell]]

    @property
    def cells(self) -> list[Cell]:
        """All of them."""
        return [cell for row in self.rows for cell in row]


def other(statistic: Statistic) -> str:
    """What the candidate's element was compared with."""
    return _OTHER.get(statistic, "oracle")


def held(smallest: Smallest) -> str:
    """What each tensor of the smallest input holds: `zeros: q, k; as drawn: v`."""
    named = {
        state: [short(name) for name, holds in list(smallest.inputs.items())[:INPUTS] if holds == state]
        for state in ("absent", "zeros", "ones", "as drawn")
    }
    return "; ".join(f"{state}: {', '.join(names)}" for state, names in named.items() if names)


def short(text: str, limit: int = _NAME) -> str:
    """A hostile name as a few printable characters; of a long one only the start is read, for cleaning takes time."""
    return "".join(c for c in plain_line(text[: 20 * limit], limit) if c.isprintable())


def blocks(picture: Influence) -> list[Block]:
    """The outputs of an input's picture, as much as is shown; what is missing in it does not answer."""
    wide = max([*map(len, picture.shares), *map(len, picture.leaks)], default=0)
    each = math.ceil(wide / max(len(picture.outputs), 1))
    parts = range(min(max(len(picture.shares), len(picture.leaks)), PARTS))
    return [
        Block(
            short(output),
            [[_cell(picture, part, number * each, reached) for reached in range(min(each, PARTS))] for part in parts],
        )
        for number, output in enumerate(picture.outputs[:OUTPUTS])
    ]


def _cell(picture: Influence, part: int, start: int, reached: int) -> Cell:
    share = _at(picture.shares, part, start + reached)
    answer: Answer = "leaks" if _at(picture.leaks, part, start + reached) else _answer(share)
    return Cell(part + 1, reached + 1, answer, share)


def _at(rows: Sequence[Sequence[T]], row: int, column: int) -> T | None:
    return rows[row][column] if row < len(rows) and column < len(rows[row]) else None


def _answer(share: float | None) -> Answer:
    if share is None or math.isnan(share):
        return "silent"
    if share > 1 + _FULL:
        return "over"
    if share < -_UNREAD:
        return "reversed"
    steps: tuple[tuple[float, Answer], ...] = ((_UNREAD, "unread"), (1 / 3, "little"), (2 / 3, "half"))
    for end, answer in steps:
        if share < end:
            return answer
    return "full" if share >= 1 - _FULL else "mostly"


def remark(picture: Influence) -> str:
    """One input in words, where it is not as it must be; the worst comes first."""
    return _remark(blocks(picture))


def _remark(found: Sequence[Block]) -> str:
    cells = [cell for block in found for cell in block.cells]
    seen = {cell.answer for cell in cells}
    told = [
        f"{_parts([c.part for c in cells if c.answer == 'leaks'])} read where it must not be"
        if "leaks" in seen
        else "",
        _unread(found, cells) if "unread" in seen else "",
        "over-reacts" if "over" in seen else "",
        "answers the other way" if "reversed" in seen else "",
    ]
    if not any(told) and seen & {"little", "half", "mostly"}:
        told.append("answers only partly")
    if seen == {"silent"}:
        told.append("the oracle does not answer")
    return "; ".join(filter(None, told))


def _unread(found: Sequence[Block], cells: Sequence[Cell]) -> str:
    """`not read from part 5 on` where no output answers to it from there on, and the like."""
    asked = [cell for cell in cells if cell.answer not in {"silent", "leaks"}]
    read = {cell.part for cell in asked if cell.answer != "unread"}
    parts = sorted({cell.part for cell in asked})
    missed = [part for part in parts if part not in read]
    if not read:
        return "not read"
    if missed and missed == parts[-len(missed) :]:
        return f"not read from part {missed[0]} on"
    if missed and missed == parts[: len(missed)]:
        return f"not read before part {parts[len(missed)]}"
    if missed:
        return f"not read in {_parts(missed)}"
    return ", ".join(filter(None, map(_unreached, found)))


def _unreached(block: Block) -> str:
    """What of one output does not answer: all of it, what lies beyond some distance, or no simple part."""
    asked = [cell for cell in block.cells if cell.answer not in {"silent", "leaks"}]
    far = [cell.reached - cell.part for cell in asked if cell.answer == "unread"]
    near = [cell.reached - cell.part for cell in asked if cell.answer != "unread"]
    if not far:
        return ""
    if not near:
        return f"does not reach {block.output}"
    if min(far) > max(0, *near):
        return f"{block.output} forgets it {min(far)} part{'s' * (min(far) != 1)} later"
    return f"{block.output} does not answer to all of it"


def _parts(numbers: Sequence[int]) -> str:
    """`parts 2, 5–6`."""
    distinct = sorted(set(numbers))
    runs = [[n for _, n in run] for _, run in groupby(enumerate(distinct), lambda pair: pair[1] - pair[0])]
    spans = [f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    return f"part{'s' * (len(distinct) > 1)} {', '.join(spans)}"


def axis_words(axis: str) -> str:
    """What is cut into parts: `tokens of each sequence`, or an axis by name."""
    known = {"tokens": "tokens of each sequence", "last axis": "the last axis"}
    return known.get(axis) or short(axis)


def influence_lines(pictures: Sequence[Influence]) -> list[str]:
    """The map as text: the inputs with most amiss drawn, a character a part of an output, a line a part of the input;
    the others in words; then what the marks mean that occur. Without inputs there are no lines.

    Every line opens with a space or a word of ours, so that none of them can pass for a command.
    """
    shown = [(picture, blocks(picture)) for picture in pictures[:INPUTS]]
    amiss = [_amiss(found) for _, found in shown]
    mixed = [number for number, (_, found) in enumerate(shown) if amiss[number] and len(_answers(found)) > 1]
    drawn = sorted(sorted(mixed, key=lambda number: -amiss[number])[:_DRAWN])
    lines = [line for number in drawn for line in _drawing(*shown[number])]
    lines += [
        f" {short(picture.input)}: {_remark(found)}"
        for number, (picture, found) in enumerate(shown)
        if amiss[number] and number not in drawn
    ]
    fine = [short(picture.input) for number, (picture, _) in enumerate(shown) if not amiss[number]]
    if fine:
        lines.append(f" as it must be: {', '.join(fine)}")
    if len(pictures) > len(shown):
        lines.append(f"and {len(pictures) - len(shown)} more inputs")
    seen = {MARKS[cell.answer] for number in drawn for block in shown[number][1] for cell in block.cells}
    legend = "   ".join(f"{marks} {words}".strip() for marks, words in _LEGEND if seen & set(marks))
    return [*lines, f" {legend}"] if legend else lines


def _amiss(found: Sequence[Block]) -> int:
    """In how many places an input is not as it must be."""
    return sum(cell.answer not in {"full", "silent"} for block in found for cell in block.cells)


def _answers(found: Sequence[Block]) -> set[Answer]:
    """The different answers to an input; one alone is told in words."""
    return {cell.answer for block in found for cell in block.cells} - {"silent"}


def _drawing(picture: Influence, found: Sequence[Block]) -> Iterator[str]:
    yield f" {short(picture.input)}: {_remark(found)}"
    yield f" parts of {axis_words(picture.axis)} down, parts of each output across"
    widths = [max(len(block.output), max(map(len, block.rows), default=0)) for block in found]
    yield "     " + "  ".join(f"{block.output:{wide}}" for block, wide in zip(found, widths, strict=True)).rstrip()
    for part in range(max((len(block.rows) for block in found), default=0)):
        drawn = ["".join(MARKS[cell.answer] for cell in block.rows[part]) for block in found]
        yield f" {part + 1:2}  " + "  ".join(f"{row:{w}}" for row, w in zip(drawn, widths, strict=True)).rstrip()
