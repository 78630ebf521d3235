"""The wire between verifier and worker: the only definition of its messages, known to both sides.

Calls begin and end by doorbell.py; everything else is a message, a single JSON object in a packet of a SOCK_SEQPACKET
socket; buffers travel beside them as descriptors. The worker learns names, shapes, dtypes and offsets; never the salt,
the oracle, a limit, the baseline or the verdict. What it sends is a claim: parsed strictly, bounded, without duplicate
keys.
"""

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

MAX_PACKET = 64 * 1024
TEXT_LIMIT = 2000
MODULES = (
    "bot/__init__.py",
    "bot/verify/__init__.py",
    "bot/verify/protocol.py",
    "bot/verify/doorbell.py",
    "bot/verify/warm.py",
    "bot/verify/worker.py",
)
"""All files of ours that a worker can see."""


class Packet(BaseModel):
    """Immutable, strict, nothing unknown."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


class Tensor(Packet):
    """A lent tensor: `offset` bytes into its own descriptor, which holds `size` bytes. `lasting`: it keeps its
    value while it is there, and its address serves no other tensor afterwards."""

    name: str
    shape: list[int]
    dtype: str
    offset: int
    size: int
    lasting: bool = False


class Load(Packet):
    """Import the candidate: `size` bytes of source in the first descriptor that comes along; the second is the page
    by which its calls begin and end (doorbell.py)."""

    op: Literal["load"] = "load"
    size: int
    threads: int


class Bind(Packet):
    """Map these tensors as slot `slot`; one descriptor each, in this order, inputs then outputs.

    `arguments` of every call on it, by position: the name of a tensor, the place of a number in the doorbell, or None.
    """

    op: Literal["bind"] = "bind"
    slot: int
    tensors: list[Tensor]
    arguments: list[str | int | None]


class Release(Packet):
    """Unmap a slot; it is not used again."""

    op: Literal["release"] = "release"
    slot: int


class Replay(Packet):
    """Capture one call on a slot as a graph, with the numbers that the doorbell holds, and replay it `times` times."""

    op: Literal["replay"] = "replay"
    slot: int
    times: int


class Bye(Packet):
    """Leave; a worker that forks a child per candidate goes on to its next one."""

    op: Literal["bye"] = "bye"


Task = Annotated[Load | Bind | Release | Replay | Bye, Field(discriminator="op")]
TASKS: TypeAdapter[Task] = TypeAdapter(Task)


class Ready(Packet):
    """Torch is imported, limits are set, nothing of the candidate's has run."""

    op: Literal["ready"] = "ready"
    torch: Annotated[str, Field(max_length=100)]


class Done(Packet):
    """The task is done."""

    op: Literal["done"] = "done"


class Raised(Packet):
    """The candidate raised an exception."""

    op: Literal["raised"] = "raised"
    text: Annotated[str, Field(max_length=TEXT_LIMIT)]


class Replayed(Packet):
    """Nanoseconds of one replay, by the device's events."""

    op: Literal["replayed"] = "replayed"
    ns: Annotated[int, Field(ge=0, le=2**53)]


Claim = Annotated[Ready | Done | Replayed | Raised, Field(discriminator="op")]
CLAIMS: TypeAdapter[Claim] = TypeAdapter(Claim)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate key")
    return found


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def parse(data: bytes) -> Any:
    """Plain data of one packet.

    Raises:
        ValueError: not UTF-8 JSON, a duplicate key, or NaN or infinity (RecursionError is one for deep nesting).
    """
    try:
        return json.loads(data.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def pack(packet: Packet) -> bytes:
    """One packet as bytes."""
    return packet.model_dump_json().encode()
