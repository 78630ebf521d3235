"""The influence map for a page: as a block of text in a comment, and as an SVG of its own. Pure.

The picture needs no font, script or style sheet of anybody's, brings its own ground, and so looks the same on a light
and a dark page. Colours differ in lightness first and never speak alone: a cell that is amiss holds its mark as well,
and each cell says its share in words.
"""

from collections.abc import Sequence
from html import escape

from bot import telling
from bot.evaluation import Evaluation, Influence
from bot.telling import Answer, Block, Cell

_GROUND, _INK, _FAINT, _LINE = "#ffffff", "#1f2328", "#57606a", "#d0d7de"
_WHITE = (0xF7, 0xFB, 0xFF)
_BLUE = (0x08, 0x51, 0x9C)
_FILLS: dict[Answer, str] = {"over": "#e69f00", "reversed": "#cc79a7", "leaks": "#d55e00", "silent": "#e6e8eb"}
_WORDS: dict[Answer, str] = {
    "full": "answers as it must",
    "mostly": "answers partly",
    "half": "answers partly",
    "little": "answers partly",
    "unread": "not read",
    "over": "over-reacts",
    "reversed": "answers the other way",
    "leaks": "read where it must not be",
    "silent": "the oracle does not answer",
}
_LEGEND: tuple[Answer, ...] = ("full", "half", "unread", "over", "reversed", "leaks", "silent")
_CELL, _GAP, _MARGIN, _LETTER = 18, 14, 16, 6.7
_NUMBERS = 22
"""Room for the numbers of the parts left of a block."""
_HEAD = 66
"""Room for name, remark, axis, outputs and numbers above a block."""
_WIDTH = 760


def fenced(pictures: Sequence[Influence]) -> str:
    """The map as a fenced code block of Markdown, inert whatever the inputs are called."""
    lines = [line.replace("`", "'").replace("<!", "‹!") for line in telling.influence_lines(pictures)]
    return "\n".join(["```text", *lines, "```"])


def of_evaluation(evaluation: Evaluation) -> str | None:
    """The picture that belongs to an evaluation, if the refusal in it has a map."""
    for run in evaluation.runs:
        if run.refusal and run.refusal.influence:
            return svg(run.refusal.influence, run.refusal.influence_where)
    return None


def svg(pictures: Sequence[Influence], where: str) -> str:
    """The map as a picture: a tile an input, in it a row a part of the input, a column a part of each output."""
    shown = pictures[: telling.INPUTS]
    title = f"Influence map{f' in {telling.short(where, 60)}' if where else ''}"
    told = " ".join(f"{telling.short(p.input)}: {telling.remark(p) or _WORDS['full']}." for p in shown)
    drawn = [
        _text(_MARGIN, 28, title, size=14, weight=600),
        _text(_MARGIN, 46, "Parts of the input down, parts of each output across.", fill=_FAINT),
    ]
    x, y, tall, width = float(_MARGIN), 62.0, 0.0, float(_WIDTH)
    for picture in shown:
        wide, high = _size(picture)
        if x > _MARGIN and x + wide > _WIDTH:
            x, y, tall = float(_MARGIN), y + tall, 0.0
        drawn += _tile(picture, x, y)
        x, tall, width = x + wide, max(tall, high), max(width, x + wide)
    y += tall
    if len(pictures) > len(shown):
        drawn.append(_text(_MARGIN, y + 4, f"and {len(pictures) - len(shown)} more inputs", fill=_FAINT))
        y += 18
    drawn += _legend(y + 6)
    return _page(drawn, title, told, round(width), round(y + 64))


def _page(drawn: Sequence[str], title: str, told: str, width: int, height: int) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="{escape(title)}" font-family="ui-monospace, Menlo, Consolas, monospace" '
        f'font-size="11" fill="{_INK}">'
    )
    ground = (
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="6" fill="{_GROUND}" stroke="{_LINE}"/>'
    )
    names = [f"<title>{escape(title)}</title>", f"<desc>{escape(told)}</desc>"]
    return "\n".join([head, *names, ground, *drawn, "</svg>"]) + "\n"


def _size(picture: Influence) -> tuple[float, float]:
    """How much room a tile takes; its words may be wider than its cells."""
    found = telling.blocks(picture)
    cells = _NUMBERS + sum(_block_width(block) + _GAP for block in found)
    words = _LETTER * max(len(text) for text in (*_words(picture), "")) + 2 * _GAP
    return max(cells + _GAP, words), _HEAD + _CELL * max((len(block.rows) for block in found), default=0) + 22


def _words(picture: Influence) -> tuple[str, str]:
    """Name and axis, and below them the remark."""
    axis = f", parts of {telling.axis_words(picture.axis)}" if picture.axis else ""
    return f"{telling.short(picture.input)}{axis}", telling.remark(picture) or _WORDS["full"]


def _block_width(block: Block) -> float:
    return max(_CELL * max(map(len, block.rows), default=0), _LETTER * len(block.output))


def _tile(picture: Influence, x: float, y: float) -> list[str]:
    name, remark = _words(picture)
    drawn = [_text(x, y + 14, name, weight=600), _text(x, y + 30, remark)]
    left, top = x + _NUMBERS, y + _HEAD
    found = telling.blocks(picture)
    parts = max((len(block.rows) for block in found), default=0)
    drawn += [
        _text(left - 6, top + _CELL * part - 5, str(part), fill=_FAINT, size=9, anchor="end")
        for part in range(1, parts + 1)
    ]
    for block in found:
        drawn.append(_text(left, top - 16, block.output, fill=_FAINT))
        for number in range(1, max(map(len, block.rows), default=0) + 1):
            place = left + _CELL * (number - 0.5)
            drawn.append(_text(place, top - 4, str(number), fill=_FAINT, size=9, anchor="middle"))
        drawn += [
            _cell(telling.short(picture.input), block, cell, (left + _CELL * (cell.reached - 1), top))
            for cell in block.cells
        ]
        left += _block_width(block) + _GAP
    return drawn


def _cell(name: str, block: Block, cell: Cell, place: tuple[float, float]) -> str:
    x, y = place[0], place[1] + _CELL * (cell.part - 1)
    share = "" if cell.share is None else f", share {cell.share:.2f}"
    words = f"{name} part {cell.part}, {block.output} part {cell.reached}: {_WORDS[cell.answer]}{share}"
    mark = _text(x + _CELL / 2, y + 13, _mark(cell.answer), size=11, anchor="middle")
    box = _box(x + 1, y + 1, _CELL - 2, cell.answer, cell.share)
    return f"<g><title>{escape(words)}</title>{box}{mark}</g>"


def _mark(answer: Answer) -> str:
    """What stands in a cell where something is amiss; how blue it is says the rest."""
    return telling.MARKS[answer] if answer in {"unread", "over", "reversed", "leaks"} else ""


def _fill(answer: Answer, share: float | None) -> str:
    if answer in _FILLS:
        return _FILLS[answer]
    depth = min(1.0, max(0.0, share or 0.0))
    return "#" + "".join(f"{round(low + depth * (high - low)):02x}" for low, high in zip(_WHITE, _BLUE, strict=True))


def _box(x: float, y: float, side: float, answer: Answer, share: float | None) -> str:
    """A cell; one that is not read has a darker line, for its colour is nearly the ground's."""
    edge = _FAINT if answer == "unread" else _LINE
    size = f'width="{side:g}" height="{side:g}" rx="2"'
    return f'<rect x="{x:g}" y="{y:g}" {size} fill="{_fill(answer, share)}" stroke="{edge}"/>'


def _legend(y: float) -> list[str]:
    drawn = []
    for number, answer in enumerate(_LEGEND):
        x, line = _MARGIN + 200 * (number % 4), y + 22 * (number // 4)
        drawn += [
            _box(x, line, 16, answer, {"full": 1.0, "half": 0.5}.get(answer)),
            _text(x + 8, line + 12, _mark(answer), anchor="middle"),
            _text(x + 22, line + 12, _WORDS[answer], fill=_FAINT),
        ]
    return drawn


def _text(x: float, y: float, text: str, fill: str = _INK, **style: str | int) -> str:
    """Escaped text; `style`: size, weight, anchor."""
    names = {"size": "font-size", "weight": "font-weight", "anchor": "text-anchor"}
    extra = "".join(f' {names[key]}="{value}"' for key, value in style.items())
    return f'<text x="{x:g}" y="{y:g}" fill="{fill}"{extra}>{escape(text)}</text>' if text else ""
