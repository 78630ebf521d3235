"""Markdown to HTML as GitHub shows it, for text from anybody: of raw HTML only a few inert tags survive."""

import html
import re
from collections.abc import Sequence

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from markupsafe import Markup

_INERT_TAG = re.compile(r"<(?:details(?: open)?|br ?/?|/?(?:summary|sub|sup)|/details)>", re.IGNORECASE)
_NUMBER = re.compile(r"(?<![\w&/#])#([0-9]{1,9})\b")
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)


def _inert(raw: str) -> str:
    """Raw HTML with comments dropped and everything but the inert tags, which take no attributes, escaped."""
    text = _COMMENT.sub("", raw)
    pieces, end = [], 0
    for tag in _INERT_TAG.finditer(text):
        pieces += [html.escape(text[end : tag.start()]), tag[0]]
        end = tag.end()
    return "".join([*pieces, html.escape(text[end:])])


def _raw(_: RendererHTML, tokens: Sequence[Token], at: int, __: OptionsDict, ___: EnvType) -> str:
    return _inert(tokens[at].content)


def _image(_: RendererHTML, tokens: Sequence[Token], at: int, __: OptionsDict, ___: EnvType) -> str:
    """A link instead of the picture: a page of the forge loads nothing from elsewhere."""
    source, text = html.escape(str(tokens[at].attrs.get("src", ""))), html.escape(tokens[at].content)
    return f'<a href="{source}" rel="nofollow noreferrer">{text or source}</a>'


def _text(_: RendererHTML, tokens: Sequence[Token], at: int, __: OptionsDict, ___: EnvType) -> str:
    """Plain text, where `#12` leads to that issue or pull request unless it already is part of a link."""
    text = html.escape(tokens[at].content)
    in_link = sum(token.nesting for token in tokens[:at] if token.type in {"link_open", "link_close"})
    return text if in_link else _NUMBER.sub(r'<a href="../issues/\1">#\1</a>', text)


def render(text: str) -> Markup:
    """Safe HTML of a comment: tables, strikethrough, code, folded details."""
    parser = MarkdownIt("commonmark", {"html": True, "linkify": False, "breaks": True}).enable(
        ["table", "strikethrough"]
    )
    parser.add_render_rule("html_block", _raw)
    parser.add_render_rule("html_inline", _raw)
    parser.add_render_rule("image", _image)
    parser.add_render_rule("text", _text)
    tokens = parser.parse(text)
    for token in tokens:
        if style := token.attrs.pop("style", None):
            # As GitHub writes it; a style attribute would need a weaker content security policy.
            token.attrs["align"] = str(style).removeprefix("text-align:")
    return Markup(parser.renderer.render(tokens, parser.options, {}))  # noqa: S704 - every raw piece went through `_inert`
