"""Whole exams of small kernels: what is accepted, what is refused, at which stage, and in which words."""

import pytest

from bot.contract.load import load_contract
from bot.errors import UsageError
from bot.evaluation import Evaluation, Job
from bot.launch import launch
from bot.verdict import Kind, decide
from bot.verify import cpus
from bot.verify.calls import Allowance, Answered, Failure, Worker
from bot.verify.cases import cell_recipe, make_case
from bot.verify.philox import Stream
from tests.verify.conftest import CENTER, CONTRACTS, HONEST, Examine

pytestmark = pytest.mark.sandbox

SIGNATURE = "def run(x, offset, scale, cu_seqlens, y):"


def with_body(body: str, before: str = "") -> str:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return f"import torch\n{before}\n{HONEST.replace('def run(', 'def honest(')}\n\n{SIGNATURE}\n{lines}\n"


def stage_of(evaluation: Evaluation) -> str | None:
    return evaluation.refusal.stage if evaluation.refusal else None


def test_an_honest_kernel_is_accepted_quickly_and_not_measured(examine: Examine) -> None:
    evaluation = examine(HONEST)
    verdict = decide([evaluation])
    assert evaluation.refusal is None
    assert verdict.accepted
    assert not verdict.measured
    ran = {record.name for record in evaluation.stages if record.status == "passed"}
    assert ran == {"build", "smoke", "correctness", "probes"}
    assert all(s.done >= s.planned > 0 for s in evaluation.stages if s.name in ran)


def test_a_full_exam_times_compares_and_grades_itself(examine: Examine) -> None:
    evaluation = examine(HONEST, "exam")
    assert evaluation.refusal is None
    assert {cell.name for cell in evaluation.cells} == set(evaluation.scored_cells)
    assert all(len(cell.rounds) == 2 for cell in evaluation.cells)
    assert {r.first for cell in evaluation.cells for r in cell.rounds} == {"candidate", "baseline"}
    assert evaluation.checked_timed_calls > 0
    assert all(s.status == "passed" and s.done == s.planned for s in evaluation.stages)
    second = evaluation.confirmation
    assert second is not None
    assert (second.mode, second.refusal, second.grade) == ("confirm", None, None)
    assert second.salt != evaluation.salt
    assert {cell.name for cell in second.cells} == set(evaluation.scored_cells)
    assert evaluation.grade is not None
    assert evaluation.grade.survivors == []
    assert evaluation.grade.refused_faithful == []
    # The candidate is the baseline's own code: whatever the clock says, it has not improved on it.
    assert decide([evaluation]).kind in {Kind.NO_GAIN, Kind.SLOWER, Kind.MIXED, Kind.INVALID_MEASUREMENT}


@pytest.mark.parametrize("control", ["no_mean", "offset_ignored"])
def test_controls_are_refused_as_candidates(examine: Examine, control: str) -> None:
    evaluation = examine((CENTER / "controls" / f"{control}.py").read_text(encoding="utf-8"))
    assert evaluation.refusal is not None
    assert evaluation.refusal.kind == "incorrect"
    assert evaluation.refusal.counterexample is not None
    assert evaluation.refusal.counterexample.output == "y"


REFUSED = {
    "does not import": ("import nonexistent_module\n" + HONEST, "build_failed", "build"),
    "has no run": ("x = 1\n", "build_failed", "build"),
    "is not Python": ("def run(:\n", "build_failed", "build"),
    "is empty": ("", "build_failed", "build"),
    "exits at import": ("import os\nos._exit(0)\n", "build_failed", "build"),
    "exits by SystemExit": ("import sys\nsys.exit(0)\n", "build_failed", "build"),
    "raises in a call": (with_body("raise ValueError('no')"), "incorrect", "smoke"),
    "dies in a call": (with_body("import os; os._exit(0)"), "incorrect", "smoke"),
    "loops for ever": (with_body("while True:\n    pass"), "timed_out", "smoke"),
    "writes nothing": (with_body("pass"), "incorrect", "smoke"),
    "writes where it may not": ("open('/usr/lib/x', 'w')\n" + HONEST, "build_failed", "build"),
    "writes into an input": (with_body("honest(x, offset, scale, cu_seqlens, y)\nx[0] = 0"), "incorrect", "smoke"),
    "writes beyond an output": (
        with_body(
            "honest(x, offset, scale, cu_seqlens, y)\nimport ctypes\nctypes.memset(y.data_ptr() + y.numel() * 2, 0, 64)"
        ),
        "incorrect",
        "smoke",
    ),
    "sends a message of its own": (
        with_body(
            "honest(x, offset, scale, cu_seqlens, y)\nimport socket, os\n"
            "for fd in range(3, 40):\n"
            "    try:\n"
            '        s = socket.socket(fileno=os.dup(fd)); s.send(b\'{"op":"done","call":1,"claimed_ns":1}\')\n'
            "    except OSError:\n"
            "        pass"
        ),
        "tampered",
        "",
    ),
    "gives back the first answer for ever": (
        with_body(
            "if not memory or memory[0].shape != y.shape:\n"
            "    honest(x, offset, scale, cu_seqlens, y)\n"
            "    memory[:] = [y.clone()]\n"
            "y.copy_(memory[0])",
            "memory = []",
        ),
        "incorrect",
        "",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_kernel_does_wrong_ends_in_a_refusal(examine: Examine, name: str) -> None:
    source, kind, stage = REFUSED[name]
    evaluation = examine(source)
    assert evaluation.refusal is not None
    assert evaluation.refusal.kind == kind
    if stage:
        assert evaluation.refusal.stage == stage
    assert decide([evaluation]).kind == kind


def test_a_slow_call_is_no_failure(examine: Examine) -> None:
    """Longer than the verifier's pulse, at which it looks whether the sandbox is alive."""
    slow = with_body("import time\ntime.sleep(0.6)\nhonest(x, offset, scale, cu_seqlens, y)")
    assert examine(slow).refusal is None


def test_a_flood_of_output_neither_blocks_nor_fills(examine: Examine) -> None:
    flood = with_body("print('x' * 4_000_000)\nhonest(x, offset, scale, cu_seqlens, y)")
    assert examine(flood).refusal is None


def test_the_timed_calls_are_compared_too(examine: Examine) -> None:
    """Right for its first 40 calls, then the last answer again: all that a check before timing would see is honest."""
    late = with_body(
        "count[0] += 1\n"
        "if count[0] > 12 and count[1] is not None and count[1].shape == y.shape:\n"
        "    y.copy_(count[1])\n"
        "    return\n"
        "honest(x, offset, scale, cu_seqlens, y)\n"
        "count[1] = y.clone()",
        "count = [0, None]",
    )
    evaluation = examine(late, "full")
    assert evaluation.refusal is not None
    assert evaluation.refusal.kind == "incorrect"


def test_two_exams_draw_differently(examine: Examine) -> None:
    first, second = examine(HONEST), examine(HONEST)
    assert first.salt != second.salt
    assert first.accuracy[0].maximum != second.accuracy[0].maximum


def test_an_unknown_contract_is_a_usage_error() -> None:
    job = Job(contracts_dir=str(CONTRACTS), contract="nothing", candidate_name="x.py", source="", mode="quick")
    with pytest.raises(UsageError, match="unknown contract 'nothing'; known: center"):
        launch(job)


def test_a_kernel_that_is_slow_in_every_call_runs_out_of_time() -> None:
    """Each call is inside its own limit."""
    loaded = load_contract(CONTRACTS, "center")
    stream = Stream.from_salt(b"", "slow")
    recipe = cell_recipe(loaded.contract, loaded.contract.anchor("cpu"), "plain")
    case = make_case(loaded.contract, recipe, stream, static=stream)
    with Worker(loaded.contract, "bubblewrap", cpus.split()[1]) as worker:
        worker.allowance = Allowance(1.0)
        assert worker.load(with_body("import time\ntime.sleep(0.4)\nhonest(x, offset, scale, cu_seqlens, y)")) is None
        answers = [worker.run(case, stream.child(call)) for call in range(2)]
        assert all(isinstance(answer, Answered) for answer in answers)
        refused = worker.run(case, stream.child(2))
    assert isinstance(refused, Failure)
    assert refused.kind == "timed_out"
