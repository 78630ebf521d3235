"""The wire between the verifier and the sandboxed programs that look at a candidate outside an exam: builder.py
compiles it (foreign code runs there), reader.py takes the binaries apart (only ours does), watcher.py has
compute-sanitizer watch it (foreign code again). Parsed as protocol.py says.

Binaries and source travel in lent memory beside the messages. What the builder says of a binary is a claim; what the
reader says is true of the bytes that came out of the builder, whatever those are.
"""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from bot.verify.protocol import MODULES, TEXT_LIMIT, Packet, Raised, Ready

COMMON = ("bot/__init__.py", "bot/verify/__init__.py", "bot/verify/protocol.py", "bot/verify/artefacts.py")
BUILDER = (*COMMON, "bot/verify/disguise.py", "bot/verify/builder.py")
READER = (*COMMON, "bot/verify/reader.py")
WATCHER = (*COMMON, "bot/verify/watcher.py")
"""All files of ours that each of them sees, the program last."""
assert set(COMMON[:3]) < set(MODULES)  # noqa: S101 - the packages and the wire, as for a worker

BINARIES = 48
"""Binaries of one build at most: an autotuner's configurations are a dozen or two."""
KERNELS = 64
ROOM = 32 << 20
"""Bytes for all binaries of one build."""
NAME = 200
NUMBERS = 4096
"""Elements of an integer input whose values are handed over."""
DECLARED = 16 * 1024
REPORT = 24 * 1024
"""Characters of a sanitizer's report; with escapes they fit in a packet."""
CASES = 16
RAISED = 67
"""What the process that a sanitizer watches ends with when the candidate raised an exception."""

Text = Annotated[str, Field(max_length=TEXT_LIMIT)]
Size = Annotated[int, Field(ge=0, le=ROOM)]
Count = Annotated[int, Field(ge=0, le=2**40)]


class Argument(Packet):
    """A tensor that `run` is called with; `numbers`: its values, of small integer inputs alone."""

    shape: list[int]
    dtype: str
    numbers: list[int] | None = None


class Compile(Packet):
    """Compile the candidate, `size` bytes in the first descriptor, for `architecture`, and leave the binaries one after
    the other in the second, which holds `room` bytes."""

    op: Literal["compile"] = "compile"
    architecture: str
    size: int
    room: int
    arguments: list[Argument | float | int | None]


class Binary(Packet):
    """One cubin: its bytes, and by kernel the shared memory that its launch adds."""

    size: Size
    dynamic_shared: Annotated[dict[Annotated[str, Field(max_length=NAME)], Count], Field(max_length=KERNELS)]


class Compiled(Packet):
    """What was launched. `stopped`: why `run` did not come to its end, `broken` when it would not compile."""

    op: Literal["compiled"] = "compiled"
    binaries: Annotated[list[Binary], Field(max_length=BINARIES)]
    stopped: Text = ""
    broken: bool = False
    left_out: Count = 0


class Read(Packet):
    """Take apart the cubin in the first descriptor, `size` bytes, with the programs in `tools`."""

    op: Literal["read"] = "read"
    size: int
    tools: str


class Kernel(Packet):
    """One kernel of a cubin; `shared_bytes` is what the binary itself asks for."""

    name: Annotated[str, Field(max_length=NAME)]
    registers: Count
    stack_bytes: Count
    shared_bytes: Count
    spill_bytes: Count
    instructions: Annotated[dict[Annotated[str, Field(max_length=20)], Count], Field(max_length=40)]


class Kernels(Packet):
    """All kernels of one cubin."""

    op: Literal["kernels"] = "kernels"
    kernels: Annotated[list[Kernel], Field(max_length=KERNELS)]


class Declarations(Packet):
    """Find what the source in the first descriptor, `size` bytes, declares as RESOURCES. Nothing of it runs."""

    op: Literal["declarations"] = "declarations"
    size: int


class Declared(Packet):
    """The literal as JSON; empty: there is none. `wrong`: why it is no literal."""

    op: Literal["declared"] = "declared"
    document: Annotated[str, Field(max_length=DECLARED)] = ""
    wrong: Text = ""


class Place(Packet):
    """A tensor that `run` is called with; `offset`: where its bytes are among the inputs', None for an output."""

    shape: list[int]
    dtype: str
    offset: int | None


class Asked(Packet):
    """One call."""

    name: str
    arguments: list[Place | float | int | None]


class Watch(Packet):
    """Have `tool` of compute-sanitizer, in the folder `sanitizer`, watch a process that imports the candidate, `size`
    bytes in the first descriptor, and calls it once for each case on `device`; the inputs' bytes are in the second, of
    `room` bytes. It is ended after `seconds`."""

    op: Literal["watch"] = "watch"
    tool: str
    sanitizer: str
    device: str
    seconds: int
    size: int
    room: int
    cases: Annotated[list[Asked], Field(max_length=CASES)]


class Watched(Packet):
    """The tool's report, without its middle where it is long, and the end of what was printed; `status`: the tool's
    exit status, None where it was ended."""

    op: Literal["watched"] = "watched"
    report: Annotated[str, Field(max_length=REPORT)]
    printed: Text
    status: int | None


Task = Annotated[Compile | Read | Declarations | Watch, Field(discriminator="op")]
TASKS: TypeAdapter[Task] = TypeAdapter(Task)
Claim = Annotated[Ready | Raised | Compiled | Kernels | Declared | Watched, Field(discriminator="op")]
CLAIMS: TypeAdapter[Claim] = TypeAdapter(Claim)
