"""The tools as the model may call them: names, arguments, descriptions, and how a call is read. Has no effects.

A tool's docstring is its description for the model; its fields make the JSON schema.
"""

from typing import Annotated

from pydantic import Field

from bot.agent.model import ToolCall, ToolSpec
from bot.contract.distribution import Frozen
from bot.contract.load import validate
from bot.errors import UsageError

KernelPath = Annotated[str, Field(max_length=200, description="kernels/<contract>/<backend>_<name>.py")]


class Read(Frozen):
    """Read a file of the workspace, or list a folder ("." lists everything). Long files come in pages."""

    path: Annotated[str, Field(max_length=200)]
    start: Annotated[int, Field(ge=0, description="first character to show")] = 0


class Write(Frozen):
    """Create or replace a kernel file: a whole Python file with one public function `run`."""

    path: KernelPath
    source: str


class Check(Frozen):
    """Have a kernel examined for correctness, without timing. Each new source becomes an attempt of this run."""

    path: KernelPath


class Time(Frozen):
    """Examine and time a kernel that its check accepted, interleaved with the baselines."""

    path: KernelPath


class Note(Frozen):
    """Write down a lesson for later runs: what was tried, what was measured, what follows."""

    note: Annotated[str, Field(min_length=1, max_length=2000)]


class Submit(Frozen):
    """Hand in a kernel that its check accepted. This ends the run; the full exam follows."""

    path: KernelPath


Tool = Read | Write | Check | Time | Note | Submit

_TOOLS: dict[str, type[Tool]] = {
    "read": Read,
    "write": Write,
    "check": Check,
    "time": Time,
    "journal": Note,
    "submit": Submit,
}


def specs() -> list[ToolSpec]:
    """All tools, for the model."""
    return [
        ToolSpec(name=name, description=tool.__doc__ or name, parameters=tool.model_json_schema())
        for name, tool in _TOOLS.items()
    ]


def parse_call(call: ToolCall) -> Tool:
    """A model's wish as a tool with arguments.

    Raises:
        UsageError: there is no such tool.
        DataError: the arguments do not fit; every problem of theirs.
    """
    if call.name not in _TOOLS:
        raise UsageError(f"no tool {call.name[:40]!r}; there are {', '.join(_TOOLS)}")
    return validate(_TOOLS[call.name], call.arguments, f"arguments of {call.name}")
