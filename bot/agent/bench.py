"""Where the agent's wishes become effects: runs its tool calls in the workspace, has candidates examined and keeps the
record of the attempts. The agent proposes; what counts as accepted is decided here, from evaluations only.
"""

from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import TypeVar

from bot import digest
from bot.agent import tools
from bot.agent.feedback import feedback, timing
from bot.agent.journal import Examined, Journal, Result
from bot.agent.model import ToolCall, ToolResult
from bot.agent.task import AgentTask, Submission
from bot.agent.workspace import Workspace
from bot.errors import InfrastructureError, ModelError, UsageError
from bot.evaluation import Attempt, Evaluation, Mode
from bot.sanitize import plain_line, printable, redact
from bot.verdict import Kind, decide

Evaluate = Callable[[str, str, Mode], Evaluation]
"""Examines a source under a name, in a mode. Raises InfrastructureError."""

Watch = Callable[[str], None]
Clock = Callable[[], float]

ANSWER_LIMIT = 20_000
"""Characters of one tool result, about 5,000 tokens: every one is sent again with each later turn."""

CALLS_PER_TURN = 8
"""Budgets are checked between turns, so a turn has to be bounded as well."""

RETRIES = 2

T = TypeVar("T")


def retried(action: Callable[[], T]) -> T:
    """The result of an action that may fail for reasons of ours, tried up to three times.

    Raises:
        InfrastructureError, ModelError: the last failure, or the first one that trying again does not mend.
    """
    for _ in range(RETRIES):
        try:
            return action()
        except InfrastructureError:
            continue
        except ModelError as error:
            if not error.retryable:
                raise
    return action()


class Bench:
    """The tools of one run and what came of them."""

    def __init__(
        self, task: AgentTask, workspace: Workspace, evaluate: Evaluate, journal: Journal, watch: Watch, clock: Clock
    ) -> None:
        """Start without attempts."""
        self._task = task
        self._workspace = workspace
        self._evaluate = evaluate
        self._journal = journal
        self._watch = watch
        self._clock = clock
        self._known: dict[str, Attempt] = {}
        self.attempts: list[Attempt] = []
        self.feedback_seconds: list[float] = []
        self.submission: Submission | None = None

    def use_all(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Run the calls of a turn, up to a submission; a wrong call is answered, not raised.

        Raises:
            InfrastructureError: the verifier could not do its work, three times.
        """
        results: list[ToolResult] = []
        for place, call in enumerate(calls):
            if self.submission is None:
                results.append(self._use(call, place))
        return results

    def _use(self, call: ToolCall, place: int) -> ToolResult:
        started = self._clock()
        try:
            text, is_error = self._perform(call, place), False
        except UsageError as error:
            text, is_error = str(error), True
        result = ToolResult(call=call.id, text=_bounded(text), is_error=is_error)
        self._journal.write(Result(result=result, seconds=self._clock() - started))
        return result

    def _perform(self, call: ToolCall, place: int) -> str:
        if place >= CALLS_PER_TURN:
            raise UsageError(f"not run: at most {CALLS_PER_TURN} calls a turn")
        match tools.parse_call(call):
            case tools.Read(path=path, start=start):
                text = self._workspace.read(path)
                self._watch(f"reads {path}")
                return _page(text, start)
            case tools.Write(path=path, source=source):
                self._workspace.write(path, source)
                self._watch(f"writes {path}")
                return f"Wrote {len(source.splitlines())} lines to {path}."
            case tools.Check(path=path):
                return self._check(path)
            case tools.Time(path=path):
                return self._time(path)
            case tools.Note(note=note):
                lesson = " ".join(printable(redact(note)).split())
                self._workspace.note(lesson)
                self._watch(f"notes: {plain_line(lesson)}")
                return "Noted."
            case tools.Submit(path=path):
                return self._submit(path)

    def _check(self, path: str) -> str:
        source = self._workspace.kernel(path)
        # Asking again would be fishing for a lucky draw: once refused is refused.
        if known := self._known.get(_digest(source)):
            said = feedback(known.evaluation, self._task.contract)
            return f"This source was examined before, as attempt {known.number}.\n{said}"
        started = self._clock()
        evaluation = self._examine(source, path, "quick")
        self._record(source, path, evaluation)
        self.feedback_seconds.append(self._clock() - started)
        return feedback(evaluation, self._task.contract)

    def _time(self, path: str) -> str:
        source = self._workspace.kernel(path)
        self._accepted(source, path)
        self._watch(f"times {path}")
        evaluation = self._examine(source, path, "full")
        if evaluation.refusal is not None:
            self._record(source, path, evaluation)
        verdict = decide([evaluation])
        self._watch(f"timed {path}: {verdict.kind}")
        return timing(evaluation, verdict, self._task.contract)

    def _submit(self, path: str) -> str:
        source = self._workspace.kernel(path)
        attempt = self._accepted(source, path)
        self.submission = Submission(
            path=path,
            name=_name(path),
            source=source,
            candidate_digest=attempt.evaluation.candidate_digest,
            attempt=attempt.number,
        )
        self._watch(f"submits attempt {attempt.number}")
        return "Submitted."

    def _accepted(self, source: str, path: str) -> Attempt:
        attempt = self._known.get(_digest(source))
        if attempt is None:
            raise UsageError(f"{path}: not checked as it stands now; check it first")
        if attempt.evaluation.refusal is not None:
            raise UsageError(f"{path}: refused as attempt {attempt.number}; change it and check it again")
        return attempt

    def _record(self, source: str, path: str, evaluation: Evaluation) -> None:
        number = len(self.attempts) + 1
        self._workspace.keep(number, source)
        outcome = "accepted" if evaluation.refusal is None else evaluation.refusal.kind
        self._watch(f"attempt {number}, {path}: {outcome}")
        attempt = Attempt(number=number, evaluation=evaluation, claim=self._claim(source, path, evaluation))
        self.attempts.append(attempt)
        self._known[_digest(source)] = attempt
        self._journal.write(
            Examined(
                number=number,
                candidate=evaluation.candidate_digest,
                evaluation=evaluation.digest(),
                claim=attempt.claim.digest() if attempt.claim else None,
                outcome=outcome,
            )
        )

    def _claim(self, source: str, path: str, evaluation: Evaluation) -> Evaluation | None:
        # What does not build or end has no time to claim.
        if evaluation.refusal is None or evaluation.refusal.kind not in {"incorrect", "tampered"}:
            return None
        try:
            return self._evaluate(source, _name(path), "claim")
        except (InfrastructureError, UsageError) as error:
            # Only an ornament of the report: a refused kernel must not be able to end the run by it.
            self._watch(f"no claim to show: {plain_line(str(error))}")
            return None

    def _examine(self, source: str, path: str, mode: Mode) -> Evaluation:
        def once() -> Evaluation:
            try:
                evaluation = self._evaluate(source, _name(path), mode)
            except UsageError as error:
                # The job is ours; the model could do nothing about it.
                raise InfrastructureError(f"the verifier refuses the job: {error}") from error
            verdict = decide([evaluation])
            if verdict.kind is Kind.INFRASTRUCTURE:
                raise InfrastructureError("; ".join(verdict.reasons))
            return evaluation

        return retried(once)


def _digest(source: str) -> str:
    return digest.of_bytes(source.encode())


def _name(path: str) -> str:
    return PurePosixPath(path).stem


def _page(text: str, start: int) -> str:
    page = text[start : start + ANSWER_LIMIT - 100]
    end = start + len(page)
    return page if end >= len(text) else f"{page}\n… {len(text) - end} characters more: read with start={end}"


def _bounded(text: str) -> str:
    return text if len(text) <= ANSWER_LIMIT else f"{text[: ANSWER_LIMIT - 40]}\n… cut, {len(text)} characters"
