"""The one Jinja environment: facts in, Markdown out. The only importer of jinja2.

Safe by default: whatever a template prints is a code span (bot/sanitize.py) unless a filter below made it Markdown of
ours. Jinja's own escaping is HTML's, so templates print values one by one and never join or concatenate them. Hostile
text stands in paragraphs and tables only, never on a line that opens with an HTML tag: there a code span is not one.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import jinja2
from markupsafe import Markup

from bot import sanitize, telling
from bot.report import figures, influence
from bot.report import runs as several

_PLAIN_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_ ]{0,38}[A-Za-z0-9])?")
"""Nothing that GitHub turns into emphasis, a link, a mention or a reference (`GH-1`, `#1`, `www.`)."""

_READ_AT_MOST = 20
"""Times what is shown: cleaning 100,000 characters takes 40 ms, and a hostile evaluation has hundreds of such texts."""


def render(template: str, **facts: object) -> str:
    """A template of bot/report/templates with these facts; an unknown name in it is an error."""
    return _environment().get_template(template).render(**facts)


def _code(text: str, limit: int = sanitize.CODE_SPAN_LIMIT) -> Markup:
    """Any text as an inert code span that cannot pass for one of our hidden markers either."""
    start = text[: _READ_AT_MOST * limit].replace("<!", "‹!")
    return Markup(sanitize.code_span(start, limit))  # noqa: S704 - Markdown, escaped for Markdown


def _name(text: str) -> Markup:
    """A name as it is when nothing in it can be Markdown, otherwise as a code span."""
    return Markup(str(text)) if _PLAIN_NAME.fullmatch(text) else _code(text)  # noqa: S704 - matched just before


def _short(text: str) -> Markup:
    """The first seven digits of a digest, as git shows them."""
    return _code(text[:7])


def _finalize(value: object) -> object:
    if value is None:
        return Markup(figures.MISSING)  # noqa: S704 - a constant of ours
    return _code(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _ours(function: Callable[..., str]) -> Callable[..., Markup]:
    """A formatter whose text needs no escape."""

    def formatted(*values: Any) -> Markup:
        return Markup(function(*values))  # noqa: S704 - digits, signs and words of ours, or made inert by the function

    return formatted


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bot.report"),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        {
            "code": _code,
            "name": _name,
            "short": _short,
            "ms": _ours(figures.milliseconds),
            "ratio": _ours(figures.ratio),
            "interval": _ours(figures.interval),
            "duration": _ours(figures.duration),
            "latency": _ours(figures.latency),
            "machine_code": _ours(figures.machine_code),
            "sampled": several.sampled,
            "span": _ours(figures.span),
            "tera": _ours(figures.tera),
            "percent": _ours(figures.percent),
            "signed": _ours(figures.signed),
            "within": _ours(figures.within),
            "units": _ours(figures.units),
            "octaves": _ours(figures.octaves),
            "axes": figures.axes,
            "place": figures.place,
            "miss": figures.miss,
            "other": _ours(figures.other),
            "severity": _ours(figures.significant),
            "held": telling.held,
            "map": _ours(influence.fenced),
        }
    )
    return environment
