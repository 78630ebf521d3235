"""Hold many exams of one contract with no candidate: does each catch every control, in all its hidden forms, and accept
every faithful variant? One exam meets a secret quarter of the hidden forms, a soak all of them.
"""

import hashlib
import time
from collections.abc import Callable, Iterator

from bot import digest
from bot.contract.appraisal import Missed, Order, Soaked, Step, Tally
from bot.contract.load import LoadedContract
from bot.evaluation import ControlResult, Grade, Job
from bot.verify.conduct import open_exam
from bot.verify.stages.controls import grade
from bot.verify.variants import draw_variants

Watch = Callable[[Step], None]


def soak(loaded: LoadedContract, order: Order, salt: str, watch: Watch) -> Soaked:
    """`order.draws` exams, each with a salt of its own.

    Raises:
        DataError: a kernel of the contract's does not run.
        InfrastructureError: they could not be run at all.
    """
    begun = time.monotonic()
    tallies: dict[tuple[str, str], Tally] = {}
    for number in range(order.draws):
        watch(Step(done=number, total=order.draws, text=f"exam {number + 1} of {order.draws}"))
        own = hashlib.sha256(f"{salt}/{number}".encode()).hexdigest()
        for kind, result in _results(_graded(loaded, order, bytes.fromhex(own))):
            key = (kind, result.file)
            tallies[key] = counted(tallies.get(key), kind, result, own)
    return Soaked(
        judge_digest=digest.of_judge(),
        contract_digest=loaded.digest,
        exams=order.draws,
        tallies=[tallies[key] for key in sorted(tallies)],
        seconds=round(time.monotonic() - begun, 1),
        salts=[salt],
    )


def _graded(loaded: LoadedContract, order: Order, salt: bytes) -> Grade:
    job = Job(
        contracts_dir=order.contracts_dir,
        contract=order.contract,
        candidate_name="none",
        source="",
        mode="exam",
        device=order.device,
        sandbox=order.sandbox,
    )
    exam = open_exam(job, loaded, None, lambda _: None, salt)
    exam.variants = draw_variants(loaded, exam.root.child("variants"), 1.0)
    try:
        return grade(exam)
    finally:
        exam.close()


def _results(graded: Grade) -> Iterator[tuple[str, ControlResult]]:
    yield from (("plain", result) for result in graded.controls)
    yield from (("faithful", result) for result in graded.faithful)
    yield from (("gated" if result.severity is None else "graded", result) for result in graded.variants)


def counted(known: Tally | None, kind: str, result: ControlResult, salt: str) -> Tally:
    """A tally with one more result. `weakest`: of a caught control its least margin, of an accepted kernel the largest
    share of a limit."""
    tally = known or Tally(kernel=result.file, kind=kind, asked=0, refused=0)
    weakest = tally.weakest
    wanted = result.refused != (kind == "faithful")
    if wanted and result.margin is not None:
        least = min if result.refused else max
        weakest = result.margin if weakest is None else least(weakest, result.margin)
    missed = list(tally.missed)
    if not wanted:
        missed.append(
            Missed(
                salt=salt, variant=result.variant, severity=result.severity, where=result.where, margin=result.margin
            )
        )
    return tally.model_copy(
        update={
            "asked": tally.asked + 1,
            "refused": tally.refused + result.refused,
            "weakest": weakest,
            "missed": missed,
        }
    )
