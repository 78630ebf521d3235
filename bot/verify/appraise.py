"""Appraise a contract by running it: does its oracle deserve trust, do its honest kernels pass, do its cheats fail.

Everything is found at once, each problem with the path by which its author finds it; a problem is a value.
"""

import importlib.util
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from bot.contract.appraisal import Checked, Order, Step, Trial
from bot.contract.load import LoadedContract
from bot.contract.schema import FLOATING, Contract, Control, TensorInput
from bot.errors import DataError, InfrastructureError
from bot.floor import least_work
from bot.verify.calls import Failure
from bot.verify.cases import Case
from bot.verify.compare import Judgement, Setting, judge, noise_level, rounded
from bot.verify.oracle import OracleFunction, Tensor, expect, load_oracle, tensor_of
from bot.verify.pairs import apart
from bot.verify.philox import Stream
from bot.verify.soundness import check_oracle
from bot.verify.trials import Answer, Drawn, Findings, Known, Place, Trials, described, draw_case, margin_of, places

Watch = Callable[[Step], None]

STRONG = 3.0
"""A control must miss some limit by this factor in a place that its `fails` names, or the exam rests on luck."""


@dataclass
class Appraisal:
    """What the checks of one contract share."""

    loaded: LoadedContract
    order: Order
    root: Stream
    trials: Trials
    found: Findings = field(default_factory=Findings)
    faithful: list[Trial] = field(default_factory=list)
    controls: list[Trial] = field(default_factory=list)

    @property
    def contract(self) -> Contract:
        """The contract, parsed."""
        return self.loaded.contract


def appraise(loaded: LoadedContract, order: Order, salt: str, watch: Watch) -> Checked:
    """All that is wrong with a contract whose file is consistent.

    Raises:
        InfrastructureError: its kernels could not be run at all.
    """
    begun = time.monotonic()
    root = Stream.from_salt(bytes.fromhex(salt), loaded.digest, "appraisal")
    cases: list[Drawn] = []
    with Trials(loaded, order.sandbox, root.child("trials")) as trials:
        appraisal = Appraisal(loaded, order, root, trials)
        _static(appraisal)
        try:
            oracle = load_oracle(loaded.folder)
        except DataError as error:
            appraisal.found.add("oracle.py", f"does not load: {error.problems[0].reason}")
        else:
            cases = draw_all(appraisal.loaded, order, oracle, root.child("draw", 0), appraisal.found)
            # Answers held against an oracle that is wrong somewhere would only show that.
            if cases and not appraisal.found.about("oracle.py"):
                _answers(appraisal, oracle, cases, watch)
    return Checked(
        problems=appraisal.found.problems(),
        cases=len(cases),
        faithful=appraisal.faithful,
        controls=appraisal.controls,
        seconds=round(time.monotonic() - begun, 1),
        salt=salt,
    )


def _static(appraisal: Appraisal) -> None:
    """What follows from the file, but is about what an exam needs rather than about the file."""
    contract, found = appraisal.contract, appraisal.found
    if not any(appraisal.order.device in workload.device for workload in contract.workloads):
        found.add("workloads", f"none is for {appraisal.order.device}: nothing can be tried there")
    if not contract.faithful:
        found.add("faithful", "no honest variant: nothing shows that an honest kernel can pass")
    if not contract.controls:
        found.add("controls", "no deliberately wrong kernel: nothing shows that a cheat cannot pass")
    for index, workload in enumerate(contract.workloads):
        work = least_work(contract, workload.axes)
        if workload.scored and not (work.bytes > 0 and (contract.work is None or work.operations > 0)):
            found.add(f"workloads[{index}]", "is scored, but its least bytes or operations are zero: it has no floor")


def draw_all(
    loaded: LoadedContract, order: Order, oracle: OracleFunction, stream: Stream, found: Findings
) -> list[Drawn]:
    """One case of every place with its expected values; what cannot be drawn or computed is a finding instead."""
    drawn = []
    for number, place in enumerate(places(loaded.contract, order.device, stream)):
        own = stream.child("case", place.recipe.name, number)
        try:
            case = draw_case(loaded.contract, place, own)
        except Exception as error:  # noqa: BLE001 - a distribution may not fit its tensor in any way
            found.add(place.path, f"cannot be drawn: {type(error).__name__}: {error}", place.recipe.name)
            continue
        _legal(loaded.contract, place, case, found)
        try:
            drawn.append(Drawn(place, case, expect(loaded.contract, oracle, case, own.child("oracle"))))
        except InfrastructureError:
            raise
        except DataError as error:
            for problem in error.problems:
                reason = problem.reason.replace(f" ({case.where})", "")
                about = "" if problem.path == case.where else f"`{problem.path}` "
                found.add("oracle.py", about + reason, case.where, alike=about or reason.partition(":")[0])
        except Exception as error:  # noqa: BLE001 - whatever the author's file returned is the answer
            found.add("oracle.py", f"its outputs cannot be used: {type(error).__name__}: {error}", case.where)
    return drawn


def _legal(contract: Contract, place: Place, case: Case, found: Findings) -> None:
    for name, spec in contract.inputs.items():
        held = case.inputs[name]
        if not isinstance(spec, TensorInput) or held is None:
            continue
        tensor = tensor_of(held, spec.dtype)  # type: ignore[arg-type] # a tensor input that is there
        bound = contract.bound(spec, case.axes)
        if bound is not None and not bool(((tensor >= -1) & (tensor < bound)).all()):
            found.add(_origin(contract, place, name), f"draws integers outside -1..{bound - 1}", case.where)
        if spec.dtype in FLOATING:
            values = tensor.double() if spec.dtype == "float8_e4m3fn" else tensor
            legal = ~torch.isnan(values) if spec.infinite else torch.isfinite(values)
            if not bool(legal.all()):
                found.add(
                    _origin(contract, place, name), f"draws values that are not finite in {spec.dtype}", case.where
                )


def _origin(contract: Contract, place: Place, name: str) -> str:
    """Where the distribution of an input is declared that holds at a place."""
    probe = next((p for p in contract.probes if place.recipe.kind == "probe" and p.name == place.recipe.name), None)
    if probe is not None and name in probe.draws:
        return f"{place.path}.draws.{name}"
    regime = probe.regime if probe is not None else place.recipe.name.rpartition("/")[2]
    family = contract.regimes.get(regime)
    return f"regimes.{regime}.draws.{name}" if family is not None and name in family.draws else f"draws.{name}"


def _answers(appraisal: Appraisal, oracle: OracleFunction, cases: Sequence[Drawn], watch: Watch) -> None:
    """Judge the oracle, empty answers, and the contract's own kernels on the drawn cases."""
    contract, found = appraisal.contract, appraisal.found
    files = [*contract.faithful, *(control.file for control in contract.controls)]
    watch(Step(done=0, total=len(files) + 1, text="oracle"))
    check_oracle(contract, oracle, cases, found)
    for drawn in cases:
        _empty_answers(contract, drawn, found)
    _baselines(appraisal, cases)
    honest: dict[str, list[Answer]] = {}
    for number, file in enumerate(contract.faithful, start=1):
        watch(Step(done=number, total=len(files) + 1, text=file))
        honest[file] = appraisal.trials.ask(file, cases)
    _judge_faithful(appraisal, honest)
    _relations(appraisal, cases)
    usual = _usual(honest)
    for index, control in enumerate(contract.controls):
        watch(Step(done=1 + len(honest) + index, total=len(files) + 1, text=control.file))
        asked = [drawn for drawn in cases if set(drawn.place.names) & set(control.fails)]
        _judge_control(appraisal, index, appraisal.trials.ask(control.file, asked, _seen_by(control, asked)), usual)


def _empty_answers(contract: Contract, drawn: Drawn, found: Findings) -> None:
    """The exact value, rounded, passes; in a cell, an output of zeros or of one constant does not."""
    exact = {
        name: rounded(spec, drawn.expected.exact[name], contract.shape(spec, drawn.case.axes))
        for name, spec in contract.outputs.items()
    }
    judged = judge(contract, drawn.expected, exact, drawn.setting, ledger=False)
    if judged.counterexample is not None:
        path = f"limits.{judged.counterexample.output}"
        found.add(path, f"refuses the oracle's own value, rounded: {described(judged)}", drawn.case.where, alike=path)
    if drawn.place.recipe.kind != "cell":
        return
    for name, value in exact.items():
        finite = value[torch.isfinite(value)]
        if not finite.numel():
            found.add(drawn.place.path, f"has no finite value of `{name}`", drawn.case.where)
            continue
        constants: Mapping[str, Tensor] = {
            "zeros": torch.zeros_like(value),
            "one constant": torch.full_like(value, float(finite.double().mean())),
        }
        if contract.outputs[name].compare == "set_at_cut":
            constants = {"the first ids": torch.arange(value.shape[-1], dtype=value.dtype).expand_as(value)}
        for what, tensor in constants.items():
            judged = judge(contract, drawn.expected, {**exact, name: tensor}, drawn.setting, ledger=False)
            if judged.counterexample is None:
                found.add(drawn.place.path, f"an output `{name}` of {what} passes", drawn.case.where)


def _baselines(appraisal: Appraisal, cases: Sequence[Drawn]) -> None:
    """A baseline that is importable here answers a call; how accurate it is, each exam finds out."""
    for index, baseline in enumerate(appraisal.contract.baselines):
        needs = baseline.requires
        if appraisal.order.device not in baseline.device or (needs and not importlib.util.find_spec(needs.module)):
            continue
        for drawn, answer in appraisal.trials.ask(baseline.file, cases[:1]):
            if isinstance(answer, Failure):
                appraisal.found.add(f"baselines[{index}].file", f"does not run: {answer.text}", drawn.case.where)


def _relations(appraisal: Appraisal, cases: Sequence[Drawn]) -> None:
    """Every honest variant answers a relation's question alike in both ways."""
    contract, found = appraisal.contract, appraisal.found
    for index, relation in enumerate(contract.relations):
        if appraisal.order.device not in relation.device:
            continue
        regime = [d.expected for d in cases if d.case.where.rpartition("/")[2] == relation.regime]
        levels = [noise_level(contract, expected) for expected in regime]
        level = {name: max((one[name] for one in levels), default=0.0) for name in contract.outputs}
        for file in contract.faithful:
            stream = appraisal.root.child("relation", relation.name)
            answers = appraisal.trials.relate(file, relation, stream)
            if isinstance(answers, Failure):
                found.add(f"relations[{index}]", f"{file} does not answer it: {answers.text}")
                continue
            setting = Setting(relation.name, answers.axes, contract.limits)
            example = apart(contract, answers.answers, level, setting)
            if example is not None:
                reason = (
                    f"{file} differs by {example.error_units:.3g} units, limit {example.limit_units:g}"
                    if example.error_units and example.limit_units
                    else f"{file} gives another class of value"
                )
                found.add(f"relations[{index}]", f"{reason}, in {example.output}{example.index}", alike=file)


def _judge_faithful(appraisal: Appraisal, honest: Mapping[str, Sequence[Answer]]) -> None:
    """Every honest variant passes everywhere; where all of them fail alike, the oracle or the probe is to blame."""
    refusals: dict[str, list[tuple[str, Drawn, Judgement]]] = {}
    for index, (file, answers) in enumerate(honest.items()):
        worst, where = 0.0, ""
        for drawn, answer in answers:
            if isinstance(answer, Failure):
                appraisal.found.add(f"faithful[{index}]", f"does not run: {answer.text}", drawn.case.where)
                continue
            if not (answer.margin <= worst):
                worst, where = answer.margin, drawn.case.where
            if answer.counterexample is not None:
                refusals.setdefault(drawn.case.where, []).append((file, drawn, answer))
        appraisal.faithful.append(Trial(file=file, where=where, margin=finite(worst)))
    files = list(honest)
    for refused in refusals.values():
        for file, drawn, answer in refused:
            path, blame = drawn.place.path, f"{file} fails it"
            if drawn.place.recipe.kind != "probe":
                path, blame = f"faithful[{files.index(file)}]", "is refused"
                if {name for name, _, _ in refused} == set(files):
                    path, blame = "oracle.py", f"disagrees with every faithful variant, {file} among them"
            alike = file if path != "oracle.py" else path
            appraisal.found.add(path, f"{blame}: {described(answer)}", drawn.case.where, alike=alike)


Usual = Mapping[tuple[int, str], float]
"""The largest margin of an honest variant on a case (by its identity) and output."""


def _usual(honest: Mapping[str, Sequence[Answer]]) -> Usual:
    usual: dict[tuple[int, str], float] = {}
    for answers in honest.values():
        for drawn, answer in answers:
            for error in answer.errors if isinstance(answer, Judgement) else ():
                key = (id(drawn), error.output)
                usual[key] = max(usual.get(key, 0.0), margin_of(error, drawn.case.recipe.limits[error.output]))
    return usual


def _seen_by(control: Control, asked: Sequence[Drawn]) -> Known:
    """A case teaches nothing when every place that shares its sizes has seen the control miss by far. Those places go
    together: a control that keeps its first answer is wrong only from the second call of a size on."""
    together: dict[str, set[str]] = {}
    for drawn in asked:
        names = set(drawn.place.names) & set(control.fails)
        together.setdefault(str(drawn.place.recipe.axes), set()).update(names)

    def known(drawn: Drawn, answers: Sequence[Answer]) -> bool:
        seen = {
            name
            for other, answer in answers
            if isinstance(answer, Judgement) and not (answer.margin < STRONG)
            for name in other.place.names
        }
        return together[str(drawn.place.recipe.axes)] <= seen

    return known


def _judge_control(appraisal: Appraisal, index: int, answers: Sequence[Answer], usual: Usual) -> None:
    """A control is refused wherever its `fails` says, in one of those places by far."""
    control, found, path = appraisal.contract.controls[index], appraisal.found, f"controls[{index}]"
    best: dict[str, tuple[float, Drawn, Judgement]] = {}
    for drawn, answer in answers:
        if isinstance(answer, Failure):
            reason = f"does not run: {answer.text}; a control must be wrong, not broken"
            found.add(f"{path}.file", reason, drawn.case.where)
            return
        for name in (name for name in control.fails if name in drawn.place.names):
            if name not in best or not (answer.margin <= best[name][0]):
                best[name] = (answer.margin, drawn, answer)
    for name, (_, drawn, answer) in best.items():
        if answer.counterexample is None:
            _passed(appraisal, index, name, drawn, answer, usual)
    if not best:
        found.add(f"{path}.fails", f"none of its places is drawn on {appraisal.order.device}")
        return
    margin, drawn, _ = max(best.values(), key=lambda entry: entry[0])
    appraisal.controls.append(Trial(file=control.file, where=drawn.case.where, margin=finite(margin)))
    if 1.0 < margin < STRONG:
        reason = (
            f"{control.file} misses by {margin:.2g} times a limit at best: a stronger probe is needed, {STRONG:g} times"
        )
        found.add(f"{path}.fails", reason, drawn.case.where)


def _passed(appraisal: Appraisal, index: int, name: str, drawn: Drawn, answer: Judgement, usual: Usual) -> None:
    """Who is to blame where a control passes: a limit, when it errs far more than honest kernels do; else the probe."""
    file, limits = appraisal.contract.controls[index].file, drawn.case.recipe.limits
    ratios = {
        error.output: margin_of(error, limits[error.output]) / usual[id(drawn), error.output]
        for error in answer.errors
        if usual.get((id(drawn), error.output), 0.0) > 0
    }
    loose = max(ratios, key=ratios.__getitem__, default="")
    if ratios.get(loose, 0.0) >= STRONG:
        reason = f"looser than {file}, whose error is {ratios[loose]:.1f} times that of an honest kernel"
        appraisal.found.add(f"limits.{loose}", reason, drawn.case.where, alike=file)
    else:
        reason = (
            f"{file} passes in {name} ({answer.margin:.2g} of the limit): weak, or not a place that sees this cheat"
        )
        appraisal.found.add(f"controls[{index}].fails", reason)


def finite(margin: float) -> float | None:
    """A margin for the wire; None for another class of value."""
    return round(margin, 4) if math.isfinite(margin) else None
