"""Runs the forge: one threaded HTTP server for REST, git and pages, in a thread of its own."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from typing_extensions import override
from werkzeug.serving import WSGIRequestHandler, make_server

from bot.forge.app import API, bare_app
from bot.forge.git_http import git
from bot.forge.pages import pages
from bot.forge.rest import rest
from bot.forge.state import ForgeState

_log = logging.getLogger(__name__)


class _Handler(WSGIRequestHandler):
    """Logs requests for who wants them, instead of printing them."""

    @override
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        _log.debug("%s %s", code, self.requestline)


@dataclass(frozen=True, slots=True)
class Forge:
    """A forge being served. `url` is GITHUB_SERVER_URL, `api_url` is GITHUB_API_URL."""

    state: ForgeState
    url: str

    @property
    def api_url(self) -> str:
        """Root of the REST interface."""
        return self.url + API

    @property
    def clone_url(self) -> str:
        """The git remote."""
        return f"{self.state.site.repo_url}.git"

    @classmethod
    @contextmanager
    def serving(cls, state: ForgeState, host: str = "127.0.0.1", port: int = 0) -> Iterator["Forge"]:
        """Serve `state` while the block runs; port 0 takes a free one."""
        app = bare_app(state)
        for face in (rest, git, pages):
            app.register_blueprint(face)
        server = make_server(host, port, app, threaded=True, request_handler=_Handler)
        url = f"http://{host}:{server.server_port}"
        state.site = replace(state.site, url=url)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="forge")
        thread.start()
        try:
            yield cls(state, url)
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
