"""Stage 1, build: import the candidate in its sandbox. Nothing of it has run before."""

from collections.abc import Mapping

from bot.evaluation import StageName
from bot.verify.exam import Exam, Outcome, refuse


def build(exam: Exam) -> Mapping[StageName, Outcome]:
    """Load the candidate into the worker that has been waiting for it."""
    exam.progress("build", 0, exam.candidate.name)
    failed = exam.candidate_worker.load(exam.candidate.source)
    if failed is not None:
        return {"build": Outcome(0, refuse("build", "import", failed))}
    return {"build": Outcome(1)}
