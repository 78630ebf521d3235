"""Text from outside, made harmless before a person or a model sees it. Pure; knows nothing of who wrote it.

The hidden-text list follows what claude-code-action and gh-aw strip: HTML comments, zero-width, bidi, tag-block and
control characters (research/bots.md, security checklist).
"""

import re
import unicodedata
from collections import Counter

CODE_SPAN_LIMIT = 200
"""Candidate text is shown in code spans of at most this many characters (design.md, hostile data)."""

_HTML_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_TOKEN = re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{20,}|sk-ant-[\w-]{8,})")


def printable(text: str) -> str:
    """Drop control, format (zero-width, bidi, tag-block), surrogate and private-use characters."""
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in {"Cc", "Cf", "Cs", "Co"})


def strip_hidden(text: str) -> tuple[str, int]:
    """Text as a reader of the rendered page sees it, and how many characters were hidden from them."""
    visible = printable(text)
    # Taking a comment out may leave the halves of another one side by side, so once is not enough.
    while (without := _HTML_COMMENT.sub("", visible)) != visible:
        visible = without
    return visible, len(text) - len(visible)


def hidden_parts(text: str) -> list[str]:
    """What `strip_hidden` takes out, for people to see: comments as they stand, characters by code point."""
    visible, comments = printable(text), list[str]()
    while found := _HTML_COMMENT.findall(visible):
        comments += found
        visible = _HTML_COMMENT.sub("", visible)
    counted = Counter(c for c in text if printable(c) != c)
    names = ((c, unicodedata.name(c, "without a name")) for c in sorted(counted))
    return [*comments, *(f"U+{ord(c):04X} {name} × {counted[c]}" for c, name in names)]


def redact(text: str) -> str:
    """Replace anything shaped like a GitHub or Anthropic token. Call before truncating, never after."""
    return _TOKEN.sub("[redacted]", text)


def shorten(text: str, limit: int) -> str:
    """At most `limit` characters, the cut marked."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def code_span(text: str, limit: int = CODE_SPAN_LIMIT) -> str:
    """Hostile text as one inert Markdown code span: one line, no backticks, no mention, bounded."""
    flat = " ".join(printable(redact(text)).replace("`", "'").replace("|", "¦").split())
    return f"`{shorten(flat, limit) or ' '}`"


def plain_line(text: str, limit: int = CODE_SPAN_LIMIT) -> str:
    """Hostile text as one printable line for a terminal."""
    return shorten(" ".join(printable(redact(text)).split()), limit)
