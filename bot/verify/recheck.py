"""A second look at a bundle: draw the counterexample again from its salt, run the oracle, judge the stored bytes.

The candidate is not run and no device is needed. A program of its own: the bundle's folder on standard input.
"""

import sys
from pathlib import Path

from bot.contract.load import load_contract
from bot.errors import UsageError
from bot.evaluation import Broken, Evaluation, Finding, Job, Rechecked, Refusal
from bot.verify.compare import Setting, judge
from bot.verify.conduct import open_exam
from bot.verify.counterexample import input_tensors, load, same_bits


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
    refusal, stored = evaluation.refusal, load(bundle)
    if refusal is None or refusal.check is None or stored is None:
        return [Finding(what="counterexample", agrees=True, detail="none to look at")]
    loaded = load_contract(bundle / "contracts", evaluation.contract)
    job = Job(
        contracts_dir=str(bundle / "contracts"),
        contract=evaluation.contract,
        candidate_name=evaluation.candidate_name,
        source=source,
        mode=evaluation.mode,
    )
    exam = open_exam(job, loaded, None, lambda _: None, salt=bytes.fromhex(evaluation.salt))
    if not 0 <= refusal.check < len(exam.checks):
        return [Finding(what="counterexample", agrees=False, detail="the plan has no such draw")]
    question = exam.question(refusal.check)
    findings = []
    for name, tensor in input_tensors(exam, question.case).items():
        agrees = name in stored and same_bits(stored[name], tensor)
        findings.append(
            Finding(
                what=f"{name.removeprefix('input.')} drawn again",
                agrees=agrees,
                detail=f"{tuple(tensor.shape)}, bit for bit",
            )
        )
    for name, exact in question.expected.exact.items():
        held = stored.get(f"oracle.{name}")
        agrees = (
            held is not None and held.shape == exact.shape and bool(((held - exact).abs() <= 1e-9 * exact.abs()).all())
        )
        findings.append(Finding(what=f"oracle.{name} computed again", agrees=agrees, detail="to 1e-9"))
    outputs = {name: stored[f"candidate.{name}"] for name in exam.contract.outputs if f"candidate.{name}" in stored}
    if set(outputs) != set(exam.contract.outputs):
        return [*findings, Finding(what="the candidate's bytes", agrees=False, detail="missing")]
    setting = Setting(question.case.where, question.case.axes, question.case.recipe.limits)
    return [*findings, _same_refusal(refusal, judge(exam.contract, question.expected, outputs, setting).counterexample)]


def _same_refusal(refusal: Refusal, found: object) -> Finding:
    agrees = found == refusal.counterexample
    return Finding(what="the stored bytes judged again", agrees=agrees, detail="error, limit, place and values")


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
