"""Put measured limits into the text of a contract, leaving every other character, comments included, as it is."""

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from bot.contract.load import Span, dump_yaml, locate, parse_yaml
from bot.contract.schema import Limit
from bot.errors import DataError, UsageError

WIDTH = 110
_MEASURED = ("median", "p99", "maximum", "source")


def with_limits(text: str, limits: Mapping[str, Limit]) -> str:
    """The text of `contract.yaml` with these limits, by path (`limits.y`, `probes[2].limits.y`).

    Raises:
        UsageError: a limit is not written out where it stands (an alias, say), so that it cannot be replaced alone.
    """
    edits: dict[int, tuple[Span, str]] = {}
    try:
        for path, limit in limits.items():
            for key in _MEASURED:
                span = locate(text, (*_parts(path), key))
                edits[span.start] = (span, _scalar(getattr(limit, key), span))
        written = text
        for _, (span, new) in sorted(edits.items(), reverse=True):
            written = written[: span.start] + new + written[span.end :]
        if parse_yaml(written, "the new text") != _replaced(parse_yaml(text, "the old text"), limits):
            raise UsageError("a limit shares its text with something else: write the proposed limits by hand")
    except (DataError, KeyError, IndexError):
        raise UsageError("the limits are not written out one by one: write the proposed ones by hand") from None
    return written


def snippet(limits: Mapping[str, Limit]) -> str:
    """The limits as YAML to paste, each under its path."""
    return dump_yaml({path: limit.model_dump() for path, limit in limits.items()})


def _parts(path: str) -> Sequence[str | int]:
    return [int(part) if part.isdigit() else part for part in re.findall(r"\w+", path)]


def _scalar(value: float | str, span: Span) -> str:
    if isinstance(value, float):
        return str(value)
    if span.flow:
        return json.dumps(value, ensure_ascii=False)
    indent = " " * (span.column + 2)
    return ">-\n" + textwrap.fill(
        value, WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _replaced(document: Any, limits: Mapping[str, Limit]) -> Any:
    document = json.loads(json.dumps(document))  # What an alias shared is now apart.
    for path, limit in limits.items():
        held = document
        for part in _parts(path):
            held = held[part]
        held.update({key: getattr(limit, key) for key in _MEASURED})
    return document
