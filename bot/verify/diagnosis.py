"""After a refusal, for people: which probes the candidate fails too, the smallest input it gets wrong, and which parts
of the inputs it reads. Decides nothing, and ends in time whatever the candidate does.
"""

import math
import time
from dataclasses import replace

from bot.contract.schema import Workload
from bot.errors import DataError
from bot.evaluation import FailedProbe, Influence, Refusal
from bot.floor import least_work
from bot.verify.calls import Answered, Failure
from bot.verify.cases import Case, cell_recipe, make_case
from bot.verify.compare import Judgement
from bot.verify.counterexample import smallest_tensors
from bot.verify.exam import Exam, Turn
from bot.verify.influence import Outputs, exact_and_given, influence_map, reach
from bot.verify.oracle import Expected, device_of, expect
from bot.verify.philox import Stream
from bot.verify.shrink import shrink
from bot.verify.sitting import Reply, Sitting

PROBE_SECONDS = 2.5
MAP_SECONDS = 2.0
SHRINK_SECONDS = 2.5
"""Most time for each of the three, besides the call that runs when it is over."""
PATIENCE_SECONDS = 3.0
"""Most time for a call: a probe or a smaller input may make a candidate hang."""
SMALLEST_NOISE = ("shrink", "oracle")
"""Where the noise of the smallest case's units comes from."""


def diagnose(exam: Exam, sitting: Sitting, reply: Reply, refusal: Refusal) -> Refusal:
    """The refusal with all that could be found out in time."""
    probes, alive = _failed_probes(exam, sitting)
    refusal = refusal.model_copy(update={"diagnosis": probes})
    if alive:
        rows, where, alive = _influence(exam, sitting)
        refusal = refusal.model_copy(update={"influence": rows, "influence_where": where if rows else ""})
    if alive and device_of(reply.question.case).type == "cpu":
        refusal = _shrunk(exam, sitting, reply, refusal)
    return refusal


def _failed_probes(exam: Exam, sitting: Sitting) -> tuple[list[FailedProbe], bool]:
    """The probes it fails: they name the shortcut. And whether it still answers."""
    failed: list[FailedProbe] = []
    deadline, alive = time.monotonic() + PROBE_SECONDS, True
    for index in exam.indices("probes"):
        if time.monotonic() > deadline:
            break
        recipe, answer = exam.checks[index].recipe, sitting.ask(Turn(index), PATIENCE_SECONDS)
        if isinstance(answer, Failure):
            # Patience is shorter than what a call may take: a late answer need not be a wrong one.
            if answer.kind != "timed_out":
                failed.append(FailedProbe(name=recipe.name, breaks=recipe.breaks))
            alive = answer.alive
            if not alive:
                break
        elif answer.wrong is not None:
            margin = round(answer.margin, 2) if math.isfinite(answer.margin) else None
            failed.append(FailedProbe(name=recipe.name, breaks=recipe.breaks, margin=margin))
    # The plainest failures first: they say most about the shortcut.
    return sorted(failed, key=lambda probe: (-(probe.margin or math.inf), probe.name)), alive


def _influence(exam: Exam, sitting: Sitting) -> tuple[list[Influence], str, bool]:
    """How it answers to each input, on the anchor in the regime that tells most."""
    contract = exam.contract
    stream = exam.root.child("map")
    case = _telling(exam, stream)
    deadline, alive, calls = time.monotonic() + MAP_SECONDS, True, 0

    def answer(changed: Case) -> Answered | None:
        nonlocal alive, calls
        calls += 1
        if not alive or time.monotonic() > deadline:
            return None
        given = sitting.worker.run(changed, stream.child("call", calls), PATIENCE_SECONDS)
        if isinstance(given, Failure):
            alive = given.alive
            return None
        return given

    def both(changed: Case) -> tuple[Outputs, Outputs] | None:
        given = answer(changed)
        return None if given is None else exact_and_given(_exact(exam, changed), exam.tensors(given.outputs))

    first = answer(case)
    if first is None:
        return [], "", alive
    expected = exam.expected(case, stream.child("oracle"))
    before = exact_and_given(expected, exam.tensors(first.outputs))
    rows = influence_map(contract, case, expected.units, before, both, stream.child("change"))
    return rows, case.where, alive


def _exact(exam: Exam, case: Case) -> Expected:
    return expect(exam.contract, exam.oracle, case, exam.root.child("map", "oracle"), runs=0)


def _telling(exam: Exam, stream: Stream) -> Case:
    """A plain draw of the anchor in the regime that remembers most."""
    contract, found = exam.contract, list[tuple[int, Case]]()
    for regime in contract.regimes:
        recipe = cell_recipe(contract, _smallest(exam), regime)
        own = stream.child(regime)
        # Needles are for cells alone: what is changed here should be all that is unusual.
        case = replace(make_case(contract, replace(recipe, kind="hidden"), own, static=own), recipe=recipe)
        expected = exam.expected(case, stream.child("oracle"))
        heard = reach(contract, case, expected, lambda changed: _exact(exam, changed).exact, stream.child("reach"))
        found.append((heard, case))
    return max(found, key=lambda entry: entry[0])[1]


def _smallest(exam: Exam) -> Workload:
    """The anchor; of a GPU's workloads, whose anchor takes a second to compute, the one with the least data."""
    contract = exam.contract
    if exam.device == "cpu":
        return contract.anchor(exam.device)
    asked = [workload for workload in contract.workloads if exam.device in workload.device]
    return min(asked, key=lambda workload: least_work(contract, workload.axes).bytes)


def _shrunk(exam: Exam, sitting: Sitting, reply: Reply, refusal: Refusal) -> Refusal:
    """With the smallest input it gets wrong; its tensors go to those that are shown."""
    wrong = reply.judgement.counterexample
    if wrong is None:
        return refusal
    stream = exam.root.child("shrink")
    last: dict[int, Answered] = {}
    calls, alive = 0, True

    def ask(case: Case) -> Judgement | None:
        nonlocal calls, alive
        calls += 1
        answer = sitting.worker.run(case, stream.child(calls), PATIENCE_SECONDS) if alive else None
        if answer is None or isinstance(answer, Failure):
            alive = alive and answer is not None and answer.alive
            return None
        try:
            expected = exam.expected(case, stream.child("oracle", calls))
        except DataError:
            return None  # An oracle need not take every part of what it takes as a whole.
        judgement = exam.judge_outputs(case, expected, exam.tensors(answer.outputs))
        if judgement.counterexample is not None:
            last[id(case)] = answer
            kept.append(case)
        return judgement

    kept: list[Case] = []  # The cases stay alive, so that their identities stay theirs.
    found = shrink(exam.contract, reply.question.case, wrong, ask, time.monotonic() + SHRINK_SECONDS)
    if found is None:
        return refusal
    smallest, case = found
    # Judged once more with units that anybody can make again from the salt.
    expected = expect(exam.contract, exam.oracle, case, exam.root.child(*SMALLEST_NOISE))
    judgement = exam.judge_outputs(case, expected, exam.tensors(last[id(case)].outputs))
    if judgement.counterexample is not None:
        smallest = smallest.model_copy(update={"counterexample": judgement.counterexample})
        exam.shown |= smallest_tensors(exam, case, expected, last[id(case)])
    return refusal.model_copy(update={"smallest": smallest})
