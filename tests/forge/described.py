"""Holds the forge to GitHub's own description: every request that it takes, every answer and every webhook.

`tests/data/github/api.json` is that description, cut by `tests.forge.cut` to what the forge serves.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
from flask import Flask, Request, Response, request, request_finished
from openapi_schema_validator import OAS30Validator, oas30_format_checker
from referencing import Registry
from referencing.jsonschema import DRAFT4

from bot.forge.app import API, the_state
from bot.forge.state import ForgeState
from tests.forge.cut import DESCRIPTION, shape

_BASE = "urn:github"
_REFUSALS = ("validation-error", "validation-error-simple")
_REFUSAL = {"$ref": "#/components/schemas/basic-error"}
"""Any address may answer so; the description lists it for some."""
_NAMES = re.compile(r"<(?:\w+:)?(\w+)>")
_PLAIN: dict[str, Callable[[str], Any]] = {"integer": int, "boolean": {"true": True, "false": False}.__getitem__}


class Description:
    """GitHub's description of its interface, as far as the forge has it."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        extended = set(_extended(dict(document)))
        self.operations: Mapping[str, Any] = _closed(document["operations"])
        self.events: Mapping[str, Any] = _closed(document["events"])
        schemas = {name: s if name in extended else _closed(s) for name, s in document["schemas"].items()}
        # Every refusal of GitHub's carries `status`, which these two forms leave out.
        schemas |= {name: document["schemas"][name] for name in _REFUSALS if name in schemas}
        whole = DRAFT4.create_resource({"components": {"schemas": schemas}})
        self._registry: Registry[Any] = Registry().with_resource(_BASE, whole)

    def problems(self, schema: Any, value: Any, what: str) -> Iterator[str]:
        """What is wrong with a value."""
        rooted = _rooted(schema)
        validator = OAS30Validator(rooted, registry=self._registry, format_checker=oas30_format_checker)
        for error in validator.iter_errors(value):
            best = min(error.context, key=lambda e: -len(e.absolute_path)) if error.context else error
            yield f"{what}, {'.'.join(map(str, best.absolute_path)) or 'as a whole'}: {_short(best.message)}"

    def request(self, operation: Mapping[str, Any], req: Request) -> Iterator[str]:
        """What is wrong with a request."""
        known = {(p["in"], p["name"]): p for p in operation["parameters"]}
        ours = _NAMES.findall(req.url_rule.rule if req.url_rule else "")
        for name, parameter in zip(ours, (p for p in operation["parameters"] if p["in"] == "path"), strict=True):
            # The forge takes `owner` and `name` out of what a view is given.
            if name in (req.view_args or {}):
                yield from self._parameter(parameter, str((req.view_args or {})[name]))
        for name, text in req.args.items():
            if ("query", name) not in known:
                yield f"there is no query parameter {name!r}"
            else:
                yield from self._parameter(known["query", name], text)
        body = req.get_data()
        if operation["body"] is None:
            # PyGithub sends an empty object with some requests that have no body.
            if body not in {b"", b"{}"}:
                yield "the description has no body here"
        elif body:
            yield from self.problems(operation["body"], json.loads(body), "body")
        elif operation["body_required"]:
            yield "the body is missing"

    def _parameter(self, parameter: Mapping[str, Any], text: str) -> Iterator[str]:
        convert = _PLAIN.get(parameter["schema"].get("type", ""), str)
        try:
            value = convert(text)
        except (ValueError, KeyError):
            yield f"parameter {parameter['name']}: {text!r} is not of type {parameter['schema']['type']}"
            return
        yield from self.problems(parameter["schema"], value, f"parameter {parameter['name']}")

    def answer(self, operation: Mapping[str, Any], response: Response) -> Iterator[str]:
        """What is wrong with an answer."""
        code, body = str(response.status_code), response.get_data()
        answers = operation["answers"]
        try:
            value = json.loads(body or b"null")
        except ValueError:
            yield f"answer {code} is not JSON"
            return
        if code not in answers and response.status_code < 400:
            yield f"the description has no answer {code}"
        elif answers.get(code) is not None:
            yield from self.problems(answers[code], value, f"answer {code}")
        elif response.status_code >= 400:
            yield from self.problems(_REFUSAL, value, f"answer {code}")
        elif value not in (None, {}):
            yield f"answer {code} has no body in the description"

    def event(self, name: str, payload: Mapping[str, Any]) -> Iterator[str]:
        """What is wrong with a webhook."""
        known = f"{name} {payload.get('action')}"
        if known not in self.events:
            yield f"the description has no event {known!r}"
        else:
            yield from self.problems(self.events[known], payload, f"event {known}")


def _short(message: str) -> str:
    """A complaint without most of the value that it is about, which comes first."""
    return message if len(message) < 400 else f"{message[:100]} … {message[-300:]}"


def _rooted(schema: Any) -> Any:
    """The schema with its references pointing into the registry."""
    if isinstance(schema, list):
        return [_rooted(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {k: f"{_BASE}{v}" if k == "$ref" and isinstance(v, str) else _rooted(v) for k, v in schema.items()}


def _closed(node: Any) -> Any:
    """A schema without room for fields that GitHub does not know: neither forge nor bot may invent any.

    What an `allOf` puts together stays open, for each of its parts knows only some of the fields.
    """
    if isinstance(node, list):
        return [_closed(each) for each in node]
    if not isinstance(node, dict):
        return node
    inner = {key: value if key == "allOf" else _closed(value) for key, value in node.items()}
    return {"additionalProperties": False} | inner if isinstance(node.get("properties"), dict) else inner


def _extended(node: Any) -> Iterator[str]:
    """Names of schemas that are parts of an `allOf`."""
    if isinstance(node, list):
        for each in node:
            yield from _extended(each)
    elif isinstance(node, dict):
        yield from (part["$ref"].rpartition("/")[2] for part in node.get("allOf", []) if "$ref" in part)
        for each in node.values():
            yield from _extended(each)


@cache
def description() -> Description:
    """The committed description."""
    return Description(json.loads(DESCRIPTION.read_text(encoding="utf-8")))


@contextmanager
def held_to_the_description() -> Iterator[None]:
    """While the block runs, look at all that any forge of this process takes and gives; fail at its end.

    Raises:
        AssertionError: something is not as GitHub describes it.
    """
    known = description()
    found: list[str] = []
    states: dict[int, ForgeState] = {}

    def look(_: Flask, response: Response, **__: Any) -> None:
        if not request.path.startswith(API):
            return
        state = the_state()
        states[id(state)] = state
        found.extend(f"{request.method} {request.path}: {problem}" for problem in exchange(known, request, response))

    request_finished.connect(look)
    try:
        yield
    finally:
        request_finished.disconnect(look)
    for state in states.values():
        found += _told(known, state)
    assert not found, "\n".join(dict.fromkeys(found))


@pytest.fixture(autouse=True)
def described() -> Iterator[None]:
    """For a conftest: all tests of its folder are held to the description."""
    with held_to_the_description():
        yield


def exchange(known: Description, req: Request, response: Response) -> Iterator[str]:
    """What is wrong with a request and its answer. A request may be wrong if it is refused, unless it is the bot's."""
    if req.url_rule is None:
        if response.status_code < 400:
            yield "answered without an address of its own"
        return
    operation = known.operations.get(f"{req.method} {shape(req.url_rule.rule.removeprefix(API))}")
    if operation is None:
        yield "the operation is not in the description: python -m tests.forge.cut, or GitHub has none"
        return
    if response.status_code < 400 or "kernel-proctor" in req.headers.get("User-Agent", ""):
        yield from known.request(operation, req)
    yield from known.answer(operation, response)


def _told(known: Description, state: ForgeState) -> Iterator[str]:
    for event in state.events:
        yield from known.event(event.name, event.payload)
