"""What attacks on the sandbox share: a worker, a way to try things in it, and a way to hear what came of them.

A candidate here is a list of Python expressions by name. It evaluates each, and answers with their values or the names
of the errors as JSON in its output tensor: more room than an error message has. The same expressions run in a process
of the host as well, as the positive control: an attack that fails there too proves nothing.
"""

import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from bot.contract.load import load_contract
from bot.contract.schema import Contract
from bot.verify.calls import Answered, Failure, Worker
from bot.verify.cases import Case, Inputs, Recipe
from bot.verify.philox import Stream
from tests.verify.conftest import CONTRACTS

SIZES: dict[str, int | list[int]] = {"H": 8, "lengths": [32]}
STREAM = Stream.from_salt(b"sandbox")
HEAD = """
import ctypes, errno, fcntl, json, mmap, os, resource, signal, socket, struct, sys, threading, time

libc = ctypes.CDLL(None, use_errno=True)

def call(name, *arguments):
    ctypes.set_errno(0)
    code = getattr(libc, name)(*arguments)
    return code if code != -1 else errno.errorcode[ctypes.get_errno()]

def syscall(number, *arguments):
    ctypes.set_errno(0)
    code = libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
    return code if code != -1 else errno.errorcode[ctypes.get_errno()]

def attempt(expression):
    try:
        return eval(expression, globals())
    except BaseException as error:
        return type(error).__name__
"""
SHOW = """
def run(x, offset, scale, cu_seqlens, y):
    import torch
    told = json.dumps({name: attempt(text) for name, text in attacks.items()}, default=str).encode()
    whole = y.reshape(-1).view(torch.uint8)
    told = told[: whole.numel()].ljust(whole.numel())
    whole.copy_(torch.frombuffer(bytearray(told), dtype=torch.uint8))
"""
Answers = dict[str, Any]


@pytest.fixture(scope="session")
def contract() -> Contract:
    """The small contract."""
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    return load_contract(CONTRACTS, "center").contract


@pytest.fixture
def worker(contract) -> Iterator[Worker]:
    """A worker for one candidate; nothing of it may be left."""
    with leaves_nothing(), Worker(contract, "bubblewrap", everything()) as one:
        yield one


def everything() -> set[int]:
    """Every CPU that we may use."""
    return set(os.sched_getaffinity(0))


def descriptors() -> int:
    """How many we have open."""
    return len(list(Path("/proc/self/fd").iterdir()))


class leaves_nothing:  # noqa: N801 - reads as a sentence in a `with`
    """Fails when a process, a folder or a descriptor is left of what was done inside."""

    def __init__(self, descriptors: bool = True) -> None:
        self.descriptors = descriptors

    def __enter__(self) -> None:
        self.pids = set(psutil.pids())
        self.fds = descriptors()

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            assert self.left() == []

    def left(self) -> list[str]:
        """What is left after at most two seconds: other tests' processes are not descended from us."""
        deadline = time.monotonic() + 2
        while (found := self._now()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return found

    def _now(self) -> list[str]:
        fresh = [p for p in psutil.process_iter() if p.pid not in self.pids]
        found = [f"process {p.pid}" for p in fresh if _sandboxed(p) and _mine(p)]
        if self.descriptors and descriptors() > self.fds:
            found.append("a descriptor")
        return found


def _sandboxed(process: psutil.Process) -> bool:
    """Whether it is the stopper, bubblewrap, or of a worker's uid."""
    try:
        words = process.cmdline()
        return (
            any(word.endswith("stopper.py") for word in words)
            or process.name() == "bwrap"
            or 1_000_000_000 <= process.uids().real < 2_000_000_000
        )
    except psutil.Error:
        return False


def _mine(process: psutil.Process) -> bool:
    """Whether it descends from us, or has been left by whoever started it; other tests may run beside this one."""
    try:
        parents = process.parents()
    except psutil.Error:
        return False
    outside = [p for p in parents if p.pid != 1 and not _sandboxed(p)]
    return any(p.pid == os.getpid() for p in parents) or not outside


def source_of(attacks: Mapping[str, str], prelude: str = "") -> str:
    """A candidate that tries each and tells what came of it."""
    return f"{HEAD}\n{textwrap.dedent(prelude)}\nattacks = {dict(attacks)!r}\n{SHOW}"


def try_inside(worker: Worker, attacks: Mapping[str, str], prelude: str = "") -> Answers:
    """What the attacks came to in the sandbox."""
    failed = worker.load(source_of(attacks, prelude))
    assert failed is None, failed
    answer = worker.run(case(worker.contract), STREAM.child("inside"))
    assert isinstance(answer, Answered), answer
    return told(answer)


def told(answer: Answered) -> Answers:
    """The JSON in the output tensor."""
    found: Answers = json.loads(np.ascontiguousarray(answer.outputs["y"]).tobytes())
    return found


def try_outside(attacks: Mapping[str, str], prelude: str = "") -> Answers:
    """What the same attacks come to in a process of the host, with the rights of this one: the positive control."""
    code = f"{HEAD}\n{textwrap.dedent(prelude)}\nattacks = {dict(attacks)!r}\n"
    code += "print(json.dumps({name: attempt(text) for name, text in attacks.items()}, default=str))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 0, done.stderr
    found: Answers = json.loads(done.stdout)
    return found


def case(contract: Contract) -> Case:
    """Inputs of one call, with an output of 32 KiB."""
    recipe = Recipe("probe", "attack", SIZES, {}, {}, frozenset(), contract.limits)
    inputs: Inputs = {
        "x": np.zeros((32, 8, 64), dtype="<u2"),
        "offset": np.zeros((1, 64), dtype="<f4"),
        "scale": 1.0,
        "cu_seqlens": np.array([0, 32], dtype="<i8"),
    }
    return Case(recipe, SIZES, inputs, needles=False)


def called(worker: Worker, source: str, seconds: float = 20.0) -> Answered | Failure:
    """Load a source and call it once."""
    failed = worker.load(source)
    return failed if failed is not None else worker.run(case(worker.contract), STREAM.child("called"), seconds)


REPOSITORY = Path(__file__).parents[2]
