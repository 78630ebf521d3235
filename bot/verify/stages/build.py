"""Stage 1, build: import the candidate in its sandbox. Nothing of it has run before.

On a GPU the file is also compiled in a sandbox of its own, beside the draws (inspect.py): registers, spills and
instructions are facts for the report, and one that says what it needs (`RESOURCES`) is refused where its machine code
takes more. In a quick exam, whose first call would wait for that, the refusal comes after the calls.
"""

from collections.abc import Mapping
from concurrent.futures import Future

from bot.errors import InfrastructureError
from bot.evaluation import ARCHITECTURES, Inspected, Inspection, Mode, Refusal, StageName
from bot.verify.exam import Exam, Outcome, refuse
from bot.verify.inspect import inspect

INSPECTED: frozenset[Mode] = frozenset({"quick", "full", "exam"})
"""A claim and a confirmation are of a file that has been looked at."""


def look(exam: Exam) -> None:
    """Begin to compile the file for this device, in a thread. A quick exam looks only at what says something."""
    mode, said = exam.job.mode, "RESOURCES" in exam.job.source
    if exam.gpu is None or mode not in INSPECTED or (mode == "quick" and not said):
        return
    architecture = next((a for a in ARCHITECTURES if a == f"{exam.gpu.capability}a"), None)
    if architecture is None:
        exam.code = Future()
        exam.code.set_result(f"machine code of {exam.gpu.capability} is not known here")
        return
    order = Inspection(
        contracts_dir=exam.job.contracts_dir,
        contract=exam.job.contract,
        candidate_name=exam.job.candidate_name,
        source=exam.job.source,
        architectures=[architecture],
        twice=mode != "quick",
        sandbox=exam.job.sandbox,
    )
    exam.code = exam.beside(lambda: _inspected(order, exam))


def _inspected(order: Inspection, exam: Exam) -> Inspected | str:
    """What was found, or why nothing was: nobody is refused for want of our tools."""
    try:
        return inspect(order, exam.loaded)
    except InfrastructureError as error:
        return str(error)


def build(exam: Exam) -> Mapping[StageName, Outcome]:
    """Load the candidate into the worker that has been waiting for it."""
    exam.progress("build", 0, exam.candidate.name)
    note, refusal = ("", None) if exam.job.mode == "quick" else looked_at(exam)
    if refusal is not None:
        return {"build": Outcome(0, refusal)}
    failed = exam.candidate_worker.load(exam.candidate.source)
    if failed is not None:
        return {"build": Outcome(0, refuse("build", "import", failed))}
    return {"build": Outcome(1, note=note)}


def looked_at(exam: Exam) -> tuple[str, Refusal | None]:
    """Wait for what was begun; a note on what was not seen, and why the file is refused."""
    if exam.code is None:
        return "", None
    with exam.spent.on("compile"):
        found = exam.code.result()
    if isinstance(found, str):
        return f"its machine code was not looked at: {found}", None
    exam.machine_code = found
    if not found.declares or not found.refusals:
        return "", None
    return "", Refusal(kind="build_failed", stage="build", where="RESOURCES", reason="; ".join(found.refusals))
