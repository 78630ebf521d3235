"""`proctor gate` on payloads that are not what they should be: one message or one reason, no traceback, no request.

The address of the interface leads nowhere, so that a request would be another message.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bot.github.events import PAYLOAD_LIMIT
from tests.github.test_events import payload
from tests.verify.conftest import CENTER

LABELED = payload("issues", "labeled")


def gate(tmp_path: Path, content: bytes, event: str = "issues") -> "subprocess.CompletedProcess[str]":
    place = tmp_path / "event.json"
    place.write_bytes(content)
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "GITHUB_EVENT_NAME": event,
        "GITHUB_EVENT_PATH": str(place),
        "GITHUB_REPOSITORY": "acme/kernels",
        "GITHUB_API_URL": "http://127.0.0.1:9/api/v3",
        "GITHUB_SERVER_URL": "http://127.0.0.1:9",
        "GITHUB_TOKEN": "token",
        "PROCTOR_BOT_LOGIN": "proctor[bot]",
        "GITHUB_OUTPUT": str(tmp_path / "output"),
    }
    command = [sys.executable, "-m", "bot", "gate", "--run", str(tmp_path / "run")]
    return subprocess.run(
        command, cwd=CENTER.parents[1], env=environment, capture_output=True, text=True, check=False, timeout=60
    )


def of_another_version(document: dict[str, Any]) -> bytes:
    """As if GitHub had moved what we read: the number gone, the label a list."""
    moved = json.loads(json.dumps(document))
    moved["issue"]["iid"] = moved["issue"].pop("number")
    moved["label"] = [moved["label"]]
    return json.dumps(moved).encode()


REFUSED: dict[str, tuple[Callable[[], bytes], list[str]]] = {
    "oversized": (lambda: b" " * (PAYLOAD_LIMIT + 1), [f"{PAYLOAD_LIMIT + 1} bytes, at most {PAYLOAD_LIMIT} are read"]),
    "truncated": (lambda: json.dumps(LABELED).encode()[:-40], ["cannot be read as JSON"]),
    "empty": (lambda: b"", ["cannot be read as JSON"]),
    "not UTF-8": (lambda: b'{"action": "\xff"}', ["cannot be read as JSON"]),
    "unknown version": (lambda: of_another_version(LABELED), ["2 problems", "issue.number:", "label:"]),
    "a list": (lambda: b"[]", ["payload of 'issues': 1 problem"]),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_payload_that_cannot_be_read_is_one_message(tmp_path: Path, what: str) -> None:
    content, parts = REFUSED[what]
    done = gate(tmp_path, content())
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert all(part in done.stderr for part in parts), done.stderr
    assert not (tmp_path / "run" / "order.json").exists()


@pytest.mark.parametrize("event", ["issue", "ISSUES", "pull_request_target", "issues\x1b[2J"])
def test_an_event_of_another_name_is_ignored_with_the_reason(tmp_path: Path, event: str) -> None:
    done = gate(tmp_path, json.dumps(LABELED).encode(), event)
    assert done.returncode == 0
    assert "ignored: the bot does not act on" in done.stdout
    assert "\x1b" not in done.stdout
    assert (tmp_path / "output").read_text(encoding="utf-8") == "go=false\n"
