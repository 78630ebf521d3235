"""Kernel files whose verdict is known: reads their headers, examines them in a real verifier, holds the verdict to it.

A header is the module's docstring: a sentence or two, then `key: value` lines. `expected` names verdicts, joined by
`or`: a kind of verdict, `accepted`, or `not improved` (whatever it does, it gains nothing). `least` is the time that
each counted call must at least be measured at: load lengthens a call, only a cheat shortens it. `device: cuda` is for
a kernel that needs a GPU. A file that fails of itself tries nothing: one that is refused because it raised the kind of
exception that a name which has moved raises fails its test, unless `raises` says that it must.
"""

import ast
import atexit
import functools
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import pytest

from bot.contract.schema import Device
from bot.evaluation import Evaluation, Job, Mode, Preparation
from bot.launch import Resident
from bot.verdict import Kind, Verdict, decide

TESTS = Path(__file__).parent
CONTRACTS = {
    "center": TESTS / "data" / "contracts",
    "rmsnorm": TESTS.parent / "contracts",
    "kda_prefill": TESTS.parent / "contracts",
    "softmax": TESTS.parent / "contracts",
    "fused_add_rmsnorm": TESTS.parent / "contracts",
    "gdn_decode": TESTS.parent / "contracts",
}
OPTIONAL = {"least", "device", "raises"}
STUMBLES = re.compile(
    r"(?:^|raised )((?:Attribute|Key|Name|UnboundLocal|Index|Type|Import|ModuleNotFound)Error|StopIteration):"
)
EXPECTATIONS = {*Kind, "accepted", "not improved"}
Subject = Literal["class", "hazard"]
Record = Callable[[str, object], None]


@dataclass(frozen=True, slots=True)
class Exhibit:
    """One file of the museum. `name`: the class or hazard it stands for; `least_ns`: 0 when no time is promised."""

    file: Path
    name: str
    contract: str
    mode: Mode
    expected: tuple[str, ...]
    least_ns: int
    device: Device
    raises: str


def exhibits(folder: str, subject: Subject) -> list[Exhibit]:
    """All files of a folder below tests/, parsed."""
    return [parse(file, subject) for file in sorted((TESTS / folder).glob("*.py"))]


def parse(file: Path, subject: Subject) -> Exhibit:
    """The header of one file.

    Raises:
        ValueError: a line is missing, unknown, or says something unknown.
    """
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    lines = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line and line[0].islower())
    explains = {"class": "mechanism", "hazard": "behaviour"}[subject]
    wrong = set(lines) ^ {subject, explains, "contract", "mode", "expected"}
    if wrong - OPTIONAL:
        raise ValueError(f"{file.name}: header lines missing or unknown: {', '.join(sorted(wrong - OPTIONAL))}")
    expected = tuple(lines["expected"].split(" or "))
    mode = next((mode for mode in get_args(Mode) if mode == lines["mode"]), None)
    if mode is None or lines["contract"] not in CONTRACTS or not EXPECTATIONS.issuperset(expected):
        raise ValueError(f"{file.name}: unknown mode, contract or expectation")
    least = float(lines.get("least", "0 ms").removesuffix(" ms"))
    device: Device = "cuda" if lines.get("device") == "cuda" else "cpu"
    return Exhibit(
        file,
        lines[subject],
        lines["contract"],
        mode,
        expected,
        round(least * 1_000_000),
        device,
        lines.get("raises", ""),
    )


def examine(exhibit: Exhibit, record: Record) -> tuple[Evaluation, Verdict]:
    """Examine a file and record its row for the table: name, verdict, stage that refused it, milliseconds."""
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    if exhibit.device == "cuda" and not Path("/dev/nvidiactl").exists():
        pytest.skip("needs a CUDA device")
    job = Job(
        contracts_dir=str(CONTRACTS[exhibit.contract]),
        contract=exhibit.contract,
        candidate_name="torch_x.py",
        source=exhibit.file.read_text(encoding="utf-8"),
        mode=exhibit.mode,
        device=exhibit.device,
    )
    begun = time.monotonic()
    evaluation = resident(exhibit.contract, exhibit.device)(job)
    verdict = decide([evaluation])
    stage = evaluation.refusal.stage if evaluation.refusal else ""
    milliseconds = f"{(time.monotonic() - begun) * 1000:.0f}"
    record("museum", [exhibit.file.parent.name, exhibit.name, str(verdict.kind), stage, milliseconds])
    return evaluation, verdict


@functools.cache
def resident(contract: str, device: Device) -> Resident:
    """One verifier a contract and test process: it imports torch once, and is ready when the next file comes."""
    wanted = Preparation(contracts_dir=str(CONTRACTS[contract]), contract=contract, device=device)
    launcher = Resident(wanted)
    atexit.register(launcher.close)
    return launcher


def holds(exhibit: Exhibit, evaluation: Evaluation, verdict: Verdict) -> bool:
    """Whether the verdict and the times are what the header expects."""
    met = {str(verdict.kind)}
    met |= {"accepted"} if verdict.accepted else set()
    met |= {"not improved"} if verdict.kind is not Kind.IMPROVED else set()
    return (
        not met.isdisjoint(exhibit.expected)
        and not shortened(exhibit, evaluation)
        and not stumbled(exhibit, evaluation)
    )


def stumbled(exhibit: Exhibit, evaluation: Evaluation) -> str:
    """The exception by which it failed of itself, when its header says nothing of it."""
    found = STUMBLES.search(evaluation.refusal.reason) if evaluation.refusal else None
    return found[1] if found and found[1] != exhibit.raises else ""


def shortened(exhibit: Exhibit, evaluation: Evaluation) -> list[int]:
    """Counted calls that were measured below what the header promises."""
    counted = [ns for cell in evaluation.cells for one in cell.rounds for ns in one.candidate_ns]
    return [ns for ns in counted if ns < exhibit.least_ns]
