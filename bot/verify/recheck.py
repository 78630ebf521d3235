"""A second look at a bundle: draw the counterexample again from its salt, run the oracle, judge the stored bytes.

The candidate is not run and no device is needed. A program of its own: the bundle's folder on standard input.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from bot.contract.load import load_contract
from bot.contract.schema import ScalarInput
from bot.errors import UsageError
from bot.evaluation import Broken, Counterexample, Evaluation, Finding, Job, Rechecked, Refusal
from bot.verify.cases import Case, Inputs, Recipe, cell_recipe
from bot.verify.closer import decide_case
from bot.verify.compare import Setting
from bot.verify.conduct import open_exam
from bot.verify.counterexample import SMALLEST, array_of, input_tensors, load, same_bits
from bot.verify.diagnosis import SMALLEST_NOISE
from bot.verify.exam import Exam
from bot.verify.oracle import Expected, Tensor, expect
from bot.verify.pairs import against_bar, apart
from bot.verify.philox import Stream
from bot.verify.relations import whole_of
from bot.verify.stages.timing import timed_case, timed_stream


def recheck(bundle: Path) -> list[Finding]:
    """What agrees with the evaluation in a bundle and what does not.

    Raises:
        UsageError: the bundle's contract or evaluation cannot be read.
    """
    try:
        evaluation = Evaluation.model_validate_json((bundle / "evaluation.json").read_bytes())
        source = (bundle / "candidate.py").read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"{bundle.name} is not a bundle: {error}") from None
    run = next((run for run in reversed(evaluation.runs) if run.refusal is not None), None)
    stored = load(bundle)
    if run is None or run.refusal is None or stored is None:
        return [Finding(what="counterexample", agrees=True, detail="none to look at")]
    loaded = load_contract(bundle / "contracts", evaluation.contract)
    job = Job(
        contracts_dir=str(bundle / "contracts"),
        contract=evaluation.contract,
        candidate_name=evaluation.candidate_name,
        source=source,
        mode=run.mode,
        device="cuda" if run.environment.architecture.startswith("sm_") else "cpu",
    )
    exam = open_exam(job, loaded, None, lambda _: None, salt=bytes.fromhex(run.salt), prepared=run.prepared)
    look = _Look(exam, run.refusal, stored)
    return [*look.at_refused(), *look.at_smallest()]


@dataclass(frozen=True, slots=True)
class _Look:
    """An exam opened with the revealed salt, what it refused, and the tensors that show it."""

    exam: Exam
    refusal: Refusal
    stored: Mapping[str, Tensor]

    def at_refused(self) -> Iterator[Finding]:
        """Draw the refused question again and judge the stored bytes."""
        refusal, exam = self.refusal, self.exam
        if refusal.check is not None:
            if not 0 <= refusal.check < len(exam.checks):
                yield Finding(what="counterexample", agrees=False, detail="the plan has no such draw")
                return
            question = exam.question(refusal.check)
            noise = exam.noise_of(question.check)
            yield from self._inputs(question.case)
            yield from self._judged(question.case, question.expected, refusal.counterexample, noise)
        elif refusal.stage == "timing" and refusal.call:
            recipe = next(r for r in _scored(exam) if r.name == refusal.where)
            number, call = (int(part) for part in refusal.call.split("/"))
            case = timed_case(exam, recipe, number, call)
            yield from self._inputs(case)
            if "other." + next(iter(exam.contract.outputs)) in self.stored:
                level = exam.noise_level(refusal.where)
                found = against_bar(
                    exam.contract,
                    self._outputs("candidate"),
                    self._outputs("other"),
                    level,
                    where=case.where,
                    axes=case.axes,
                )
                yield _same(refusal.counterexample, found)
            else:
                noise = timed_stream(exam, recipe).child("oracle", refusal.call)
                yield from self._judged(case, exam.expected(case, noise), refusal.counterexample, noise)
        elif refusal.stage == "relations" and refusal.counterexample is not None:
            relation = next(r for r in exam.contract.relations if r.name == refusal.call)
            yield from self._inputs(whole_of(exam.contract, relation, exam.root.child("relation", relation.name)))
            answers = {n: (self.stored[f"candidate.{n}"], self.stored[f"other.{n}"]) for n in exam.contract.outputs}
            setting = Setting(relation.name, refusal.counterexample.axes, exam.contract.limits)
            level = exam.noise_of_regime(relation.regime)
            yield _same(refusal.counterexample, apart(exam.contract, answers, level, setting))

    def at_smallest(self) -> Iterator[Finding]:
        """The smallest counterexample stands by itself: its inputs are in the file."""
        if self.refusal.smallest is None or not any(name.startswith(f"{SMALLEST}.") for name in self.stored):
            return
        exam, wrong = self.exam, self.refusal.smallest.counterexample
        if self.refusal.check is None:
            return
        drawn = exam.question(self.refusal.check).case
        inputs: Inputs = {}
        for name, spec in exam.contract.inputs.items():
            held = self.stored.get(f"{SMALLEST}.input.{name}")
            inputs[name] = (
                drawn.inputs[name] if isinstance(spec, ScalarInput) else held if held is None else array_of(held)
            )
        case = replace(drawn, axes=wrong.axes, inputs=inputs)
        expected = expect(exam.contract, exam.oracle, case, exam.root.child(*SMALLEST_NOISE))
        yield from self._judged(case, expected, wrong, prefix=f"{SMALLEST}.")

    def _inputs(self, case: Case) -> Iterator[Finding]:
        for name, tensor in input_tensors(self.exam, case).items():
            agrees = name in self.stored and same_bits(self.stored[name], tensor)
            what = f"{name.removeprefix('input.')} drawn again"
            yield Finding(what=what, agrees=agrees, detail=f"{tuple(tensor.shape)}, bit for bit")

    def _outputs(self, whose: str, prefix: str = "") -> dict[str, Tensor]:
        return {name: self.stored[f"{prefix}{whose}.{name}"] for name in self.exam.contract.outputs}

    def _judged(
        self,
        case: Case,
        expected: Expected,
        wrong: Counterexample | None,
        noise: Stream | None = None,
        *,
        prefix: str = "",
    ) -> Iterator[Finding]:
        """`noise`: where more of it comes from, for what was looked at more closely."""
        for name, exact in expected.exact.items():
            held = self.stored.get(f"{prefix}oracle.{name}")
            agrees = held is not None and held.shape == exact.shape and _near(held, exact)
            yield Finding(what=f"{prefix}oracle.{name} computed again", agrees=agrees, detail="to 1e-9")
        if any(f"{prefix}candidate.{name}" not in self.stored for name in self.exam.contract.outputs):
            yield Finding(what=f"{prefix}candidate's bytes", agrees=False, detail="missing")
            return
        if wrong is not None and wrong.statistic == "leak":
            yield Finding(what="the leak", agrees=True, detail="needs the answer before the change: `reproduce` it")
            return
        outputs = self._outputs("candidate", prefix)
        found = self.exam.judge_outputs(case, expected, outputs)
        if noise is not None:
            _, found = decide_case(self.exam, case, expected, noise, outputs)
        yield _same(
            wrong,
            found.counterexample,
            "the smallest case's bytes judged again" if prefix else "the stored bytes judged again",
        )


def _scored(exam: Exam) -> Iterator[Recipe]:
    for workload, regime in exam.scored():
        yield cell_recipe(exam.contract, workload, regime)


def _near(one: Tensor, other: Tensor) -> bool:
    """Equal to 1e-9; infinities and NaN to themselves."""
    return bool(torch.isclose(one, other, rtol=1e-9, atol=0.0, equal_nan=True).all())


def _same(wanted: object, found: object, what: str = "the stored bytes judged again") -> Finding:
    return Finding(what=what, agrees=found == wanted, detail="error, limit, place and values")


def main() -> int:
    """0 when the bundle could be looked at, whatever was found; 2 when not."""
    try:
        message: Rechecked | Broken = Rechecked(findings=recheck(Path(sys.stdin.read())))
    except UsageError as error:
        message = Broken(cause="usage", text=str(error))
    sys.stdout.write(message.model_dump_json() + "\n")
    return 2 if isinstance(message, Broken) else 0


if __name__ == "__main__":
    sys.exit(main())
