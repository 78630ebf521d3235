"""The Messages API of Anthropic behind the `Model` protocol. The only importer of anthropic; reads no environment.

Facts it rests on were tried against a local server: a stream that is cut off raises nothing and leaves a tool call with
empty arguments, so a missing stop reason is a failure; the client repeats 429 and 529 by itself, but not an error
inside a stream; without streaming it refuses a large `max_tokens`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from bot.agent.model import Message, Model, Prompt, Results, ToolCall, ToolSpec, Turn
from bot.errors import ModelError
from bot.sanitize import plain_line

if TYPE_CHECKING:
    from anthropic import Anthropic
    from anthropic.types import Message as Answer

API = "https://api.anthropic.com"
REQUEST_SECONDS = 600.0

_FINISHED = frozenset({"end_turn", "stop_sequence", "tool_use", "max_tokens"})
_ODD = (AssertionError, AttributeError, LookupError, TypeError, ValueError)
_RETRYABLE_STATUS = frozenset({408, 409, 429})


class ClaudeModel(Model):
    """Asks one model of the Messages API; stateless between turns."""

    def __init__(
        self, model: str, key: str, *, max_tokens: int = 16_000, base_url: str = API, retries: int = 2
    ) -> None:
        """Keep the settings; nothing is imported or sent before the first turn. `retries` are the client's own."""
        self._model = model
        self._key = key
        self._max_tokens = max_tokens
        self._base_url = base_url
        self._retries = retries
        self._client: Anthropic | None = None

    @property
    @override
    def name(self) -> str:
        return self._model

    @override
    def respond(self, system: str, transcript: Sequence[Message], tools: Sequence[ToolSpec]) -> Turn:
        # Importing anthropic costs 0.9 s, which only a run that uses it should pay.
        import anthropic  # noqa: PLC0415
        import httpx2  # noqa: PLC0415 - its errors escape the client once a stream has begun

        try:
            return parse_answer(self._ask(system, transcript, tools))
        except anthropic.APIStatusError as error:
            raise _refused(error.status_code, error.body, error.message) from None
        except (anthropic.APIConnectionError, httpx2.HTTPError) as error:
            raise ModelError(f"no connection to the model: {plain_line(repr(error))}", retryable=True) from None
        # The client does not validate what it reads, so an odd answer shows as any of these.
        except (anthropic.AnthropicError, *_ODD) as error:
            raise ModelError(f"unreadable answer of the model: {plain_line(repr(error))}", retryable=True) from None

    def _ask(self, system: str, transcript: Sequence[Message], tools: Sequence[ToolSpec]) -> "Answer":
        with self._connect().messages.stream(
            model=self._model,
            max_tokens=self._max_tokens,
            system=system,
            messages=[_message(message) for message in transcript],  # type: ignore[misc]
            tools=[
                {"name": t.name, "description": t.description, "input_schema": dict[str, object](t.parameters)}
                for t in tools
            ],
            # The whole prefix is sent again each turn; a cached one costs a tenth.
            cache_control={"type": "ephemeral"},
        ) as stream:
            return stream.get_final_message()

    def _connect(self) -> "Anthropic":
        from anthropic import Anthropic  # noqa: PLC0415

        if self._client is None:
            self._client = Anthropic(
                api_key=self._key, base_url=self._base_url, max_retries=self._retries, timeout=REQUEST_SECONDS
            )
        return self._client


def parse_answer(answer: "Answer") -> Turn:
    """An answer of the API as a turn.

    Raises:
        ModelError: it did not end in a way that can be acted on.
    """
    if answer.stop_reason is None:
        raise ModelError("the model's answer broke off", retryable=True)
    if answer.stop_reason not in _FINISHED:
        raise ModelError(f"the model ended its answer with {plain_line(answer.stop_reason)}")
    cut = answer.stop_reason == "max_tokens"
    blocks: list[dict[str, Any]] = [block.model_dump(exclude_none=True, warnings=False) for block in answer.content]
    usage = answer.usage
    cached = (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
    return Turn(
        text="".join(block["text"] for block in blocks if block["type"] == "text"),
        calls=[
            ToolCall(id=block["id"], name=block["name"], arguments=block["input"])
            for block in blocks
            # A call that was cut may hold half a kernel.
            if block["type"] == "tool_use" and not cut
        ],
        input_tokens=usage.input_tokens + cached,
        output_tokens=usage.output_tokens,
        cut=cut,
        echo=[] if cut else blocks,
    )


def _message(message: Message) -> dict[str, Any]:
    match message:
        case Prompt(text=text):
            return {"role": "user", "content": text}
        case Turn():
            return {"role": "assistant", "content": message.echo or _content(message)}
        case Results(results=results):
            return {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": r.call, "content": r.text, "is_error": r.is_error}
                    for r in results
                ],
            }


def _content(turn: Turn) -> list[dict[str, Any]]:
    calls = [{"type": "tool_use", "id": c.id, "name": c.name, "input": c.arguments} for c in turn.calls]
    # The API refuses a message without content and a text without characters.
    text = turn.text.strip() or ("" if calls else "(nothing)")
    return [*([{"type": "text", "text": text}] if text else []), *calls]


def _refused(status: int, body: object, message: str) -> ModelError:
    # An error event inside a stream comes with status 200, so its type decides.
    kind = body["error"].get("type") if isinstance(body, dict) and isinstance(body.get("error"), dict) else None
    passing = kind in {"overloaded_error", "rate_limit_error", "api_error", "timeout_error"}
    retryable = passing or status in _RETRYABLE_STATUS or status >= 500
    return ModelError(f"the model's service answered {status}: {plain_line(message)}", retryable=retryable)
