"""The part of GitHub's expressions that the workflow files use."""

import pytest

from bot.errors import UsageError
from bot.forge.expressions import evaluate, insert

CONTEXTS = {
    "github": {"event": {"label": {"name": "optimize"}, "comment": {"body": "/Help me"}}},
    "vars": {"A": "x"},
    "needs": {"gate": {"outputs": {"go": "true"}}},
}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("github.event.label.name == 'optimize'", True),
        ("github.event.label.name != 'optimize'", False),
        ("needs.gate.outputs.go == 'true'", True),
        ("needs.other.outputs.go == 'true'", False),
        ("vars.A || 'b'", "x"),
        ("vars.B || 'b'", "b"),
        ("vars.B || 'it''s'", "it's"),
        ("vars.A && 'yes' || 'no'", "yes"),
        ("!vars.B", True),
        ("(vars.B || vars.A) == 'x'", True),
        ("contains(github.event.comment.body, '/help')", True),
        ("contains(github.event.review.body, '/go')", False),
        ("fromJSON('[1, 2]')", [1, 2]),
        ("always()", True),
        ("true", True),
    ],
)
def test_expressions_have_githubs_value(expression: str, value: object) -> None:
    assert evaluate(expression, CONTEXTS) == value


@pytest.mark.parametrize("expression", ["a ==", "hashFiles('x')", "fromJSON('[')", "a b", "1 + 1", "", "(a"])
def test_what_is_not_known_is_refused(expression: str) -> None:
    with pytest.raises(UsageError):
        evaluate(expression, CONTEXTS)


def test_insertions_become_text() -> None:
    assert insert("a-${{ vars.A }}-${{ vars.B }}-${{ vars.A == 'x' }}", CONTEXTS) == "a-x--true"
