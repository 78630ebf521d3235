"""Runs the shipped workflow files with act: a second witness beside the forge's own interpreter of them.

act runs in host mode, for there is no container engine. What it does not know is taken out of a copy (`stripped`), and
what it would fetch from GitHub is stood in for: checkout of a commit by one from the forge (act has its own for the
rest), the two artifact actions by composite ones that copy folders, the App's token by one that names the App, `pip` by
nothing, for the environment is there. Jobs are judged by act's JSON lines: its exit code is 0 for a job that no runner
was found for (research/bots.md 4.1).
"""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bot.contract.load import parse_yaml
from bot.forge.server import Forge
from bot.handlers.demo import REPOSITORY

ROOT = Path(__file__).parents[2]
LABELS = ("ubuntu-24.04", "b200", "b200-agent")
STAND_INS = {
    "actions/checkout": """
name: checkout
inputs: {ref: {required: true}, persist-credentials: {default: "true"}}
runs:
  using: composite
  steps:
    - shell: bash
      env: {REF: "${{ inputs.ref }}"}
      run: |
        git init --quiet . && git fetch --quiet --depth 1 "$FORGE" "$REF" && git checkout --quiet --force FETCH_HEAD
        echo "$GITHUB_JOB $REF" >> "$ARTIFACTS/checkouts"
""",
    "actions/create-github-app-token": """
name: create-github-app-token
inputs: {client-id: {required: true}, private-key: {required: true}}
outputs: {token: {value: "${{ steps.made.outputs.token }}"}}
runs:
  using: composite
  steps:
    - id: made
      shell: bash
      env: {KEY: "${{ inputs.private-key }}", ID: "${{ inputs.client-id }}"}
      run: test -n "$KEY" && echo "token=token-of-$ID" >> "$GITHUB_OUTPUT"
""",
    "actions/upload-artifact": """
name: upload-artifact
inputs: {name: {required: true}, path: {required: true}}
runs:
  using: composite
  steps:
    - shell: bash
      env: {NAME: "${{ inputs.name }}", FROM: "${{ inputs.path }}"}
      run: mkdir -p "$ARTIFACTS/$NAME" && cp -r "$FROM/." "$ARTIFACTS/$NAME/"
""",
    "actions/download-artifact": """
name: download-artifact
inputs: {name: {default: ""}, pattern: {default: ""}, merge-multiple: {default: ""}, path: {required: true}}
runs:
  using: composite
  steps:
    - shell: bash
      env: {NAME: "${{ inputs.name || inputs.pattern }}", TO: "${{ inputs.path }}"}
      run: mkdir -p "$TO" && for each in "$ARTIFACTS"/$NAME; do cp -r "$each/." "$TO/"; done
""",
}


def stripped(text: str) -> str:
    """A workflow file without `concurrency.queue`, which act 0.2 refuses the file for; nothing else may change.

    Raises:
        AssertionError: something else would change.
    """
    bare = re.sub(r"^ +queue: max\n", "", text, flags=re.MULTILINE)
    assert _without_queue(parse_yaml(text, "the file")) == parse_yaml(bare, "the copy")
    return bare


def _without_queue(node: Any) -> Any:
    if isinstance(node, list):
        return [_without_queue(each) for each in node]
    if not isinstance(node, dict):
        return node
    return {
        key: {k: v for k, v in value.items() if k != "queue"} if key == "concurrency" else _without_queue(value)
        for key, value in node.items()
    }


@dataclass
class Act:
    """act, for one forge. `results` of all jobs so far: workflow file, job, result."""

    forge: Forge
    folder: Path
    variables: dict[str, str]
    results: list[tuple[str, str, str]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    runs: int = 0
    secrets: dict[str, str] = field(default_factory=lambda: {"GITHUB_TOKEN": "bot-token"})

    def __post_init__(self) -> None:
        self._tools = self.folder / "tools"
        self._tools.mkdir(parents=True)
        for name, line in {"proctor": f'exec "{sys.executable}" -m bot "$@"', "pip": "exit 0"}.items():
            (self._tools / name).write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
            (self._tools / name).chmod(0o755)
        for name, text in STAND_INS.items():
            place = self.folder / name
            place.mkdir(parents=True)
            (place / "action.yml").write_text(text, encoding="utf-8")
            _git(place, "init", "--quiet", "--initial-branch=main")
            _git(place, "add", "--all")
            _git(place, "commit", "--quiet", "--message", "Stand in")

    def checkout(self) -> Path:
        """The default branch as it is now, with what act cannot read taken out."""
        place = self.folder / f"checkout-{self.runs}"
        _git(self.folder, "clone", "--quiet", "--depth", "1", self.forge.clone_url, str(place))
        for path in (place / ".github" / "workflows").glob("*.yml"):
            path.write_text(stripped(path.read_text(encoding="utf-8")), encoding="utf-8")
        # Where act takes `github.repository` from.
        _git(place, "remote", "set-url", "origin", f"https://github.com/{REPOSITORY}.git")
        return place

    def run(self, event: str, payload: dict[str, Any], workflow: str) -> dict[str, str]:
        """Run one workflow file for an event; each job's result."""
        self.runs += 1
        place = self.checkout()
        home, artifacts = self.folder / f"home-{self.runs}", self.folder / f"artifacts-{self.runs}"
        home.mkdir()
        artifacts.mkdir()
        file = self.folder / f"event-{self.runs}.json"
        file.write_text(json.dumps(payload), encoding="utf-8")
        title = f"{workflow} #{(payload.get('issue') or {}).get('number', 0)}"
        state = self.forge.state
        made = state.begin_run(workflow, title, event)
        path = f".github/workflows/{workflow}.yml"
        command = [str(_program()), event, "-C", str(place), "-W", path, "-e", str(file), "--json"]
        command += [part for label in LABELS for part in ("-P", f"{label}=-self-hosted")]
        command += [part for name in STAND_INS for part in ("--local-repository", self._stand_in(place, name))]
        command += [part for k, v in self.variables.items() for part in ("--var", f"{k}={v}")]
        environment = {
            "GITHUB_API_URL": self.forge.api_url,
            "GITHUB_SERVER_URL": self.forge.url,
            "GITHUB_RUN_ID": str(made.id),
            "ARTIFACTS": str(artifacts),
            "FORGE": self.forge.clone_url,
        }
        command += [part for k, v in environment.items() for part in ("--env", f"{k}={v}")]
        command += [part for k, v in self.secrets.items() for part in ("-s", f"{k}={v}")]
        command += ["--actor", payload["sender"]["login"]]
        shell = {"PATH": f"{self._tools}:{os.environ['PATH']}", "HOME": str(home), "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, env=shell, capture_output=True, text=True, check=False, timeout=600)
        results = self._read(workflow, made.id, done.stdout)
        state.end_run(made.id, "failure" if "failure" in results.values() else "success")
        assert results, done.stdout[-2000:] + done.stderr[-2000:]
        return results

    def checkouts(self) -> list[tuple[str, str]]:
        """Which job of the newest run checked out what, in alphabetical order."""
        lines = (self.folder / f"artifacts-{self.runs}" / "checkouts").read_text(encoding="utf-8").splitlines()
        return sorted((job, ref) for job, _, ref in (line.partition(" ") for line in lines))

    def _stand_in(self, place: Path, name: str) -> str:
        """The argument that points every pin of an action to its stand-in."""
        texts = (path.read_text(encoding="utf-8") for path in (place / ".github" / "workflows").glob("*.yml"))
        (pin,) = {found[1] for text in texts for found in re.finditer(rf"{re.escape(name)}@([0-9a-f]{{40}})", text)}
        return f"{name}@{pin}={self.folder / name}"

    def _read(self, workflow: str, run: int, said: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for text in said.splitlines():
            line = json.loads(text)
            self.lines.append(f"{line.get('job', '')}: {line.get('msg', '')}")
            if "jobResult" in line:
                found[line["jobID"]] = line["jobResult"]
        self.results += [(workflow, job, result) for job, result in found.items()]
        return found


def _program() -> Path:
    return Path(sys.executable).with_name("act")


def available() -> bool:
    """Whether act is there."""
    return _program().is_file()


def _git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=act", "-c", "user.email=act@example.org")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)
