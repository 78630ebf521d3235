"""Cuts GitHub's own description of its interface down to what the forge serves and sends, and keeps that in tests/data,
beside examples of its webhooks.

    python -m tests.forge.cut

Needs npm and its registry. The packages are pinned: a newer one may say something else, and then the tests say so.
Kept are addresses, parameters, forms of bodies and answers; prose and examples are left out.
"""

import gzip
import json
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bot.forge.app import API, bare_app
from bot.forge.rest import rest
from bot.forge.state import ForgeState

DATA = Path(__file__).parents[1] / "data"
DESCRIPTION = DATA / "github" / "api.json"
EXAMPLES = DATA / "github" / "webhooks.json.gz"

OPENAPI = ("@octokit/openapi@23.0.2", "package/generated/api.github.com.json")
PAYLOADS = ("@octokit/webhooks-examples@7.6.1", "package/api.github.com/index.json")
EVENTS = {
    "issues": ("opened", "edited", "labeled", "unlabeled", "closed", "reopened"),
    "issue_comment": ("created", "edited", "deleted"),
    "pull_request": ("opened", "edited", "labeled", "unlabeled", "synchronize", "closed", "reopened"),
    "pull_request_review": ("submitted", "dismissed"),
    "workflow_run": ("completed",),
}
"""Events that the forge sends or a workflow of ours listens to."""

PROSE = frozenset(
    {"description", "example", "examples", "summary", "externalDocs", "title", "default", "deprecated", "discriminator"}
)
_NULL = {"nullable": True, "type": "object", "maxProperties": 0}


def shape(address: str) -> str:
    """An address whose parameters have no names: `/repos/{}/{}/issues/{}`."""
    return re.sub(r"[{<][^}>]*[}>]", "{}", address)


def served() -> Iterator[tuple[str, str]]:
    """Method and shape of each address of the forge's REST interface."""
    with tempfile.TemporaryDirectory() as folder:
        app = bare_app(ForgeState.create(Path(folder)))
    app.register_blueprint(rest)
    for rule in app.url_map.iter_rules():
        if rule.rule.startswith(API):
            for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}):
                yield method, shape(rule.rule.removeprefix(API))


def packed(package: str, name: str) -> Any:
    """One JSON file of an npm package."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["npm", "pack", "--silent", package], cwd=folder, check=True, capture_output=True)
        with tarfile.open(next(Path(folder).glob("*.tgz"))) as archive:
            file = archive.extractfile(name)
            assert file is not None
            return json.load(file)


def bare(node: Any, *, names: bool = False) -> Any:
    """A schema without prose. `names`: the keys are names of fields, which may be called `title`."""
    if isinstance(node, list):
        return [bare(each) for each in node]
    if not isinstance(node, dict):
        return node
    kept = node if names else {k: v for k, v in node.items() if k not in PROSE and not k.startswith("x-")}
    node = {k: bare(v, names=k == "properties" and not names) for k, v in kept.items()}
    return node if names else _or_null(node)


def _or_null(node: dict[str, Any]) -> dict[str, Any]:
    """A nullable choice with null among what can be chosen: by itself `nullable` says nothing of a choice or an `enum`.

    https://github.com/OAI/OpenAPI-Specification/blob/main/proposals/2019-10-31-Clarify-Nullable.md
    """
    if node.get("nullable") and "enum" in node:
        return node | {"enum": [*node["enum"], None]}
    choice = next((key for key in ("oneOf", "anyOf", "allOf") if key in node), None)
    if choice is None or not node.get("nullable") or "type" in node:
        return node
    rest = {k: v for k, v in node.items() if k not in {"nullable", choice}}
    return rest | {"anyOf": [{choice: node[choice]}, _NULL]}


class Cut:
    """The part of a description that some operations need."""

    def __init__(self, whole: dict[str, Any]) -> None:
        self.whole = whole
        self.schemas: dict[str, Any] = {}

    def at(self, node: dict[str, Any]) -> dict[str, Any]:
        """What a node says, or what it refers to says."""
        while "$ref" in node:
            node = self._named(node["$ref"])
        return node

    def _named(self, ref: str) -> dict[str, Any]:
        found: Any = self.whole
        for key in ref.removeprefix("#/").split("/"):
            found = found[key]
        return dict(found)

    def schema(self, content: dict[str, Any] | None) -> Any:
        """The JSON form in a `content`, with everything it refers to taken along; None when there is none."""
        media = (content or {}).get("application/json")
        form = bare(media["schema"]) if media else None
        self._take(form)
        return form

    def _take(self, node: Any) -> None:
        if isinstance(node, list):
            for each in node:
                self._take(each)
        elif isinstance(node, dict):
            name = str(node.get("$ref", "")).removeprefix("#/components/schemas/")
            if name and name not in self.schemas:
                self.schemas[name] = bare(self.whole["components"]["schemas"][name])
                self._take(self.schemas[name])
            for each in node.values():
                self._take(each)

    def operation(self, node: dict[str, Any], shared: list[dict[str, Any]]) -> dict[str, Any]:
        """Parameters, body and answers."""
        parameters = [self.at(each) for each in (*shared, *node.get("parameters", []))]
        body = self.at(node["requestBody"]) if "requestBody" in node else {}
        for each in parameters:
            self._take(each["schema"])
        return {
            "parameters": [
                {"name": p["name"], "in": p["in"], "required": p.get("required", False), "schema": bare(p["schema"])}
                for p in parameters
                if p["in"] in {"path", "query"}
            ],
            "body": self.schema(body.get("content")),
            "body_required": body.get("required", False),
            "answers": {code: self.schema(self.at(each).get("content")) for code, each in node["responses"].items()},
        }


def description(whole: dict[str, Any]) -> dict[str, Any]:
    """The cut description: operations by method and shape of the address, events by name and action, schemas."""
    cut, wanted = Cut(whole), set(served())
    operations = {
        f"{method.upper()} {shape(path)}": cut.operation(node, item.get("parameters", []))
        for path, item in whole["paths"].items()
        for method, node in item.items()
        if (method.upper(), shape(path)) in wanted
    }
    events = {}
    for name, actions in EVENTS.items():
        for action in actions:
            node = whole["x-webhooks"][f"{name}-{action}".replace("_", "-")]["post"]
            events[f"{name} {action}"] = cut.schema(node["requestBody"]["content"])
    return {
        "source": f"{OPENAPI[0]} (MIT, https://github.com/octokit/openapi), cut by tests/forge/cut.py",
        "operations": operations,
        "events": events,
        "schemas": cut.schemas,
    }


def written(document: dict[str, Any]) -> str:
    """JSON with a line for each operation, event and schema, so that a change can be read."""

    def part(value: Any) -> str:
        if not isinstance(value, dict):
            return json.dumps(value)
        rows = (
            f"{json.dumps(k)}:{json.dumps(v, separators=(',', ':'), sort_keys=True)}" for k, v in sorted(value.items())
        )
        return "{\n" + ",\n".join(rows) + "\n}"

    return "{\n" + ",\n".join(f"{json.dumps(key)}: {part(value)}" for key, value in document.items()) + "\n}\n"


def main() -> None:
    """Write both files."""
    DESCRIPTION.parent.mkdir(exist_ok=True)
    DESCRIPTION.write_text(written(description(packed(*OPENAPI))), encoding="utf-8")
    examples = {each["name"]: each["examples"] for each in packed(*PAYLOADS)}
    text = json.dumps(examples, separators=(",", ":"), sort_keys=True)
    EXAMPLES.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
