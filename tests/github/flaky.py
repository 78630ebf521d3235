"""A line between bot and forge that fails in chosen ways, and counts."""

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from typing_extensions import override

Fault = Literal["502 after", "502 instead", "drop after", "drop instead", "403 limit", "403 plain", "nonsense"]


class Request(NamedTuple):
    """What came in."""

    method: str
    path: str


class Line(ThreadingHTTPServer):
    """Passes requests on to `target`. The next requests of a method meet its `faults`, in order."""

    daemon_threads = True

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = urlsplit(target)
        self.faults: dict[str, list[Fault]] = {}
        self.requests: list[Request] = []
        self.overtake: tuple[str, Callable[[], object]] | None = None
        """Somebody who is faster: called once, when the next request that begins so (`POST /…`) is on its way."""

    @property
    def api_url(self) -> str:
        """What the bot is given as GITHUB_API_URL."""
        return f"http://127.0.0.1:{self.server_port}{self.target.path}"

    @override
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is part of the play."""

    def sent(self, method: str) -> int:
        """How many requests of this method came in."""
        return sum(request.method == method for request in self.requests)


class _Handler(BaseHTTPRequestHandler):
    server: Line
    protocol_version = "HTTP/1.1"
    # One packet an answer: two small ones wait 40 ms for each other's acknowledgement.
    wbufsize = -1
    disable_nagle_algorithm = True

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests.append(Request(self.command, self.path))
        overtake = self.server.overtake
        if overtake is not None and f"{self.command} {self.path}".startswith(overtake[0]):
            self.server.overtake = None
            overtake[1]()
        waiting = self.server.faults.get(self.command, [])
        fault = waiting.pop(0) if waiting else None
        if fault in (None, "502 after", "drop after"):
            status, headers, answer = self._forward(body)
        else:
            status, headers, answer = 0, {}, b""
        match fault:
            case "drop after" | "drop instead":
                self.close_connection = True
                return
            case "502 after" | "502 instead":
                status, headers, answer = 502, {}, b'{"message": "Server Error"}'
            case "403 limit":
                status, headers, answer = 403, {}, b'{"message": "API rate limit exceeded for installation."}'
                headers = {"X-RateLimit-Reset": "9999999999"}
            case "403 plain":
                status, headers, answer = 403, {}, b'{"message": "Resource not accessible by integration"}'
            case "nonsense":
                status, headers, answer = 200, {}, b'{"permission": '
            case None:
                pass
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _pass  # noqa: N815 - the base class looks for these names

    def _forward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        target = self.server.target
        connection = http.client.HTTPConnection(target.hostname or "", target.port)
        try:
            headers = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "accept-encoding")}
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            kept = {k: v for k, v in answer.getheaders() if k in ("Content-Type", "Link")}
            return answer.status, kept, answer.read()
        finally:
            connection.close()

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Tests read `requests` instead."""


@contextmanager
def line_to(target: str) -> Iterator[Line]:
    """A line to an API root, open while the block runs."""
    line = Line(target)
    thread = threading.Thread(target=line.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield line
    finally:
        line.shutdown()
        thread.join()
        line.server_close()
