"""A kernel is asked the exam's questions: one kind of call, and what each answer is held against.

Candidate, controls and faithful variants sit the same exam; who asks decides what an answer counts for.
"""

import math
from dataclasses import dataclass, field

from bot.contract.schema import Relation
from bot.evaluation import Counterexample
from bot.verify import relations
from bot.verify.calls import Answered, Failure, Worker
from bot.verify.cases import Case
from bot.verify.closer import decide
from bot.verify.compare import Judgement, Setting
from bot.verify.exam import Exam, Question, Turn, setting_of
from bot.verify.oracle import Tensor
from bot.verify.pairs import apart, leak
from bot.verify.philox import Stream


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer and what it amounts to. `leaked`: a change of inputs reached what it must not."""

    question: Question
    answer: Answered = field(repr=False)
    judgement: Judgement
    leaked: Counterexample | None = None

    @property
    def wrong(self) -> Counterexample | None:
        """Why the answer is wrong."""
        return self.judgement.counterexample or self.leaked

    @property
    def margin(self) -> float:
        """The largest error over its limit."""
        return max(self.judgement.margin, _over(self.leaked) if self.leaked else 0.0)


@dataclass
class Sitting:
    """One kernel in one worker. `stream`: where the poison and guards of its calls come from; `closely`: whether what
    is refused narrowly is looked at again."""

    exam: Exam
    worker: Worker
    stream: Stream
    closely: bool = True
    kept: dict[int, dict[str, Tensor]] = field(default_factory=dict)

    def ask(self, turn: Turn, seconds: float = math.inf) -> Reply | Failure:
        """Put one planned question."""
        exam, question = self.exam, self.exam.question(turn.index)
        with exam.spent.on("check"):
            answer = self.worker.run(question.case, self.stream.child(turn.index, str(turn.again)), seconds)
        if isinstance(answer, Failure):
            return answer
        question, judgement = decide(exam, turn.index, answer, closely=self.closely)
        if judgement.counterexample is None and answer.unwritten is not None:
            name, place = answer.unwritten
            return Failure("incorrect", f"left `{name}` unwritten at {list(place)}", alive=True)
        return Reply(question, answer, judgement, self._leak(turn.index, question, answer))

    def _leak(self, index: int, question: Question, answer: Answered) -> Counterexample | None:
        """Of a pair of questions, one with parts of the other changed, the second that is asked brings it out."""
        exam = self.exam
        bases = {check.base for check in exam.checks if check.base is not None}
        if question.check.base is None and index not in bases:
            return None
        self.kept.setdefault(index, exam.tensors(answer.outputs))
        pairs = [(c.base, i) for i, c in enumerate(exam.checks) if c.base is not None and index in {c.base, i}]
        for base, changed in pairs:
            if base in self.kept and changed in self.kept:
                found = self._between(base, changed)
                if found is not None:
                    return found
        return None

    def _between(self, base: int, changed: int) -> Counterexample | None:
        exam, one, two = self.exam, self.exam.question(base), self.exam.question(changed)
        before, after = self.kept[base], self.kept[changed]
        exact = {name: (held, two.expected.exact[name]) for name, held in one.expected.exact.items()}
        outputs = {name: (held, after[name]) for name, held in before.items()}
        return leak(exam.contract, exact, outputs, one.expected.units, setting_of(two.case))

    def relate(self, number: int) -> tuple[relations.Compared, Counterexample | None] | Failure:
        """Put the question of a relation in both ways."""
        exam, relation = self.exam, exam_relations(self.exam)[number]

        def call(case: Case, way: str) -> Answered | Failure:
            return self.worker.run(case, self.stream.child("relation", number, way))

        with exam.spent.on("check"):
            compared = relations.put_twice(exam.contract, relation, exam.root.child("relation", relation.name), call)
        if isinstance(compared, Failure):
            return compared
        setting = Setting(relation.name, compared.axes, exam.contract.limits)
        return compared, apart(exam.contract, compared.answers, exam.noise_of_regime(relation.regime), setting)


def exam_relations(exam: Exam) -> list[Relation]:
    """The relations of the contract on this device."""
    return [relation for relation in exam.contract.relations if exam.device in relation.device]


def _over(example: Counterexample) -> float:
    if example.error_units is None or not example.limit_units:
        return float("inf")
    return example.error_units / example.limit_units
