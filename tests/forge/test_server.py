import json
import socket
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from typing_extensions import override

from bot.forge.server import Forge
from bot.forge.webhooks import posting_to, signature


def test_forge_ends_with_its_block_and_frees_its_port(state):
    with Forge.serving(state) as forge:
        with urllib.request.urlopen(forge.api_url + "/repos/acme/kernels", timeout=5) as answer:  # noqa: S310
            assert json.load(answer)["clone_url"] == forge.clone_url
        port = int(forge.url.rsplit(":", 1)[1])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=1)


def test_webhook_is_posted_with_its_signature_and_not_for_the_actions_bot(state):
    received: list[tuple[dict[str, str], bytes]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append(({name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(204)
            self.end_headers()

        @override
        def log_message(self, *arguments: object) -> None:
            """Stay quiet."""

    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        state.watch(posting_to(f"http://127.0.0.1:{server.server_port}/hook", "secret"))
        number = state.open_issue("alice", "Faster", "").number
        state.comment("github-actions[bot]", number, "report")
        server.shutdown()
        thread.join()
    [(headers, body)] = received
    assert headers["x-github-event"] == "issues"
    assert headers["x-github-delivery"] == state.events[0].delivery
    assert headers["x-hub-signature-256"] == signature("secret", body)
    assert json.loads(body) == state.events[0].payload


def test_signature_is_the_one_github_documents():
    # https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries#testing-the-webhook-payload-validation
    assert signature("It's a Secret to Everybody", b"Hello, World!") == (
        "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    )


def test_receiver_that_is_not_there_does_not_undo_what_was_done(state, caplog):
    state.watch(posting_to("http://127.0.0.1:1/hook", "secret"))
    state.open_issue("alice", "Faster", "")
    assert state.issue(1).title == "Faster"
    assert "webhook issues" in caplog.text
