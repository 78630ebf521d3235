"""What the stages of one exam share: the job, the plan, draws with their expected values, the evidence so far.

Expected values stay here, in the verifier's private memory; controls and baselines are asked the same questions.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import torch

from bot import digest
from bot.contract.load import LoadedContract
from bot.contract.schema import Baseline, Contract, Device, Role, Workload
from bot.errors import InfrastructureError
from bot.evaluation import (
    Accuracy,
    BaselineState,
    BaselineTime,
    Cell,
    Commitment,
    Counterexample,
    Gpu,
    Grade,
    Inspected,
    Job,
    Progress,
    Refusal,
    StageName,
    StageRecord,
)
from bot.verify.calls import Allowance, Answered, Failure, Worker
from bot.verify.cases import HOST, Case, Drawer, Held, Recipe, make_case
from bot.verify.compare import Judgement, Setting, judge, noise_level
from bot.verify.influence import perturbed
from bot.verify.oracle import NOISY_RUNS, Expected, OracleFunction, Tensor, device_of, expect, tensor_of
from bot.verify.philox import Stream
from bot.verify.spent import Spent
from bot.verify.start import start_worker
from bot.verify.variants import Variant

if TYPE_CHECKING:
    from bot.verify.sitting import Sitting

LARGE_RUNS = 3
"""Noisy runs of a draw on a GPU at first; what they refuse is judged again with all (closer.py)."""
HEAVY = 1 << 17
"""Elements of an input from which a GPU computes the oracle faster than one core: launches take 10 µs each."""
TIMED_AHEAD = 2
"""Rounds whose workers come up ahead: as many as an exam has; a rerun may have more."""
T = TypeVar("T")
Watch = Callable[[Progress | Commitment], None]


@dataclass(frozen=True, slots=True)
class Check:
    """One planned draw: fixed by name before candidate code is loaded; the inputs come from the salt. `base`: the draw
    of which it changes parts, by number."""

    stage: StageName
    recipe: Recipe
    number: int
    lengths: Literal["same", "other"] = "same"
    base: int | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A check with its inputs and what they must give."""

    check: Check
    case: Case
    expected: Expected


@dataclass(frozen=True, slots=True)
class Turn:
    """One call of the exam's order. `again`: the same question a second time."""

    index: int
    again: bool = False


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel file to run: the candidate, a baseline, a control."""

    name: str
    source: str
    role: Role | None = None


@dataclass(frozen=True, slots=True)
class Ahead:
    """A worker that takes in one of our kernels while the verifier does something else."""

    worker: Worker
    loaded: Future[Failure | None]


@dataclass(frozen=True, slots=True)
class Timers:
    """Fresh workers for one round of timing, in the order in which they were started."""

    candidate: Worker
    bar: Ahead
    first: Literal["candidate", "baseline"]


@dataclass
class Exam:
    """What all stages share. Mutable: it gathers evidence."""

    job: Job
    loaded: LoadedContract
    oracle: OracleFunction
    salt: bytes
    watch: Watch
    waiting: Worker | None
    drawer: Drawer = HOST
    checks: list[Check] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    plan: dict[StageName, int] = field(default_factory=dict)
    questions: dict[int, Question] = field(default_factory=dict)
    sharper: dict[tuple[int, int], Question] = field(default_factory=dict)
    records: list[StageRecord] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    baselines: list[BaselineState] = field(default_factory=list)
    accuracy: dict[tuple[str, str], Accuracy] = field(default_factory=dict)
    grade: Grade | None = None
    gpu: Gpu | None = None
    checked_timed_calls: int = 0
    baselines_planned: list[tuple[Kernel, Baseline | None]] = field(default_factory=list)
    bar: Kernel | None = None
    overhead_ns: int = 0
    flush_ns: int = 0
    prepared: bool = False
    noisy_runs: int = NOISY_RUNS
    allowance: Allowance = field(default_factory=Allowance)
    spent: Spent = field(default_factory=Spent)
    clean: dict[str, list[BaselineTime]] = field(default_factory=dict)
    shown: dict[str, Tensor] = field(default_factory=dict)
    pool: list[Worker] = field(default_factory=list)
    houses: list[Worker] = field(default_factory=list)
    screened: dict[str, Ahead] = field(default_factory=dict)
    timers: list[Timers] = field(default_factory=list)
    _threads: ThreadPoolExecutor = field(default_factory=ThreadPoolExecutor)
    _own_thread: ThreadPoolExecutor = field(default_factory=partial(ThreadPoolExecutor, 1))
    _beside: list[Future[Any]] = field(default_factory=list)
    variants: list[Variant] = field(default_factory=list)
    sitting: "Sitting | None" = None
    code: Future[Inspected | str] | None = None
    machine_code: Inspected | None = None

    @property
    def contract(self) -> Contract:
        """The contract, parsed."""
        return self.loaded.contract

    @property
    def device(self) -> Device:
        """The device the exam runs on."""
        return self.job.device

    @property
    def root(self) -> Stream:
        """All draws of this exam come from here."""
        candidate = "any" if self.prepared else digest.of_bytes(self.job.source.encode())
        shard = str(self.job.shard.number if self.job.shard else 0)
        return Stream.from_salt(self.salt, candidate, self.loaded.digest, self.job.mode, shard)

    @property
    def candidate(self) -> Kernel:
        """The kernel under examination."""
        return Kernel(self.job.candidate_name, self.job.source)

    @property
    def workloads(self) -> list[Workload]:
        """Those whose cells this exam holds: all of its device, the one asked for, or its shard's part. The scored ones
        are dealt out first, so that each shard has some."""
        job = self.job
        here = [w for w in self.contract.workloads if self.device in w.device and job.workload in (None, w.name)]
        if job.shard is None:
            return here
        dealt = sorted(here, key=lambda w: not w.scored)[job.shard.number - 1 :: job.shard.of]
        return [w for w in here if w in dealt]

    def scored(self) -> list[tuple[Workload, str]]:
        """The scored cells of this exam."""
        return [(w, r) for w in self.workloads if w.scored for r in self.contract.regimes]

    @property
    def candidate_worker(self) -> Worker:
        """The worker that holds the candidate, started before anything of it was known here."""
        if self.waiting is None:
            raise InfrastructureError("this exam is looked at again, not held: it has no worker")
        return self.waiting

    def planned(self, stage: StageName) -> int:
        """How many checks a stage has; 0 when the mode leaves it out."""
        return self.plan.get(stage, 0)

    def indices(self, *stages: StageName) -> list[int]:
        """The planned draws of these stages."""
        return [i for i, check in enumerate(self.checks) if check.stage in stages]

    def prewarm(self, count: int, *, houses: int) -> None:
        """Start workers that will be needed, in the order they will be asked for: they import torch while draws and
        expected values are computed. `houses`: so many that fork a child for each kernel of ours."""
        self.pool += [self.start_worker() for _ in range(count)]
        self.houses += [self.start_worker(fork=True) for _ in range(houses)]

    def screen_ahead(self, kernels: Sequence[Kernel]) -> None:
        """Start the baselines' workers, which take in their kernels while draws and expected values are computed."""
        self.screened = {kernel.name: self.ahead(kernel) for kernel in kernels}

    def time_ahead(self, rounds: int) -> None:
        """Start the workers of the first rounds, where they take long to come up: on a GPU seconds, and more to import
        a library; each holds a gigabyte. Which of a pair is first alternates from a secret start: a confirmation has
        one round."""
        self.timers = [self.start_timers(number) for number in range(min(rounds, TIMED_AHEAD))]

    def start_timers(self, number: int) -> Timers:
        """The workers of a round, both new."""
        assert self.bar is not None  # noqa: S101 - who times has one
        start = 0 if self.job.mode == "claim" else int(self.root.child("timing", "start").below(2)[0])
        if (start + number) % 2 == 0:
            candidate = self._fresh()
            return Timers(candidate, self.ahead(self.bar), "candidate")
        bar = self.ahead(self.bar)
        return Timers(self._fresh(), bar, "baseline")

    def _fresh(self) -> Worker:
        """A worker for the candidate. Nothing has run in the one that waits in a claim: it is as fresh as any."""
        return self.candidate_worker if self.job.mode == "claim" else self.worker()

    def beside(self, work: Callable[[], T]) -> Future[T]:
        """Do something of ours in a thread; nothing is timed before it has ended."""
        future = self._own_thread.submit(work)
        self._beside.append(future)
        return future

    def ahead(self, kernel: Kernel) -> Ahead:
        """A worker that takes in a baseline by itself."""
        worker = self.baseline_worker(kernel)
        return Ahead(worker, self._threads.submit(worker.load, kernel.source))

    def settle(self) -> None:
        """Wait until every worker is up, and stop it: nothing of ours or theirs may run beside a timed call."""
        aheads = [*self.screened.values(), *(pair.bar for pair in self.timers)]
        candidates = [pair.candidate for pair in self.timers]
        with self.spent.on("start"):
            wait([*self._beside, *(one.loaded for one in aheads)])
            own = (self.waiting, *self.pool, *self.houses, *candidates)
            for worker in filter(None, (*own, *(one.worker for one in aheads))):
                worker.ready()
                worker.stop()

    def worker(self) -> Worker:
        """A worker in which nothing has run."""
        return self.pool.pop(0) if self.pool else self.start_worker()

    def baseline_worker(self, kernel: Kernel) -> Worker:
        """A worker for a baseline. One of the contract's sees the package that it requires, and on a GPU finds what its
        compilers made before: to tune themselves anew takes some of them minutes."""
        declared = next((baseline for known, baseline in self.baselines_planned if known == kernel), None)
        requires = None if declared is None else declared.requires
        if declared is None or (self.device == "cpu" and requires is None):
            return self.worker()
        packages = frozenset() if requires is None else frozenset({requires.distribution or requires.module})
        source = None if self.device == "cpu" else kernel.source
        worker = start_worker(self.contract, self.device, self.job.sandbox, ours=source, packages=packages)
        worker.spent = self.spent
        return worker

    def house_worker(self) -> Worker:
        """A worker for kernels of ours."""
        return self.houses.pop() if self.houses else self.start_worker(fork=True)

    def close(self) -> None:
        """End the workers that were not needed."""
        self._threads.shutdown()
        self._own_thread.shutdown(wait=False)
        aheads = [*self.screened.values(), *(pair.bar for pair in self.timers)]
        candidates = [pair.candidate for pair in self.timers]
        for worker in (*self.pool, *self.houses, *candidates, *(one.worker for one in aheads)):
            worker.close()
        for held in (self.pool, self.houses, self.timers, self.screened):
            held.clear()

    def start_worker(self, *, fork: bool = False) -> Worker:
        """Start a worker; it gets ready by itself. One that forks is for kernels of ours."""
        worker = start_worker(self.contract, self.device, self.job.sandbox, fork=fork)
        worker.spent = self.spent
        return worker

    def question(self, index: int) -> Question:
        """The inputs and expected values of a planned check, computed once."""
        if index not in self.questions:
            check = self.checks[index]
            case = self._case(check, self._stream_of(check))
            self.questions[index] = Question(check, case, self.expected(case, self.noise_of(check)))
        return self.questions[index]

    def _stream_of(self, check: Check) -> Stream:
        return self.root.child("check", check.stage, check.recipe.name, check.number)

    def noise_of(self, check: Check) -> Stream:
        """Where the noise of a question's units comes from."""
        return self._stream_of(check).child("oracle")

    def _case(self, check: Check, stream: Stream) -> Case:
        if check.base is not None:
            base = self.question(check.base).case
            with self.spent.on("draw"):
                return perturbed(self.contract, base, stream)
        static = self.root.child("static", check.recipe.name)
        if check.stage == "controls":
            with self.spent.on("draw"):
                return make_case(self.contract, check.recipe, stream, static=static)
        return self.make(check.recipe, stream, static=static, lengths=check.lengths)

    def make(
        self, recipe: Recipe, stream: Stream, *, static: Stream, lengths: Literal["same", "other"] = "same"
    ) -> Case:
        """A case of this exam, drawn where its device draws."""
        with self.spent.on("draw"):
            return make_case(self.contract, recipe, stream, static=static, lengths=lengths, drawer=self.drawer)

    def expected(self, case: Case, stream: Stream) -> Expected:
        """What the oracle says."""
        with self.spent.on("oracle"):
            return expect(self.contract, self.oracle, case, stream, runs=self.runs_of(case), on=self.computed_on(case))

    def computed_on(self, case: Case) -> torch.device | None:
        """Where the oracle runs, if not where the case is: one core takes seconds for what a GPU's exam still draws on
        the host."""
        if self.drawer is HOST:
            return None
        largest = max((held.size for held in case.inputs.values() if isinstance(held, np.ndarray)), default=0)
        return torch.device("cuda", torch.cuda.current_device()) if largest >= HEAVY else None

    def runs_of(self, case: Case) -> int:
        """How many noisy runs tell a case's units at first: few where they take a GPU 0.1 s each, unless they are made
        before anybody waits for them."""
        on_device = device_of(case).type != "cpu" or self.computed_on(case) is not None
        large = on_device and not self.prepared
        return min(self.noisy_runs, LARGE_RUNS) if large else self.noisy_runs

    def tensors(self, outputs: Mapping[str, Held]) -> dict[str, Tensor]:
        """Snapshots as torch tensors."""
        return {name: tensor_of(outputs[name], spec.dtype) for name, spec in self.contract.outputs.items()}

    def judge(self, question: Question, answer: Answered) -> Judgement:
        """Compare an answer with what was expected."""
        ledger = self.in_ledger(question.check)
        return self.judge_outputs(question.case, question.expected, self.tensors(answer.outputs), ledger=ledger)

    def judge_outputs(
        self, case: Case, expected: Expected, outputs: Mapping[str, Tensor], *, ledger: bool = False
    ) -> Judgement:
        """As `judge`, of a case that was not planned."""
        with self.spent.on("check"):
            return judge(self.contract, expected, outputs, setting_of(case), ledger=ledger)

    def noise_level(self, cell: str) -> dict[str, float]:
        """Relative noise of each output in a cell, the largest of its checked draws."""
        return self._level(lambda name: name == cell)

    def noise_of_regime(self, regime: str) -> dict[str, float]:
        """Relative noise of each output in a regime, the largest of its checked draws."""
        return self._level(lambda name: name.rpartition("/")[2] == regime)

    def _level(self, wanted: Callable[[str], bool]) -> dict[str, float]:
        levels: dict[str, float] = {}
        for index in self.indices("smoke", "correctness", "controls"):
            recipe = self.checks[index].recipe
            if recipe.kind == "cell" and wanted(recipe.name):
                for name, level in noise_level(self.contract, self.question(index).expected).items():
                    levels[name] = max(level, levels.get(name, 0.0))
        return levels

    def in_ledger(self, check: Check) -> bool:
        """Whether a draw counts for the accuracy ledger: the first of each scored cell, which every baseline is asked
        too. The worst of more draws would look less accurate than the worst of fewer."""
        scored = {f"{w.name}/{r}" for w, r in self.scored()}
        asked: tuple[StageName, ...] = ("smoke", "correctness") if self.job.mode == "quick" else ("correctness",)
        return check.number == 0 and check.stage in asked and check.recipe.name in scored

    def note_accuracy(self, kernel: str, judgement: Judgement) -> None:
        """Keep the worst errors seen over the draws of the ledger."""
        for error in judgement.errors:
            limit = self.contract.limits[error.output]
            old = self.accuracy.get((kernel, error.output))
            new = Accuracy(
                kernel=kernel,
                output=error.output,
                median=max(error.median, old.median if old else 0.0),
                p99=max(error.p99, old.p99 if old else 0.0),
                maximum=max(error.maximum, old.maximum if old else 0.0),
                worst_group=error.worst_group if not old or error.maximum > old.maximum else old.worst_group,
                relative_l2=max(error.relative_l2, old.relative_l2 if old else 0.0),
                octaves=_worst(error.octaves, old.octaves if old else []),
                limit_median=limit.median,
                limit_p99=limit.p99,
                limit_maximum=limit.maximum,
            )
            self.accuracy[kernel, error.output] = new

    def progress(self, stage: StageName, done: int, text: str = "") -> None:
        """Tell whoever watches."""
        self.watch(Progress(stage=stage, done=done, total=self.planned(stage), text=text))


def _worst(new: Sequence[float], old: Sequence[float]) -> list[float]:
    length = max(len(new), len(old))
    return [max(new[i] if i < len(new) else 0.0, old[i] if i < len(old) else 0.0) for i in range(length)]


def setting_of(case: Case) -> Setting:
    """Under which name and limits a case is judged."""
    return Setting(case.where, case.axes, case.recipe.limits)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a stage returns: how many of its checks have positive evidence, and what refused the candidate. `seconds`:
    where one step holds several stages, the share of each; `note`: what should be known and decides nothing."""

    done: int
    refusal: Refusal | None = None
    invalid: str = ""
    seconds: float | None = None
    note: str = ""


Step = Callable[[Exam], Mapping[StageName, Outcome]]
"""One or several stages: several, where their calls come in one secret order."""


def refuse(stage: StageName, where: str, failure: Failure) -> Refusal:
    """A refusal from something the candidate's process did."""
    return Refusal(kind=failure.kind, stage=stage, where=where, reason=failure.text)


def incorrect(
    stage: StageName, case: Case, example: Counterexample, *, note: str = "", unwritten: bool = False
) -> Refusal:
    """A refusal from a wrong number."""
    reason = f"`{example.output}` is {'left unwritten' if unwritten else 'wrong'}"
    reason += f" {note}" if note else ""
    what = "probe" if case.recipe.kind == "probe" else "relation"
    reason += f"; this {what} breaks: {case.recipe.breaks}" if case.recipe.breaks else ""
    return Refusal(kind="incorrect", stage=stage, where=case.where, reason=reason, counterexample=example)
