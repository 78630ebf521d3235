"""Stage 8, timing: candidate and bar in fresh workers, call by call on the same new inputs, the idle one stopped.

Two rounds with alternating start order, ABBA within a round; the score is the verifier's envelope. Each timed output is
compared with the bar's on the same inputs, and a secret quarter in full with the oracle: between the rounds, because
nothing of ours runs while a timed call does.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from bot.contract.schema import Device, Workload
from bot.evaluation import Cell, Refusal, Round, StageName
from bot.floor import Ceilings, LeastTime, least_time, least_work
from bot.verify.buffers import Slot
from bot.verify.calls import Answered, Failure, Worker
from bot.verify.cases import Case, Recipe, cell_recipe
from bot.verify.closer import decide_case
from bot.verify.counterexample import answer_tensors, pair_tensors
from bot.verify.exam import Check, Exam, Kernel, Outcome, Question, incorrect, refuse
from bot.verify.pairs import against_bar
from bot.verify.philox import Stream
from bot.verify.plan import PAIRS, rounds_of
from bot.verify.stages.replays import replayed
from bot.verify.start import gpu_state, rested

WARM_UPS = 2
"""Calls of each side per cell that are checked but not counted."""
FULL_SHARE: dict[Device, float] = {"cpu": 0.25, "cuda": 0.05}
"""Share of a cell's timed calls compared with the oracle in full, at least one. The comparison with the bar has to be
wider (pairs.py), so this is what a kernel that is coarse in some timed calls must get past: on a CPU one that is in
half of 100 calls does with a probability of 0.875 ** 100, one in a million; on a GPU, where a large call's expected
values take half a second, one that is in half the calls of 18 cells does with 0.5 ** 18, four in a million."""
RESOLUTION_NS: dict[Device, int] = {"cpu": 1_000_000, "cuda": 0}
"""Cells below this are unresolved: on a CPU our envelope costs 0.1 to 0.5 ms and wanders. On a GPU it costs 25 to 30
µs, steadily, in which a candidate could hide 10 at most; and a gain must exceed that whole cost as a share of the bar's
time (verdict.py), however short the cell."""

DISTURBED_NS = 250_000
DISTURBED_SHARE = 0.5
"""A cell in which more of its calls had company than this was not measured: medians do not bear more. All others count,
those with company too: a candidate that can make company would else choose which of its calls count. It gains nothing
by it: its own calls get slower, and the bar's time is never more than what it is alone."""


@dataclass
class _Measured:
    """One cell while it is being timed. `secret`: the rounds and calls that are compared in full with the oracle."""

    workload: Workload
    regime: str
    recipe: Recipe
    stream: Stream
    secret: frozenset[tuple[int, int]]
    rounds: list[Round] = field(default_factory=list)
    claimed_ns: list[int] = field(default_factory=list)
    baseline_claimed_ns: list[int] = field(default_factory=list)
    unchecked: list["_Pair"] = field(default_factory=list)
    host_bound: set[Literal["candidate", "baseline"]] = field(default_factory=set)
    flushes_ns: list[tuple[int, int]] = field(default_factory=list)
    clocks_mhz: list[int] = field(default_factory=list)
    rests: list[str] = field(default_factory=list)
    replays: tuple[int | None, int | None] = (None, None)


@dataclass(frozen=True, slots=True)
class _Pair:
    """Both answers to the same inputs, and whether they are the secret ones."""

    case: Case
    candidate: Answered
    baseline: Answered
    number: str
    secret: bool


class _Refused(Exception):  # noqa: N818 - control flow inside this stage, not an error
    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal


class _BarLost(Exception):  # noqa: N818 - as above
    """The bar failed after its clean run: an invalid measurement, never a lower bar."""


def timing(exam: Exam) -> Mapping[StageName, Outcome]:
    """Time every scored cell."""
    return {"timing": _timing(exam)}


def _timing(exam: Exam) -> Outcome:
    if exam.bar is None:
        return Outcome(exam.planned("timing"))
    # What the candidate left running, or a worker that is still coming up, would share the CPUs with those timed.
    exam.settle()
    cells = [_measured(exam, workload, regime) for workload, regime in exam.scored()]
    done, before = 0, gpu_state(exam.device)
    try:
        for number in range(rounds_of(exam)):
            done += _round(exam, exam.bar, cells, number, done)
        _check_all(exam, cells)
    except _Refused as stop:
        return Outcome(done, stop.refusal)
    except _BarLost as lost:
        return Outcome(done, invalid=str(lost))
    exam.cells = [_cell(exam, exam.bar, cell) for cell in cells]
    if exam.gpu is not None:
        exam.gpu = exam.gpu.model_copy(update={"before": before, "after": gpu_state(exam.device)})
    return Outcome(done)


def _measured(exam: Exam, workload: Workload, regime: str) -> _Measured:
    recipe = cell_recipe(exam.contract, workload, regime)
    stream = timed_stream(exam, recipe)
    calls = [(number, call) for number in range(rounds_of(exam)) for call in range(WARM_UPS + PAIRS[exam.job.mode])]
    order = stream.child("full").shuffled(len(calls))
    secret = {calls[place] for place in order[: max(1, round(len(calls) * FULL_SHARE[exam.device]))]}
    return _Measured(workload, regime, recipe, stream, frozenset(secret))


def _round(exam: Exam, bar: Kernel, cells: list[_Measured], number: int, done: int) -> int:
    """One pair of fresh workers over all cells, in secret order."""
    exam.progress("timing", done, f"round {number + 1} of {rounds_of(exam)}")
    pair = exam.timers.pop(0) if exam.timers else exam.start_timers(number)
    candidate, baseline = pair.candidate, pair.bar.worker
    candidate.allowance = exam.allowance
    with candidate, baseline:
        # While the workers import torch: draw this round's inputs, and compare the last round's outputs.
        # A GPU draws as fast as it reads, and has no room for all of them.
        drawn = {cell.recipe.name: _cases(exam, cell, number) for cell in cells if exam.device == "cpu"}
        _check_all(exam, cells)
        with exam.spent.on("start"):
            failed = pair.bar.loaded.result()
        if failed is not None:
            raise _BarLost(f"the bar {bar.name} did not load: {failed.text}")
        baseline.stop()
        candidate.ready()
        failed = candidate.load(exam.candidate.source)
        if failed is not None:
            raise _Refused(refuse("timing", "import", failed))
        candidate.stop()
        order = exam.root.child("timing", number, "order").shuffled(len(cells))
        for finished, place in enumerate(order):
            cell = cells[place]
            exam.progress("timing", done + finished, cell.recipe.name)
            cases = drawn.get(cell.recipe.name) or _cases(exam, cell, number)
            with exam.spent.on("time"):
                cell.rests.append(rested(exam.device))
                pairs = _timed(cell, cases, candidate, baseline, number)
            _keep(cell, pairs, pair.first)
            state = gpu_state(exam.device)
            cell.clocks_mhz += [] if state is None else [state.sm_mhz]
            if exam.device != "cpu":
                _check_all(exam, [cell])
        if exam.device != "cpu" and number == rounds_of(exam) - 1:
            _replay(exam, cells, candidate, baseline, number)
    return len(cells)


def _replay(exam: Exam, cells: Sequence[_Measured], candidate: Worker, baseline: Worker, number: int) -> None:
    """Of cells that are mostly launches, what both sides take without them."""
    bound = [cell for cell in cells if _launch_bound(exam, cell)]
    asked = [(cell.recipe.name, timed_case(exam, cell.recipe, number, 0)) for cell in bound]
    stream = exam.root.child("replay")
    ours, bars = (replayed(worker, asked, stream) for worker in (candidate, baseline))
    for cell in bound:
        cell.replays = ours.get(cell.recipe.name), bars.get(cell.recipe.name)


def _launch_bound(exam: Exam, cell: _Measured) -> bool:
    """Whether most of the candidate's time is what any call costs, or its process was in its midst."""
    median = statistics.median(t for r in cell.rounds for t in r.candidate_ns)
    return median < 2 * exam.overhead_ns or "candidate" in cell.host_bound


def _cases(exam: Exam, cell: _Measured, number: int) -> list[Case]:
    """The inputs of a cell's calls in one round."""
    return [timed_case(exam, cell.recipe, number, call) for call in range(WARM_UPS + PAIRS[exam.job.mode])]


def timed_case(exam: Exam, recipe: Recipe, number: int, call: int) -> Case:
    """The inputs of a timed call: cell, round, place in the round."""
    stream = timed_stream(exam, recipe).child(number)
    return exam.make(recipe, stream.child("case", call), static=stream)


def timed_stream(exam: Exam, recipe: Recipe) -> Stream:
    """Where a cell's timed calls are drawn from."""
    return exam.root.child("timing", recipe.name)


def _timed(cell: _Measured, cases: list[Case], candidate: Worker, baseline: Worker, number: int) -> list[_Pair]:
    """All calls of one cell in one round. No oracle runs meanwhile."""
    stream = cell.stream.child(number)
    slots = {True: _slots(cell, candidate, ours=True), False: _slots(cell, baseline, ours=False)}
    taken: list[_Pair] = []
    for call, case in enumerate(cases):
        # A B B A: drift within a pair cancels over two pairs.
        turns = (True, False) if call % 4 in {0, 3} else (False, True)
        answers: dict[bool, Answered] = {}
        for ours in turns:
            worker = candidate if ours else baseline
            slot = slots[ours][call % 2]
            answer = worker.call(slot, case, stream.child("call", call, str(ours)))
            answers[ours] = _answered(answer, cell, ours=ours)
        taken.append(_Pair(case, answers[True], answers[False], f"{number}/{call}", (number, call) in cell.secret))
    for ours, worker in ((True, candidate), (False, baseline)):
        for slot in slots[ours]:
            failed = worker.release(slot)
            if failed is not None:
                _answered(failed, cell, ours=ours)
        worker.stop()
    return taken


def _keep(cell: _Measured, pairs: list[_Pair], first: Literal["candidate", "baseline"]) -> None:
    cell.unchecked += pairs
    timed = pairs[WARM_UPS:]
    cell.flushes_ns += [(pair.candidate.flush_ns, pair.baseline.flush_ns) for pair in timed]
    cell.claimed_ns += [pair.candidate.claimed_ns for pair in timed]
    cell.baseline_claimed_ns += [pair.baseline.claimed_ns for pair in timed]
    cell.host_bound |= {"candidate"} if any(pair.candidate.host_bound for pair in timed) else set()
    cell.host_bound |= {"baseline"} if any(pair.baseline.host_bound for pair in timed) else set()
    cell.rounds.append(
        Round(
            first=first,
            candidate_ns=[pair.candidate.envelope_ns for pair in timed],
            baseline_ns=[pair.baseline.envelope_ns for pair in timed],
        )
    )


def disturbed(flushes_ns: Sequence[tuple[int, int]], quiet_ns: int) -> list[tuple[int, int]]:
    """The pairs of calls before which something else was at work on the device.

    What empties the cache takes 0.51 to 0.64 ms of the host's time, from least to 95th percentile, unless it must take
    turns, and for a turn the device changes twice between processes, 0.15 ms each. `quiet_ns` is from before candidate
    code was loaded: one that keeps the device busy all along would make its own times the usual ones.
    """
    return [pair for pair in flushes_ns if quiet_ns and max(pair) > quiet_ns + DISTURBED_NS]


def company(flushes_ns: Sequence[tuple[int, int]], quiet_ns: int) -> str:
    """What is to be said of them; nothing if there are none."""
    late = disturbed(flushes_ns, quiet_ns)
    if not late:
        return ""
    longest = max(max(pair) for pair in late) / 1e6
    return (
        f"something else was at work on the device before {len(late)} of {len(flushes_ns)} pairs of calls: emptying "
        f"its cache took up to {longest:.2f} ms, {quiet_ns / 1e6:.2f} when idle"
    )


def _slots(cell: _Measured, worker: Worker, *, ours: bool) -> list[Slot]:
    """Two sets of addresses that the calls of a cell take turns on."""
    bound = []
    for _ in range(2):
        slot = worker.bind(cell.recipe.axes, cell.recipe.absent)
        if isinstance(slot, Failure):
            if ours:
                raise _Refused(refuse("timing", cell.recipe.name, slot))
            raise _BarLost(f"the bar failed in {cell.recipe.name}: {slot.text}")
        bound.append(slot)
    worker.stop()
    return bound


def _answered(answer: Answered | Failure, cell: _Measured, *, ours: bool) -> Answered:
    if isinstance(answer, Answered):
        return answer
    if ours:
        raise _Refused(refuse("timing", cell.recipe.name, answer))
    raise _BarLost(f"the bar failed in {cell.recipe.name}: {answer.text}")


def _check_all(exam: Exam, cells: list[_Measured]) -> None:
    """Compare every timed output that is still unchecked. Warm-ups are timed calls to the kernel, and to us."""
    for cell in cells:
        if exam.job.mode != "claim":
            for pair in cell.unchecked:
                _check(exam, cell, pair)
            exam.checked_timed_calls += len(cell.unchecked)
        cell.unchecked.clear()


def _check(exam: Exam, cell: _Measured, pair: _Pair) -> None:
    """One timed call against the bar on the same inputs; the secret one against the oracle in full."""
    if pair.candidate.unwritten is not None:
        text = f"left `{pair.candidate.unwritten[0]}` unwritten in a timed call"
        raise _Refused(refuse("timing", pair.case.where, Failure("incorrect", text)))
    if pair.secret:
        noise = cell.stream.child("oracle", pair.number)
        outputs = exam.tensors(pair.candidate.outputs)
        expected, judgement = decide_case(exam, pair.case, exam.expected(pair.case, noise), noise, outputs)
        if judgement.counterexample is not None:
            question = Question(Check("timing", cell.recipe, 0), pair.case, expected)
            exam.shown = answer_tensors(exam, question, pair.candidate)
            refusal = incorrect("timing", pair.case, judgement.counterexample, note="in a timed call")
            raise _Refused(refusal.model_copy(update={"call": pair.number}))
    with exam.spent.on("check"):
        example = against_bar(
            exam.contract,
            exam.tensors(pair.candidate.outputs),
            exam.tensors(pair.baseline.outputs),
            exam.noise_level(cell.recipe.name),
            where=pair.case.where,
            axes=pair.case.axes,
        )
    if example is not None:
        exam.shown = pair_tensors(
            exam, pair.case, exam.tensors(pair.candidate.outputs), exam.tensors(pair.baseline.outputs)
        )
        refusal = incorrect("timing", pair.case, example, note="in a timed call: it differs from the bar's")
        raise _Refused(refusal.model_copy(update={"call": pair.number}))


def _floor(exam: Exam, recipe: Recipe) -> LeastTime | None:
    """The least times of a cell on this device; unknown on a CPU."""
    if exam.gpu is None:
        return None
    ceilings = Ceilings(
        bytes_per_second=exam.gpu.bytes_per_second,
        operations_per_second=exam.gpu.operations_per_second,
        cache_bytes=exam.gpu.cache_bytes,
    )
    return least_time(least_work(exam.contract, recipe.axes, recipe.absent), ceilings)


def _state(exam: Exam, cell: _Measured) -> tuple[Literal["resolved", "unresolved", "invalid"], str]:
    """Whether its times tell anything, and why not, or what should be known of them."""
    note = "; ".join(filter(None, [company(cell.flushes_ns, exam.flush_ns), *cell.rests]))
    if len(disturbed(cell.flushes_ns, exam.flush_ns)) > DISTURBED_SHARE * len(cell.flushes_ns):
        return "invalid", note
    median = statistics.median(t for r in cell.rounds for t in r.candidate_ns)
    least = RESOLUTION_NS[exam.device]
    if median >= least:
        return "resolved", note
    return "unresolved", f"median {median / 1e6:.3f} ms, and the clock resolves {least / 1e6:.3f} ms"


def _cell(exam: Exam, bar: Kernel, cell: _Measured) -> Cell:
    state, note = _state(exam, cell)
    floor = _floor(exam, cell.recipe)
    return Cell(
        workload=cell.workload.name,
        regime=cell.regime,
        bar=bar.name,
        rounds=cell.rounds,
        baselines=exam.clean.get(cell.recipe.name, []),
        claimed_ns=cell.claimed_ns,
        baseline_claimed_ns=cell.baseline_claimed_ns,
        overhead_ns=exam.overhead_ns,
        host_bound=sorted(cell.host_bound),
        clocks_mhz=cell.clocks_mhz,
        replay_ns=cell.replays[0],
        baseline_replay_ns=cell.replays[1],
        floor_ns=floor.ns if floor else None,
        moving_ns=floor.moving_ns if floor else None,
        computing_ns=floor.computing_ns if floor else None,
        state=state,
        note=note,
    )
