"""Which comments are commands: only what every reader sees as one."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.github.api import BODY_LIMIT
from bot.github.commands import Approve, Command, CommandProblem, Help, RerunBench, help_text, read_command

DIGEST = "0123456789abcdef"


@pytest.mark.parametrize(
    ("body", "command"),
    [
        ("/rerun-bench", RerunBench()),
        ("/rerun-bench  \r\nThe driver changed yesterday.", RerunBench()),
        ("Looks odd to me.\n\n/rerun-bench\n", RerunBench()),
        (f"/approve {DIGEST}", Approve(DIGEST)),
        (f"/approve \t {DIGEST * 4}", Approve(DIGEST * 4)),
        ("   /help", Help()),
    ],
)
def test_a_command_is_the_first_line_of_a_paragraph(body: str, command: object):
    assert read_command(body) == command


@pytest.mark.parametrize(
    "body",
    [
        "",
        "Please /rerun-bench",
        "I would not\n/rerun-bench now",
        "`/rerun-bench`",
        "```\n/rerun-bench\n```",
        "    /rerun-bench",
        "> /rerun-bench",
        ">\n> /rerun-bench\n",
        "- /rerun-bench",
        "1. x\n\n   /rerun-bench",
        "# /rerun-bench",
        "/rerun-bench\n===",
        "**/rerun-bench**",
        "[/rerun-bench](https://example.org)",
        "[/rerun-bench]: https://example.org",
        "<!-- /rerun-bench -->",
        "<!--\n\n/rerun-bench\n\n-->",
        "<div>\n/rerun-bench\n</div>",
        "<details>\n\n/rerun-bench\n\n</details>",
        "| a |\n|---|\n/rerun-bench",
        "\\/rerun-bench",
        "&#47;rerun-bench",
        "/usr/bin/env is missing",
        "// a comment",
        "/",
        "/ rerun-bench",
        "⁄rerun-bench",
        "／rerun-bench",
    ],
)
def test_text_that_is_not_a_command_is_inert(body: str):
    assert read_command(body) is None


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("/rerun-bnch", "Did you mean `/rerun-bench`?"),
        ("/Approve x", "Did you mean `/approve`?"),
        ("/merge", "There is no command `/merge`"),
        ("/rerun-bench now", "is not of the form `/rerun-bench`"),
        ("/rerun-bench\u00a0now", "There is no command"),
        ("/approve", "is not of the form `/approve DIGEST`"),
        (f"/approve `{DIGEST}`", "is not of the form"),
        (f"/approve {DIGEST.upper()}", "is not of the form"),
        (f"/approve {DIGEST[:-1]}", "is not of the form"),
        (f"/approve {DIGEST * 4}0", "is not of the form"),
        (f"/approve {DIGEST} {DIGEST}", "is not of the form"),
        (f"/approve {DIGEST[:-1]}１", "is not of the form"),
        (f"/rerun-bench\n\n/approve {DIGEST}", "more than one command"),
        ("x" * (BODY_LIMIT + 1), "longer than"),
    ],
)
def test_what_is_meant_as_a_command_but_is_none_gets_an_answer(body: str, said: str):
    answer = read_command(body)
    assert isinstance(answer, CommandProblem)
    assert said in answer.text


@pytest.mark.parametrize(
    "hidden",
    [
        "\u200b",  # zero-width space
        "\u2060",  # word joiner
        "\ufeff",  # byte order mark
        "\u202e",  # right-to-left override
        "\u2066",  # left-to-right isolate
        "\u00ad",  # soft hyphen
        "\U000e0041",  # a tag character
        "\ue000",  # private use
        "\x1b",  # escape
    ],
)
def test_hidden_characters_in_a_command_line_are_refused(hidden: str):
    for body in (f"{hidden}/approve {DIGEST}", f"/app{hidden}rove {DIGEST}", f"/approve {DIGEST}{hidden}"):
        answer = read_command(body)
        assert isinstance(answer, CommandProblem)
        assert "cannot be seen" in answer.text


def test_a_letter_from_another_alphabet_does_not_pass():
    answer = read_command(f"/\u0430pprove {DIGEST}")
    assert isinstance(answer, CommandProblem)
    assert "no command" in answer.text


def test_the_answer_quotes_hostile_text_as_one_inert_span():
    answer = read_command("/`@everyone|<img>")
    assert isinstance(answer, CommandProblem)
    assert "There is no command `/'@everyone¦<img>`." in answer.text


def test_help_lists_every_command():
    text = help_text()
    for command in get_args(Command):
        assert f"`{command.USAGE}`" in text
        assert command.MEANING in text


@given(
    st.lists(
        st.sampled_from(
            ["/", "/help", "/approve ", DIGEST, "\n", " ", "`", ">", "<!--", "-->", "- ", "|", "\u202e", "a"]
        )
    )
)
def test_any_mixture_is_a_command_only_when_a_line_says_exactly_so(parts: list[str]):
    body = "".join(parts)
    match read_command(body):
        case Help():
            assert any(line.strip() == "/help" for line in body.splitlines())
        case Approve(digest=named):
            assert any(line.split() == ["/approve", named] for line in body.splitlines())
        case answer:
            assert answer is None or (isinstance(answer, CommandProblem) and answer.text)


def test_a_comment_made_to_be_slow_is_read_quickly():
    for piece in ("[", "`", "> ", "- ", "<!--", "*_", "\n/x"):
        found = read_command((piece * BODY_LIMIT)[:BODY_LIMIT])
        assert found is None or isinstance(found, CommandProblem)
