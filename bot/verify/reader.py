"""The sandboxed program that takes a candidate's binaries apart with cuobjdump and nvdisasm, and finds what its source
declares. Only code of ours and NVIDIA's runs in it, on bytes that somebody may have made to break them.
"""

import ast
import json
import mmap
import os
import re
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

from bot.verify.artefacts import DECLARED, NAME, TASKS, Declarations, Declared, Kernel, Kernels, Read
from bot.verify.protocol import MAX_PACKET, TEXT_LIMIT, Raised, Ready, pack, parse

_BINARY = "/tmp/kernel.cubin"  # noqa: S108 - a tmpfs of this sandbox alone
_TOOL_SECONDS = 60
_USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+)")
_CODE = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)")
_RESERVED = 1024
"""Bytes of a block's shared memory that the system keeps from sm_90 on, where a kernel uses any; cuobjdump counts them,
and the most that a launch may ask for does not."""
_MATRIX = (
    ("wgmma", re.compile(r"[HIQBD]GMMA")),
    ("tcgen05", re.compile(r"UTC\w*MMA")),
    ("mma", re.compile(r"[HIQBDO]MMA")),
    ("tma", re.compile(r"UTMA(LDG|STG|REDG)|UBLKCP")),
)
"""Mnemonics of SASS, by what PTX calls them: wgmma and tcgen05.mma of one format each, mma.sync, bulk copies."""
_MEMORY = re.compile(r"(LDG|STG|LDL|STL|LDGSTS)\b")


def main() -> None:
    """Arguments: the socket's descriptor first."""
    wire = socket.socket(fileno=int(sys.argv[1]))
    wire.send(pack(Ready(torch="")))
    while True:
        data, fds, _, _ = socket.recv_fds(wire, MAX_PACKET, 1)
        if not data:
            return
        task = TASKS.validate_python(parse(data))
        with mmap.mmap(fds[0], task.size, prot=mmap.PROT_READ) as file:
            held = file[:]
        os.close(fds[0])
        wire.send(pack(_answer(task, held)))


def _answer(task: object, held: bytes) -> Kernels | Declared | Raised:
    match task:
        case Declarations():
            return declared(held.decode("utf-8", "replace"))
        case Read(tools=tools):
            try:
                return Kernels(kernels=list(_kernels(held, tools)))
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                return Raised(text=f"the binary cannot be read: {error}"[:TEXT_LIMIT])
        case _:
            return Raised(text="unknown task")


def _kernels(binary: bytes, tools: str) -> Iterator[Kernel]:
    with open(_BINARY, "wb") as file:  # noqa: PTH123 - starts without pathlib
        file.write(binary)
    counts = dict(instructions(_run(f"{tools}/nvdisasm", "-c", _BINARY)))
    for name, registers, stack, shared in usage(_run(f"{tools}/cuobjdump", "--dump-resource-usage", _BINARY)):
        found = counts.get(name, Counter[str]())
        spilled = sum(int(kind[4:]) // 8 * count for kind, count in found.items() if kind.startswith("stl."))
        yield Kernel(
            name=name[:NAME],
            registers=registers,
            stack_bytes=stack,
            shared_bytes=max(shared - _RESERVED, 0),
            spill_bytes=spilled,
            instructions=dict(sorted(found.items())),
        )


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, timeout=_TOOL_SECONDS, check=True, env={})
    return done.stdout.decode("utf-8", "replace")


def usage(told: str) -> Iterator[tuple[str, int, int, int]]:
    """Name, registers, stack and static shared memory of each kernel, from what cuobjdump says."""
    name = ""
    for line in told.splitlines():
        if (function := re.match(r"\s*Function (\S+):", line)) is not None:
            name = function[1]
        elif (numbers := _USAGE.search(line)) is not None and name:
            yield name, *(int(number) for number in numbers.groups())  # type: ignore[misc]


def instructions(listing: str) -> Iterator[tuple[str, Counter[str]]]:
    """How many instructions of each kind a kernel has, from nvdisasm's listing."""
    name, counts = "", Counter[str]()
    for line in listing.splitlines():
        if (section := re.match(r"\s*\.section\s+\.text\.(\S+?),", line)) is not None:
            if name:
                yield name, counts
            name, counts = section[1], Counter()
        elif (code := _CODE.search(line)) is not None:
            kind = kind_of(code[1])
            if kind:
                counts[kind] += 1
    if name:
        yield name, counts


def kind_of(mnemonic: str) -> str:
    """What an instruction is counted as; empty for most. Bits of an access are its largest number, 32 without one."""
    head, *modifiers = mnemonic.split(".")
    for kind, pattern in _MATRIX:
        if pattern.fullmatch(head):
            return kind
    if _MEMORY.fullmatch(head) is None:
        return ""
    widths = [int(number[1]) for word in modifiers if (number := re.fullmatch(r"[US]?(8|16|64|128|256)", word))]
    return f"{head.lower()}.{max(widths, default=32)}"


def declared(source: str) -> Declared:
    """What the module assigns to RESOURCES, without running any of it."""
    try:
        tree = ast.parse(source)
        values = [value for node in tree.body for value in _assigned(node)]
        if not values:
            return Declared()
        if len(values) > 1:
            return Declared(wrong=f"is assigned {len(values)} times, the last in line {values[-1].lineno}")
        document = json.dumps(ast.literal_eval(values[0]), allow_nan=False)
    except SyntaxError as error:
        return Declared(wrong=f"cannot be found: {error.msg} (line {error.lineno})"[:TEXT_LIMIT])
    except (ValueError, TypeError, RecursionError, MemoryError):
        return Declared(wrong="must be written out, of dictionaries, lists, strings and numbers alone")
    if len(document) > DECLARED:
        return Declared(wrong="is far too long")
    return Declared(document=document)


def _assigned(node: ast.stmt) -> Iterator[ast.expr]:
    match node:
        case ast.Assign(targets=targets, value=value):
            if any(isinstance(target, ast.Name) and target.id == "RESOURCES" for target in targets):
                yield value
        case ast.AnnAssign(target=ast.Name(id="RESOURCES"), value=ast.expr() as value):
            yield value
