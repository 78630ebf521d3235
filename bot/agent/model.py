"""What the loop and a model say to each other, whoever answers. Knows no model service and no tool.

A run's transcript is a list of messages: the first `Prompt`, then turn and results by turns.
"""

import json
from collections.abc import Sequence
from typing import Annotated, Literal, Protocol

from pydantic import Field, JsonValue, field_validator

from bot.contract.distribution import Frozen


class ToolSpec(Frozen):
    """A tool as the model sees it; `parameters` is the JSON schema of its arguments."""

    name: str
    description: str
    parameters: dict[str, JsonValue]


class ToolCall(Frozen):
    """A wish of the model, not yet looked at: the name may be unknown and the arguments may be nonsense."""

    id: str
    name: str
    arguments: dict[str, JsonValue]

    @field_validator("arguments")
    @classmethod
    def _can_be_written_down(cls, value: dict[str, JsonValue]) -> dict[str, JsonValue]:
        # Lone surrogates pass for text in Python, and cannot be stored in a journal or a file.
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        return value


class Turn(Frozen):
    """One answer of a model. `cut`: it hit the length limit, so its calls were dropped.

    `echo`: what the model's service wants to see again unchanged in the next request; opaque to everyone else.
    """

    kind: Literal["turn"] = "turn"
    text: str
    calls: list[ToolCall] = []
    input_tokens: Annotated[int, Field(ge=0)] = 0
    output_tokens: Annotated[int, Field(ge=0)] = 0
    cut: bool = False
    echo: list[dict[str, JsonValue]] = []


class ToolResult(Frozen):
    """What a tool answered to the call of that id."""

    call: str
    text: str
    is_error: bool = False


class Prompt(Frozen):
    """Text from the loop: the task, or that an answer was cut."""

    kind: Literal["prompt"] = "prompt"
    text: str


class Results(Frozen):
    """The answers to all calls of the turn before, in their order."""

    kind: Literal["results"] = "results"
    results: Annotated[list[ToolResult], Field(min_length=1)]


Message = Prompt | Turn | Results


class Model(Protocol):
    """Something that takes the next step of a run."""

    @property
    def name(self) -> str:
        """What reports call it."""
        ...

    def respond(self, system: str, transcript: Sequence[Message], tools: Sequence[ToolSpec]) -> Turn:
        """The next turn.

        Raises:
            ModelError: there is none; says whether asking again makes sense.
        """
        ...
