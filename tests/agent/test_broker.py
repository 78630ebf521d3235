"""The process that holds the model's key: what it passes on, what it refuses, and that its child has no key."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from bot.agent.broker import needs_broker
from bot.errors import UsageError
from bot.handlers.models import choose_model

KEY = "sk-ant-the-real-one"
ANSWER = [b"event: message_start\ndata: {}\n\n", b"event: message_stop\ndata: {}\n\n"]
ASK = """
import json, os, sys, urllib.error, urllib.request
word, address = os.environ["PROCTOR_BROKER_WORD"], os.environ["PROCTOR_BROKER"]
def ask(path, headers, method="POST"):
    request = urllib.request.Request(address + path, b"{}" if method == "POST" else None, headers, method=method)
    try:
        with urllib.request.urlopen(request) as answer:
            return [answer.status, answer.read().decode()]
    except urllib.error.HTTPError as error:
        return [error.code, ""]
mine = {"X-Api-Key": word, "Content-Type": "application/json", "Cookie": "a=b"}
print(json.dumps({
    "environment": dict(os.environ),
    "asked": ask("/v1/messages", mine),
    "as bearer": ask("/v1/messages?beta=true", {"Authorization": "Bearer " + word})[0],
    "without the word": ask("/v1/messages", {})[0],
    "with another": ask("/v1/messages", {"X-Api-Key": "x"})[0],
    "elsewhere": ask("/v1/organizations/keys", mine)[0],
    "by another method": ask("/v1/messages", mine, "GET")[0],
}))
sys.exit(7)
"""


class Service(ThreadingHTTPServer):
    """The model's service, which writes down what it is asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.asked: list[tuple[str, dict[str, str]]] = []


class _Answers(BaseHTTPRequestHandler):
    server: Service

    def do_POST(self) -> None:
        self.server.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for part in ANSWER:
            self.wfile.write(part)

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def service() -> Iterator[Service]:
    server = Service()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def brokered(script: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """A process with the key, whose child runs the script."""
    code = "import os, sys; from bot.agent.broker import run_without_key"
    code += "; sys.exit(run_without_key([sys.executable, '-c', os.environ['SCRIPT']], os.environ))"
    root = str(Path(__file__).parents[2])
    known = {"PATH": os.environ["PATH"], "PYTHONPATH": root, "SCRIPT": script, **environment}
    return subprocess.run([sys.executable, "-c", code], env=known, capture_output=True, text=True, check=False)


def test_the_child_asks_without_the_key_and_nothing_else_is_passed_on(service: Service) -> None:
    address = f"http://127.0.0.1:{service.server_port}"
    done = brokered(ASK, ANTHROPIC_API_KEY=KEY, ANTHROPIC_BASE_URL=address)
    assert done.returncode == 7, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    assert KEY not in json.dumps(said)
    assert not {"ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"} & set(said["environment"])
    assert said["asked"] == [200, b"".join(ANSWER).decode()]
    outcomes = {name: said[name] for name in said if name not in ("environment", "asked")}
    assert outcomes == {
        "as bearer": 200,
        "without the word": 401,
        "with another": 401,
        "elsewhere": 404,
        "by another method": 501,
    }
    assert [path for path, _ in service.asked] == ["/v1/messages", "/v1/messages?beta=true"]
    for _, headers in service.asked:
        assert headers["x-api-key"] == KEY
        assert said["environment"]["PROCTOR_BROKER_WORD"] not in json.dumps(headers)
        assert "cookie" not in headers


def test_a_service_that_cannot_be_reached_is_a_bad_gateway() -> None:
    done = brokered(ASK, ANTHROPIC_API_KEY=KEY, ANTHROPIC_BASE_URL="http://127.0.0.1:9")
    assert json.loads(done.stdout)["asked"] == [502, ""]


@pytest.mark.skipif(os.getuid() == 0, reason="root reads anything")
def test_nobody_of_the_same_user_reads_the_key_in_the_parent() -> None:
    script = "import os; open(f'/proc/{os.getppid()}/environ').read()"
    done = brokered(script, ANTHROPIC_API_KEY=KEY)
    assert "PermissionError" in done.stderr


def test_the_process_that_holds_the_key_is_not_dumpable() -> None:
    """By which its files in /proc are root's, and nobody of its user attaches to it."""
    code = (
        "import ctypes, os; from bot.agent.broker import run_without_key; libc = ctypes.CDLL(None)\n"
        "before = libc.prctl(3); run_without_key(['true'], os.environ); print(before, libc.prctl(3))"
    )
    known = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[2]), "ANTHROPIC_API_KEY": KEY}
    done = subprocess.run([sys.executable, "-c", code], env=known, capture_output=True, text=True, check=False)
    assert done.stdout == "1 0\n", done.stderr


def test_a_key_is_used_through_the_broker_alone() -> None:
    known = {"ANTHROPIC_API_KEY": KEY}
    assert needs_broker("anthropic:claude-opus-4-6", known)
    assert not needs_broker("anthropic:claude-opus-4-6", {})
    assert not needs_broker("replay", known)
    assert not needs_broker("anthropic:x", {**known, "PROCTOR_BROKER": "http://127.0.0.1:1"})
    with pytest.raises(UsageError, match="needs ANTHROPIC_API_KEY in the environment"):
        choose_model("anthropic:claude-opus-4-6", "rmsnorm", {})
    told = {"PROCTOR_BROKER": "http://127.0.0.1:1", "PROCTOR_BROKER_WORD": "w"}
    assert choose_model("anthropic:claude-opus-4-6", "rmsnorm", told).name == "claude-opus-4-6"
