"""Holds the model's key so that nobody else does: this process keeps it, and runs the loop as a child without it.

The child is told an address on this machine and a word that is good for this run; what it sends there goes on to the
model's service with the key, and nothing else does. Tools, checks and candidates are the child's children. The process
is not dumpable, so that others of its user cannot read its environment or memory either (root can read anything).
"""

import ctypes
import http.client
import secrets
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from typing_extensions import override

from bot.errors import UsageError

KEY = "ANTHROPIC_API_KEY"
ADDRESS, WORD = "PROCTOR_BROKER", "PROCTOR_BROKER_WORD"
"""What the child is told instead."""
SERVICE = "https://api.anthropic.com"
BODY_LIMIT = 64 << 20
"""Bytes of a request: a whole conversation, sent again each turn."""
SECONDS = 660.0
"""Above what the client waits for an answer itself."""

_PATH = "/v1/messages"
_PASSED = ("content-type", "accept", "anthropic-version", "anthropic-beta", "user-agent")
_NOT_DUMPABLE = (4, 0)
"""prctl(PR_SET_DUMPABLE, 0): https://man7.org/linux/man-pages/man2/PR_SET_DUMPABLE.2const.html"""


@dataclass(frozen=True, slots=True)
class Secrets:
    """The key, and the word by which the child is known."""

    key: str
    word: str
    service: str


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, secret: Secrets) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.secret = secret

    @override
    def handle_error(self, request: object, client_address: object) -> None:
        """A child that hangs up is no news; a traceback could hold what it sent."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Pass one question on, and its answer back as it comes."""
        length = self.headers.get("Content-Length", "")
        given = (self.headers.get("X-Api-Key", ""), self.headers.get("Authorization", "").removeprefix("Bearer "))
        if not any(secrets.compare_digest(each.encode(), self.server.secret.word.encode()) for each in given):
            self._refuse(HTTPStatus.UNAUTHORIZED)
        elif self.path.partition("?")[0] != _PATH:
            self._refuse(HTTPStatus.NOT_FOUND)
        elif not length.isdecimal() or int(length) > BODY_LIMIT:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        else:
            self._pass(self.rfile.read(int(length)))

    def _pass(self, body: bytes) -> None:
        secret = self.server.secret
        service = urlsplit(secret.service)
        kind = http.client.HTTPSConnection if service.scheme == "https" else http.client.HTTPConnection
        connection = kind(service.netloc, timeout=SECONDS)
        headers = {name: self.headers[name] for name in _PASSED if name in self.headers}
        try:
            connection.request("POST", service.path + self.path, body, {**headers, "x-api-key": secret.key})
            answer = connection.getresponse()
        except OSError:
            connection.close()
            self._refuse(HTTPStatus.BAD_GATEWAY)
            return
        with answer:
            self.send_response(answer.status)
            for name in ("content-type", "retry-after", "x-should-retry", "request-id"):
                if answer.headers.get(name):
                    self.send_header(name, answer.headers[name])
            self.send_header("Connection", "close")
            self.end_headers()
            while part := answer.read1(1 << 16):
                self.wfile.write(part)
                self.wfile.flush()
        connection.close()
        self.close_connection = True

    def _refuse(self, status: HTTPStatus) -> None:
        self.close_connection = True
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.end_headers()

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the job's log is read by others."""


def needs_broker(model: str, environment: Mapping[str, str]) -> bool:
    """Whether a model is asked with a key that this process has."""
    return model.startswith("anthropic:") and ADDRESS not in environment and bool(environment.get(KEY))


def run_without_key(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command without the key, answer it as the model's service, and return its exit code.

    Raises:
        UsageError: there is no key.
    """
    key = environment.get(KEY, "")
    if not key:
        raise UsageError(f"{KEY} is not set")
    ctypes.CDLL(None).prctl(*_NOT_DUMPABLE)
    secret = Secrets(key, secrets.token_urlsafe(32), environment.get("ANTHROPIC_BASE_URL", SERVICE).rstrip("/"))
    kept = {name: value for name, value in environment.items() if name not in (KEY, "ANTHROPIC_BASE_URL")}
    with _Server(secret) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
        told = {ADDRESS: f"http://127.0.0.1:{server.server_port}", WORD: secret.word}
        try:
            return subprocess.run(list(command), env={**kept, **told}, check=False).returncode
        finally:
            server.shutdown()
