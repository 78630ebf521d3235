"""The Messages API over real HTTP: a local server speaks it, the real client listens."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from typing_extensions import override

from bot.agent.claude import ClaudeModel
from bot.agent.model import Message, Prompt, Results, ToolCall, ToolResult, Turn
from bot.agent.tools import specs
from bot.errors import ModelError

USAGE = {"input_tokens": 11, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 5, "output_tokens": 1}
KEY = "sk-ant-test-key-that-must-not-leak"


def events(*blocks: dict[str, Any], stop: str | None = "tool_use") -> list[dict[str, Any]]:
    """A whole answer as the server sends it; text and arguments come as one delta each."""
    message: dict[str, Any] = {"id": "m1", "type": "message", "role": "assistant", "model": "m", "content": []}
    said: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None, "usage": USAGE}}
    ]
    empty: dict[str, Any]
    for index, block in enumerate(blocks):
        if block["type"] == "text":
            empty = {"type": "text", "text": ""}
            delta = {"type": "text_delta", "text": block["text"]}
        elif block["type"] == "thinking":
            empty = {"type": "thinking", "thinking": "", "signature": block["signature"]}
            delta = {"type": "thinking_delta", "thinking": block["thinking"]}
        else:
            empty = {"type": "tool_use", "id": block["id"], "name": block["name"], "input": {}}
            delta = {"type": "input_json_delta", "partial_json": block["json"]}
        said.append({"type": "content_block_start", "index": index, "content_block": empty})
        said.append({"type": "content_block_delta", "index": index, "delta": delta})
        said.append({"type": "content_block_stop", "index": index})
    said.append(
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop, "stop_sequence": None},
            "usage": {"output_tokens": 42},
        }
    )
    return [*said, {"type": "message_stop"}]


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def use(arguments: str, call: str = "t1", name: str = "read") -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": name, "json": arguments}


@dataclass
class Service:
    """What to answer, in order, and what was asked. A status alone is an error answer; events are a stream."""

    answers: list[int | list[dict[str, Any]] | bytes] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    def model(self, retries: int = 0) -> ClaudeModel:
        return ClaudeModel("some-model", KEY, max_tokens=64_000, base_url=self.url, retries=retries)

    def ask(self, *transcript: Message, retries: int = 0) -> Turn:
        return self.model(retries).respond("be good", transcript or [Prompt(text="go")], specs())


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            service.requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            answer = service.answers.pop(0)
            if isinstance(answer, int):
                kind = "overloaded_error" if answer == 529 else "some_error"
                body = json.dumps({"type": "error", "error": {"type": kind, "message": f"no: {KEY}"}}).encode()
                self.send_response(answer)
                self.send_header("retry-after-ms", "1")
                self.send_header("Content-Type", "application/json")
            else:
                body = answer if isinstance(answer, bytes) else stream(answer)
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
            # A body shorter than announced is a connection that breaks off.
            broken = isinstance(answer, bytes)
            self.send_header("Content-Length", str(len(body) + 100 * broken))
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = True

        @override
        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    service.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield service
    server.shutdown()
    thread.join()
    server.server_close()


def stream(said: list[dict[str, Any]]) -> bytes:
    return "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in said).encode()


def test_an_answer_becomes_a_turn_with_its_calls_and_all_tokens(service: Service) -> None:
    service.answers = [events(text("let me see"), use('{"path": "."}'), use('{"path": "a"}', call="t2"))]
    turn = service.ask()
    assert turn.text == "let me see"
    assert turn.calls == [
        ToolCall(id="t1", name="read", arguments={"path": "."}),
        ToolCall(id="t2", name="read", arguments={"path": "a"}),
    ]
    assert (turn.input_tokens, turn.output_tokens, turn.cut) == (116, 42, False)


def test_the_request_carries_rules_tools_and_the_transcript(service: Service) -> None:
    service.answers = [events(text("ok"), stop="end_turn")]
    call = ToolCall(id="t1", name="read", arguments={"path": "."})
    answer = ToolResult(call="t1", text="files", is_error=False)
    service.ask(
        Prompt(text="go"), Turn(text="", calls=[call]), Results(results=[answer]), Turn(text=" "), Prompt(text="on")
    )
    request = service.requests[0]
    assert (request["model"], request["max_tokens"], request["system"]) == ("some-model", 64_000, "be good")
    assert [tool["name"] for tool in request["tools"]] == ["read", "write", "check", "time", "journal", "submit"]
    assert request["messages"] == [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "."}}]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "files", "is_error": False}],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "(nothing)"}]},
        {"role": "user", "content": "on"},
    ]


def test_reasoning_blocks_go_back_unchanged(service: Service) -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "sig"}
    service.answers = [events(thought, text("so"), use("{}")), events(text("ok"), stop="end_turn")]
    turn = service.ask()
    service.ask(Prompt(text="go"), turn, Results(results=[ToolResult(call="t1", text="x")]))
    sent = service.requests[1]["messages"][1]["content"]
    assert sent == [
        thought,
        {"type": "text", "text": "so"},
        {"type": "tool_use", "id": "t1", "name": "read", "input": {}},
    ]


def test_a_call_that_hit_the_length_limit_is_never_run(service: Service) -> None:
    service.answers = [
        events(text("writing"), use('{"path": "k", "source": "half a ker', name="write"), stop="max_tokens")
    ]
    turn = service.ask()
    assert turn.cut
    assert turn.calls == []


@pytest.mark.parametrize("status", [429, 500, 529])
def test_a_busy_service_may_be_asked_again(service: Service, status: int) -> None:
    service.answers = [status]
    with pytest.raises(ModelError, match=str(status)) as caught:
        service.ask()
    assert caught.value.retryable
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413])
def test_a_refused_request_is_not_repeated(service: Service, status: int) -> None:
    service.answers = [status, events(text("ok"))]
    with pytest.raises(ModelError, match=str(status)) as caught:
        service.ask(retries=2)
    assert not caught.value.retryable
    assert len(service.requests) == 1


def test_the_client_itself_repeats_a_busy_answer(service: Service) -> None:
    service.answers = [529, 429, events(text("at last"), stop="end_turn")]
    assert service.ask(retries=2).text == "at last"
    assert len(service.requests) == 3


def test_a_stream_that_stops_early_is_a_failure_and_runs_no_call(service: Service) -> None:
    service.answers = [events(text("I will"), use('{"path": "x"}'))[:-3]]
    with pytest.raises(ModelError, match="broke off") as caught:
        service.ask()
    assert caught.value.retryable


def test_a_connection_that_breaks_inside_a_stream_is_a_failure(service: Service) -> None:
    service.answers = [stream(events(text("I will"), use('{"path": "x"}'))[:-3])]
    with pytest.raises(ModelError, match="no connection") as caught:
        service.ask()
    assert caught.value.retryable


@pytest.mark.parametrize(("kind", "retryable"), [("overloaded_error", True), ("invalid_request_error", False)])
def test_an_error_inside_a_stream_is_read_by_its_type(service: Service, kind: str, *, retryable: bool) -> None:
    error = {"type": "error", "error": {"type": kind, "message": "so it is"}}
    service.answers = [[*events(text("I"))[:2], error]]
    with pytest.raises(ModelError, match="so it is") as caught:
        service.ask()
    assert caught.value.retryable is retryable


@pytest.mark.parametrize("stop", ["refusal", "pause_turn", "something_new"])
def test_an_answer_that_did_not_finish_is_not_acted_on(service: Service, stop: str) -> None:
    service.answers = [events(text("no"), use("{}"), stop=stop)]
    with pytest.raises(ModelError, match=stop) as caught:
        service.ask()
    assert not caught.value.retryable


@pytest.mark.parametrize(
    "said",
    [
        [],
        [{"type": "something_else"}],
        [{"type": "message_start", "message": {"id": "m"}}, *events(text("x"))[1:]],
        events(use('{"path": NaN}')),
        events(use('{"path": "\\ud800"}')),
        events(use('["not", "an", "object"]')),
        events(use("{nonsense")),
    ],
    ids=["empty", "unknown events", "no usage", "NaN", "surrogate", "a list for arguments", "broken JSON"],
)
def test_an_odd_answer_is_a_failure_worth_another_try(service: Service, said: list[dict[str, Any]]) -> None:
    service.answers = [said]
    with pytest.raises(ModelError) as caught:
        service.ask()
    assert caught.value.retryable


def test_the_client_is_imported_by_the_first_turn_only() -> None:
    program = "import sys, bot.agent.claude as c; c.ClaudeModel('m', 'k'); sys.exit('anthropic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_no_service_at_all_is_a_failure_worth_another_try() -> None:
    model = ClaudeModel("m", KEY, base_url="http://127.0.0.1:9", retries=0)
    with pytest.raises(ModelError, match="no connection") as caught:
        model.respond("", [Prompt(text="go")], [])
    assert caught.value.retryable
