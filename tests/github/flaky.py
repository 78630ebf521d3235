"""A line between bot and forge that fails in chosen ways, and counts."""

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from typing_extensions import override

Fault = Literal[
    "502 after",
    "502 instead",
    "drop after",
    "drop instead",
    "403 limit",
    "403 secondary",
    "403 wait",
    "429",
    "429 wait",
    "403 plain",
    "nonsense",
    "stale",
]
"""`after`: the request took effect. `limit`: the hourly limit; `secondary`: GitHub's word for too many at once; `wait`:
with a `Retry-After`. `stale`: a list without what is newer than the line.
https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api"""

_ANSWERS: dict[str, tuple[int, dict[str, str], bytes]] = {
    "502 after": (502, {}, b'{"message": "Server Error"}'),
    "502 instead": (502, {}, b'{"message": "Server Error"}'),
    "403 limit": (
        403,
        {"X-RateLimit-Reset": "9999999999", "X-RateLimit-Remaining": "0"},
        b'{"message": "API rate limit exceeded for installation."}',
    ),
    "403 secondary": (403, {}, b'{"message": "You have exceeded a secondary rate limit."}'),
    "403 wait": (403, {"Retry-After": "1"}, b'{"message": "You have exceeded a secondary rate limit."}'),
    "429": (429, {}, b'{"message": "Too many requests"}'),
    "429 wait": (429, {"Retry-After": "1"}, b'{"message": "Too many requests"}'),
    "403 plain": (403, {}, b'{"message": "Resource not accessible by integration"}'),
    "nonsense": (200, {}, b'{"permission": '),
}


class Request(NamedTuple):
    """What came in."""

    method: str
    path: str


class Line(ThreadingHTTPServer):
    """Passes requests on to `target`. The next requests of a method, or that begin so (`POST /…`), meet its `faults`,
    in order.
    """

    daemon_threads = True

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = urlsplit(target)
        self.faults: dict[str, list[Fault]] = {}
        self.requests: list[Request] = []
        self.newest = 0
        """Ids above this one are left out of a stale list."""
        self.turn: Callable[[Request], Fault | None] | None = None
        """Asked before a request goes on; it may keep it waiting, and says which fault it meets."""
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
        fault = self._fault()
        if fault in (None, "502 after", "drop after", "stale"):
            status, headers, answer = self._forward(body)
        else:
            status, headers, answer = 0, {}, b""
        if fault in ("drop after", "drop instead"):
            self.close_connection = True
            return
        if fault == "stale":
            answer = _without_newest(answer, self.server.newest)
        elif fault is not None:
            status, headers, answer = _ANSWERS[fault]
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _fault(self) -> Fault | None:
        if self.server.turn is not None:
            return self.server.turn(Request(self.command, self.path))
        keys = (key for key, faults in self.server.faults.items() if faults)
        key = next((k for k in keys if f"{self.command} {self.path}".startswith(k)), None)
        return self.server.faults[key].pop(0) if key else None

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


def _without_newest(answer: bytes, newest: int) -> bytes:
    """A list as it was before anything with a higher id was there; anything else as it is."""
    try:
        document = json.loads(answer)
    except ValueError:
        return answer
    if isinstance(document, list):
        kept = [each for each in document if not (isinstance(each, dict) and each.get("id", 0) > newest)]
        return json.dumps(kept).encode()
    return answer


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
