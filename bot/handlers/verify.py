"""`proctor verify`: one kernel file, examined on this machine."""

from pathlib import Path

from bot.evaluation import Evaluation, Job
from bot.launch import Launcher, Watch
from bot.verdict import Kind, Verdict, decide


def exit_code(verdict: Verdict) -> int:
    """0 for a correct kernel, 1 for a refusal, 2 when the exam could not be held (design.md, Verdicts)."""
    if verdict.kind == Kind.INFRASTRUCTURE:
        return 2
    return 0 if verdict.accepted else 1


def verify(job: Job, launcher: Launcher, watch: Watch, json_out: Path | None) -> tuple[Evaluation, Verdict]:
    """Examine, keep the facts if asked to, and decide."""
    evaluation = launcher(job, watch)
    if json_out is not None:
        json_out.parent.mkdir(parents=True, exist_ok=True)
        json_out.write_text(evaluation.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return evaluation, decide([evaluation])
