"""What is made of compute-sanitizer's reports, and of a tool or a device that is not there.

Reports here are written after the tool's manual; what stands in for the tool starts its command in the real sandbox and
writes one. The real tool is asked where there is a GPU.
"""

import io
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from bot import cli
from bot.contract.load import load_contract
from bot.errors import InfrastructureError, UsageError
from bot.handlers.project import SOURCE_LIMIT
from bot.handlers.sanitizer import exit_code
from bot.launch import sanitize
from bot.report.sanitizer import print_sanitized
from bot.sanitizer import Sanitation, Sanitized, Tool, Watching
from bot.verify.artefacts import CASES, RAISED, REPORT, Asked, Place, Watch
from bot.verify.mounts import GpuAccess
from bot.verify.protocol import MAX_PACKET, pack
from bot.verify.sanitizer import Watcher, find_sanitizer, outcome_of, packed, read_report, small_cases

CONTRACTS = Path(__file__).parents[2] / "contracts"
KERNELS = Path(__file__).parents[2] / "kernels"

CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
MEMCHECK = """========= COMPUTE-SANITIZER
what the kernel prints itself
========= Invalid __global__ read of size 2 bytes
=========     at scale+0x1a0 in candidate.py:9
=========     by thread (96,0,0) in block (3,0,0)
=========     Access at 0x7f0a5c000400 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f0a5c000000 of size 1024 bytes
=========
========= ERROR SUMMARY: 64 errors
========= ERROR SUMMARY: 44 errors were not printed. Use --print-limit option to adjust the number of printed errors
"""
RACECHECK = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at sum+0x90 in candidate.py:12
=========     and Read access at sum+0xf0 in candidate.py:14 [1024 hazards]
=========
========= RACECHECK SUMMARY: 3 hazards displayed (2 errors, 1 warning)
"""


def test_a_report_is_read_without_its_frame_and_without_other_peoples_lines() -> None:
    report = read_report(MEMCHECK)
    assert report.errors == 64
    assert report.lines == [
        "Invalid __global__ read of size 2 bytes",
        "at scale+0x1a0 in candidate.py:9",
        "by thread (96,0,0) in block (3,0,0)",
        "Access at 0x7f0a5c000400 is out of bounds",
        "and is 1 bytes after the nearest allocation at 0x7f0a5c000000 of size 1024 bytes",
    ]


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        (CLEAN, 0),
        ("========= ERROR SUMMARY: 1 error\n", 1),
        (RACECHECK, 2),
        ("========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n", 0),
        ("", None),
        ("========= COMPUTE-SANITIZER\n", None),
        ("ERROR SUMMARY: 0 errors\n", None),
        ("========= ERROR SUMMARY: many errors\n", None),
        (CLEAN[:-9], None),
        (CLEAN + MEMCHECK, 64),
    ],
)
def test_errors_are_those_of_the_last_whole_summary(text: str, errors: int | None) -> None:
    assert read_report(text).errors == errors


@pytest.mark.parametrize(
    ("text", "status", "outcome"),
    [
        (CLEAN, 0, "clean"),
        (MEMCHECK, 0, "errors"),
        (MEMCHECK, RAISED, "errors"),
        (MEMCHECK, None, "errors"),
        (CLEAN, RAISED, "raised"),
        # The tool counts nothing where the process it watches was killed; that is not to be taken for well.
        (CLEAN, 139, "died"),
        (CLEAN, None, "timed_out"),
        ("", None, "timed_out"),
        ("", 0, "died"),
        ("", RAISED, "died"),
    ],
)
def test_the_worse_of_report_and_ending_counts(text: str, status: int | None, outcome: str) -> None:
    assert outcome_of(read_report(text), status) == outcome


def test_a_report_of_any_length_is_kept_short() -> None:
    report = read_report(("========= " + "x" * 5000 + "\n") * 5000)
    assert len(report.lines) == 40
    assert {len(line) for line in report.lines} == {200}


def found(*outcomes: str) -> Sanitized:
    watched = [
        Watching.model_validate({"tool": "memcheck", "outcome": o, "errors": 0, "seconds": 1.0}) for o in outcomes
    ]
    return Sanitized(cases=["x"], left_out=0, watched=watched)


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        (("clean", "clean"), 0),
        (("clean", "errors"), 1),
        (("died", "raised"), 1),
        (("clean", "died"), 2),
        (("timed_out",), 2),
    ],
)
def test_errors_count_more_than_what_is_not_known(outcomes: tuple[str, ...], code: int) -> None:
    assert exit_code(found(*outcomes)) == code


def test_a_report_is_shown_as_text_and_said_to_decide_nothing() -> None:
    shown = io.StringIO()
    lines = ["Invalid __global__ read of size 2 bytes", "at [red]scale[/red]\x1b[2J+0x10"]
    watched = [
        Watching(tool="memcheck", outcome="errors", errors=64, lines=lines, seconds=12.4),
        Watching(tool="racecheck", outcome="clean", errors=0, seconds=9.6),
    ]
    print_sanitized("x.py", Sanitized(cases=["a", "b"], left_out=3, watched=watched), Console(file=shown, width=120))
    told = shown.getvalue()
    assert "x.py on 2 small cases, 3 larger ones left out" in told
    assert "memcheck found errors (64) · 12 s" in told
    assert "racecheck found nothing · 10 s" in told
    assert "at [red]scale[/red]" in told
    assert "\x1b" not in told
    assert "no part of a verdict" in told


def test_without_the_tool_the_owner_of_the_machine_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InfrastructureError, match=r"compute-sanitizer is missing.*install it with the CUDA toolkit"):
        find_sanitizer([str(tmp_path)])


def test_the_folder_of_the_tool_is_found_from_what_is_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cuda-13" / "compute-sanitizer"
    for file in (folder / "compute-sanitizer", folder / "libsanitizer-collection.so", folder.parent / "bin" / "x"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    starter = folder.parent / "bin" / "compute-sanitizer"
    starter.write_text("#!/bin/sh\n")
    starter.chmod(0o755)
    (tmp_path / "cuda").symlink_to(folder.parent)
    monkeypatch.setenv("PATH", str(tmp_path / "cuda" / "bin"))
    assert find_sanitizer([]) == str(folder)
    monkeypatch.setenv("PATH", "")
    assert find_sanitizer([str(tmp_path / "cuda")]) == str(folder)


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there is a CUDA device here")
def test_without_a_device_the_command_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = tmp_path / "torch_x.py"
    kernel.write_text("def run(*_): pass\n")
    assert cli.run(["sanitize", "rmsnorm", str(kernel)]) == 2
    told = capsys.readouterr().err
    assert "no CUDA device can be used here" in told
    assert "Whoever owns this machine must act" in told


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["nothing_such"], "unknown contract 'nothing_such'"),
        (["rmsnorm", "--tool", "leakcheck"], "unknown tool 'leakcheck'; known: memcheck, racecheck"),
        (["rmsnorm", "--seconds", "0"], "--seconds"),
    ],
)
def test_a_wrong_command_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], reason: str
) -> None:
    kernel = tmp_path / "torch_x.py"
    kernel.write_text("def run(*_): pass\n")
    assert cli.run(["sanitize", arguments[0], str(kernel), *arguments[1:]]) == 2
    assert reason in capsys.readouterr().err


def names() -> list[str]:
    return sorted(place.parent.name for place in CONTRACTS.glob("*/contract.yaml"))


@pytest.mark.parametrize("name", names())
def test_every_contract_has_cases_that_fit_or_says_that_it_has_none(name: str) -> None:
    contract = load_contract(CONTRACTS, name).contract
    if name == "moe_fp8_block_scale":
        with pytest.raises(UsageError, match="too large to be watched"):
            small_cases(contract)
        return
    cases, left_out = small_cases(contract)
    assert len(cases) == CASES
    assert left_out > 0
    asked, inputs = packed(contract, cases)
    task = Watch(tool="memcheck", sanitizer="/x", device="cuda", seconds=1, size=1, room=len(inputs), cases=asked)
    assert len(pack(task)) < MAX_PACKET
    for case, one in zip(cases, asked, strict=True):
        for (input_name, _), place in zip(contract.inputs.items(), one.arguments, strict=False):
            value = case.inputs[input_name]
            if isinstance(place, Place):
                assert isinstance(value, np.ndarray)
                assert place.offset is not None
                assert inputs[place.offset : place.offset + value.nbytes] == value.tobytes()
            else:
                assert place == value


STAND_IN = """#!{python} -IS
import subprocess, sys
place = sys.argv.index("--log-file")
status = subprocess.call(sys.argv[place + 2 :])
with open(sys.argv[place + 1], "w") as report:
    report.write({report!r})
sys.exit(status)
"""
READS = """
import torch
def run(x, factor, nothing, y):
    assert factor == 2.5 and nothing is None
    assert x.tolist() == [[1.0, 2.0, 3.0]] and x.dtype == torch.float32
    assert tuple(y.shape) == (2, 2) and y.dtype == torch.bfloat16 and not torch.is_grad_enabled()
    y.zero_()
"""


@pytest.fixture
def watcher(tmp_path: Path):
    """Watches a source on the CPU, in the real sandbox, with something in the tool's place."""

    def make(source: str, *, report: str = CLEAN, seconds: int = 60, program: str = STAND_IN) -> Watching:
        tool = tmp_path / "compute-sanitizer"
        tool.write_text(program.format(python=Path(sys.executable).resolve(), report=report))
        tool.chmod(0o755)
        tmp_path.chmod(0o755)
        x = Place(shape=[1, 3], dtype="float32", offset=64)
        asked = [Asked(name="small", arguments=[x, 2.5, None, Place(shape=[2, 2], dtype="bfloat16", offset=None)])]
        inputs = bytes(64) + np.array([1, 2, 3], dtype="<f4").tobytes()
        gpu = GpuAccess("", (), "/usr/lib", sanitizer=str(tmp_path))
        return Watcher(source, asked, inputs, gpu, frozenset(), seconds, device="cpu").watch("memcheck")

    return make


@pytest.mark.sandbox
def test_a_kernel_gets_its_arguments_in_the_sandbox(watcher) -> None:
    seen = watcher(READS)
    assert (seen.outcome, seen.errors, seen.lines) == ("clean", 0, [])


@pytest.mark.sandbox
def test_an_exception_is_told_with_the_case_that_it_was_in(watcher) -> None:
    seen = watcher("def run(*_):\n    raise ValueError('too [red]odd[/red]')\n")
    assert seen.outcome == "raised"
    assert seen.lines[-1] == "in small: ValueError: too [red]odd[/red]"


@pytest.mark.sandbox
def test_a_file_that_cannot_be_imported_raised(watcher) -> None:
    seen = watcher("import nothing_such\n")
    assert seen.outcome == "raised"
    assert "in its import: ModuleNotFoundError" in seen.lines[-1]


@pytest.mark.sandbox
def test_errors_are_shown_as_the_tool_reports_them(watcher) -> None:
    seen = watcher(READS, report=MEMCHECK)
    assert (seen.outcome, seen.errors) == ("errors", 64)
    assert seen.lines[0] == "Invalid __global__ read of size 2 bytes"


@pytest.mark.sandbox
def test_what_never_ends_is_ended(watcher) -> None:
    seen = watcher("import time\nprint('here', flush=True)\ntime.sleep(600)\n", seconds=3)
    assert seen.outcome == "timed_out"
    assert set(seen.lines) <= {"here"}


@pytest.mark.sandbox
@pytest.mark.parametrize(
    "end",
    [
        "os.kill(os.getpid(), signal.SIGSEGV)",
        "os.kill(os.getppid(), signal.SIGKILL)",
        # The tool reports no errors, but not all calls were made.
        "os._exit(0)",
        "sys.exit(0)",
    ],
)
def test_who_ends_before_all_calls_came_back_died(watcher, end: str) -> None:
    assert watcher(f"import os, signal, sys\n\n\ndef run(*_):\n    {end}\n").outcome == "died"


@pytest.mark.sandbox
def test_a_flood_of_report_and_print_is_cut(watcher) -> None:
    kernel = "def run(*_):\n    print('\\x00\\\\\\u20ac' * 300_000, flush=True)\n    raise ValueError('x')\n"
    seen = watcher(kernel, report="========= \x1b[31m\\\\\n" * (REPORT // 4) + CLEAN)
    assert seen.outcome == "raised"
    assert seen.lines[-1] == "in small: ValueError: x"
    assert sum(map(len, seen.lines)) < SOURCE_LIMIT


@pytest.mark.sandbox
def test_a_tool_that_cannot_be_started_is_told(watcher) -> None:
    seen = watcher(READS, program="#!/nothing/such\n")
    assert seen.outcome == "died"
    assert "compute-sanitizer cannot be started" in seen.lines[0]


HEAD = """
import torch
import triton
import triton.language as tl

@triton.jit
def scale(x_ptr, out_ptr, behind, count, N: tl.constexpr):
    place = tl.program_id(0) * N + tl.arange(0, N)
    inside = place < count
    tl.store(out_ptr + place, tl.load(x_ptr + place + behind, mask=inside, other=0.0), mask=inside)

def run(hidden_states, weight, output):
    count = hidden_states.numel()
    if count:
"""
INSIDE = HEAD + "        scale[(triton.cdiv(count, 512),)](hidden_states, output, 0, count, N=512)\n"
OUTSIDE = INSIDE.replace("output, 0,", "output, 8,")
UNWRITTEN = INSIDE.replace("(hidden_states, output,", "(torch.empty_like(output), output,")


@pytest.mark.gpu
@pytest.mark.sandbox
@pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="needs a CUDA device")
@pytest.mark.parametrize(
    ("source", "tool", "outcome"),
    [
        (INSIDE, "memcheck", "clean"),
        (OUTSIDE, "memcheck", "errors"),
        (INSIDE, "initcheck", "clean"),
        (UNWRITTEN, "initcheck", "errors"),
        ((KERNELS / "rmsnorm" / "triton_row.py").read_text(encoding="utf-8"), "racecheck", "clean"),
    ],
    ids=["inside", "outside", "written", "unwritten", "merged kernel"],
)
def test_the_real_tool_tells_good_accesses_from_bad_ones(source: str, tool: Tool, outcome: str) -> None:
    order = Sanitation(contracts_dir=str(CONTRACTS), contract="rmsnorm", source=source, tools=[tool], seconds=120)
    (seen,) = sanitize(order).watched
    assert seen.outcome == outcome, seen
    assert (seen.errors > 0) == (outcome == "errors")
