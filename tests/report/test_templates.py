"""The environment is safe by default and strict about names."""

import jinja2
import pytest
from markupsafe import Markup

from bot.report import templates


def printed(source: str, **facts: object) -> str:
    return templates._environment().from_string(source).render(**facts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "`plain`"),
        ("a`b|c\nd", "`a'b¦c d`"),
        ("<!-- marker -->", "`‹!-- marker -->`"),
        ("x" * 500, "`" + "x" * 199 + "…`"),
    ],
)
def test_whatever_no_filter_vouches_for_is_a_code_span(text, expected):
    assert printed("{{ text }}", text=text) == expected


@pytest.mark.parametrize("name", ["token_loop", "H96 8192", "x", "improved"])
def test_a_harmless_name_is_printed_as_it_is(name):
    assert printed("{{ name|name }}", name=name) == name


@pytest.mark.parametrize(
    "name", ["@team", "GH-1", "#1", "_x_", "a*b", "www.evil", "a|b", "", "x" * 41, "a\n", "<b>", "a[b](c)"]
)
def test_a_name_that_could_be_markdown_is_a_code_span(name):
    shown = printed("{{ name|name }}", name=name)
    assert shown[0] == shown[-1] == "`"
    assert "`" not in shown[1:-1]


def test_a_missing_number_is_a_dash_and_a_missing_name_an_error():
    assert printed("{{ x }}", x=None) == "–"
    with pytest.raises(jinja2.UndefinedError):
        printed("{{ nothing }}")


def test_markdown_of_ours_passes():
    assert printed("{{ x }}", x=Markup("**x**")) == "**x**"
