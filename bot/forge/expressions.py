"""The part of GitHub's expression language that our workflow files use: paths, strings, ==, &&, ||, !, three functions.

https://docs.github.com/en/actions/reference/workflows-and-actions/expressions
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from bot.errors import UsageError

_TOKEN = re.compile(r"\s*(?:('(?:[^']|'')*')|(==|!=|&&|\|\||[!(),])|([A-Za-z_][\w.-]*))")
_INSERT = re.compile(r"\$\{\{(.*?)\}\}")


def evaluate(expression: str, contexts: Mapping[str, Any]) -> Any:
    """Value of one expression; a path that leads nowhere is None, as on GitHub.

    Raises:
        UsageError: it uses more of the language than is known here.
    """
    parser = _Parser(_tokens(expression), contexts)
    value = parser.either()
    if parser.tokens:
        raise UsageError(f"cannot read the expression {expression!r}")
    return value


def insert(text: str, contexts: Mapping[str, Any]) -> str:
    """Text with each `${{ … }}` replaced by its value."""
    return _INSERT.sub(lambda found: _shown(evaluate(found[1], contexts)), text)


def _shown(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _tokens(expression: str) -> list[str]:
    tokens, place = [], 0
    text = expression.strip()
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            raise UsageError(f"cannot read the expression {expression!r}")
        tokens.append(found[0].strip())
        place = found.end()
    return tokens


class _Parser:
    """Recursive descent, loosest binding first."""

    def __init__(self, tokens: list[str], contexts: Mapping[str, Any]) -> None:
        self.tokens = tokens
        self.contexts = contexts

    def either(self) -> Any:
        value = self.both()
        while self._take("||"):
            other = self.both()
            value = value or other
        return value

    def both(self) -> Any:
        value = self.equal()
        while self._take("&&"):
            other = self.equal()
            value = value and other
        return value

    def equal(self) -> Any:
        value = self.single()
        while self.tokens and self.tokens[0] in {"==", "!="}:
            same = self.tokens.pop(0) == "=="
            value = (value == self.single()) is same
        return value

    def single(self) -> Any:
        if self._take("!"):
            return not self.single()
        if self._take("("):
            value = self.either()
            self._expect(")")
            return value
        if not self.tokens:
            raise UsageError("an expression ends too early")
        token = self.tokens.pop(0)
        if token.startswith("'"):
            return token[1:-1].replace("''", "'")
        if self._take("("):
            return self._call(token)
        return _path(token, self.contexts)

    def _call(self, name: str) -> Any:
        arguments = []
        while not self._take(")"):
            arguments.append(self.either())
            self._take(",")
        match name, arguments:
            case "contains", [str() | None as whole, str() as part]:
                # What is not there is the empty text.
                return part.lower() in (whole or "").lower()
            case "fromJSON", [str() as text]:
                try:
                    return json.loads(text)
                except ValueError:
                    raise UsageError(f"fromJSON() of {text!r}") from None
            case "always", []:
                return True
            case _:
                raise UsageError(f"unknown function {name}() in an expression")

    def _take(self, token: str) -> bool:
        if self.tokens and self.tokens[0] == token:
            self.tokens.pop(0)
            return True
        return False

    def _expect(self, token: str) -> None:
        if not self._take(token):
            raise UsageError(f"an expression lacks {token!r}")


def _path(path: str, contexts: Mapping[str, Any]) -> Any:
    if path in {"true", "false"}:
        return path == "true"
    value: Any = contexts
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
