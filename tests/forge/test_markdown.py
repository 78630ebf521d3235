from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from bot.forge.markdown import render

HARMLESS = {
    *("a", "blockquote", "br", "code", "details", "em", "h1", "h2", "h3", "hr", "li", "ol", "p", "pre", "s", "strong"),
    *("sub", "summary", "sup", "table", "tbody", "td", "th", "thead", "tr", "ul"),
}
TAGS = st.builds(
    "<{}{}>".format,
    st.sampled_from(["details", "summary", "sub", "br", "script", "img", "svg", "/details", "!--", "a"]),
    st.sampled_from(
        ["", " ", "/", " open", " onclick=alert(1)", "\nonload=x", " href='javascript:alert(1)'", "<", "--"]
    ),
)
MARKS = st.sampled_from(
    [
        *(
            "<",
            ">",
            "<!--",
            "-->",
            '"',
            "'",
            "`",
            "~~",
            "|",
            "\n",
            "\n\n",
            " ",
            "![",
            "[",
            "](",
            ")",
            "&lt;",
            "\\",
            "```",
        ),
        *(
            "javascript:alert(1)",
            "https://example.org/",
            "#12",
            "- ",
            "> ",
            "|---|--:|",
            "<![CDATA[",
            "]]>",
            "<?",
            "?>",
        ),
    ]
)


class _Reader(HTMLParser):
    """What a browser would make of the text: every tag and its attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


@given(st.lists(TAGS | MARKS, max_size=9).map("".join))
def test_no_text_makes_anything_but_harmless_tags(text):
    reader = _Reader()
    reader.feed(render(text))
    reader.close()
    for tag, attributes in reader.tags:
        assert tag in HARMLESS
        assert set(attributes) <= {"href", "title", "rel", "align", "class", "start", "open"}
        assert not str(attributes.get("href", "")).lower().startswith("javascript:")


def test_numbers_lead_to_issues_but_not_inside_links_or_code():
    assert render("Closes #1.") == '<p>Closes <a href="../issues/1">#1</a>.</p>\n'
    assert render("[see #1](https://example.org)").count("<a ") == 1
    assert "<a" not in render("`#1` a#1 &#39; ##1 https://example.org/#1")


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "a <img src=x onerror=alert(1)> b",
        "<details ontoggle=alert(1) open>x</details>",
        "<details open onclick=alert(1)>",
        "<svg/onload=alert(1)>",
        '<a href="javascript:alert(1)">x</a>',
        "<style>body{display:none}</style>",
        "<form action=https://evil.example><button>go</button></form>",
        "<summary\nonclick=alert(1)>x</summary>",
        "<!-- --><script>alert(1)</script>",
        "<!--><script>alert(1)</script>-->",
        "<br onclick=alert(1)>",
        "<?php ?><![CDATA[<script>]]>",
    ],
)
def test_raw_html_from_a_comment_is_inert(text):
    shown = render(text)
    for opening in ("<script", "<img", "<svg", "<a ", "<style", "<form", "<button", "<details ", "<summary\n", "<br o"):
        assert opening not in shown
    assert "<!--" not in shown


@pytest.mark.parametrize(
    "text", ["[x](javascript:alert(1))", "[x](JaVaScRiPt:alert(1))", "[x](data:text/html,<b>)", "[x](vbscript:a)"]
)
def test_links_that_run_code_are_not_links(text):
    assert "href" not in render(text)


def test_pictures_become_links_so_that_nothing_is_loaded():
    assert render("![a<b](https://example.org/x.png)") == (
        '<p><a href="https://example.org/x.png" rel="nofollow noreferrer">a&lt;b</a></p>\n'
    )


def test_what_github_shows_in_a_report_is_shown():
    shown = render(
        "| a | b |\n|---|--:|\n| ~~3.7x~~ | `y` |\n\n<details><summary>More</summary>\n\n**bold** x<sub>2</sub>\n\n"
        "</details>\n\n<!-- proctor:report run=1 -->\n\n```python\n1 < 2\n```\n"
    )
    for piece in (
        '<td align="right"><code>y</code></td>',
        "<s>3.7x</s>",
        "<details><summary>More</summary>",
        "<strong>bold</strong> x<sub>2</sub>",
        "</details>",
        "1 &lt; 2",
    ):
        assert piece in shown
    assert "proctor:report" not in shown
