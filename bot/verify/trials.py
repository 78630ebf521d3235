"""A contract's own kernels on drawn cases: what is asked of each, and how far each is from what it should be.

They are ours and still run sandboxed: one worker imports torch once and forks a child for each kernel.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from bot.contract.load import LoadedContract
from bot.contract.schema import Contract, Device, Limit, Relation
from bot.errors import Problem
from bot.verify import cpus
from bot.verify.calls import Answered, Failure, Worker
from bot.verify.cases import Case, Recipe, cell_recipe, hidden_recipes, make_case, probe_recipe
from bot.verify.compare import Judgement, OutputError, Setting, judge
from bot.verify.oracle import Expected, tensor_of
from bot.verify.philox import Stream
from bot.verify.relations import Compared, put_twice
from bot.verify.sandbox import Kind


@dataclass(frozen=True, slots=True)
class Place:
    """A recipe, and the path by which the author of the contract finds it."""

    path: str
    recipe: Recipe

    @property
    def names(self) -> tuple[str, str]:
        """What `fails` of a control may call it: the probe or hidden draw, or a cell's regime."""
        return self.recipe.name, self.recipe.name.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Drawn:
    """One case of a place with its expected values."""

    place: Place
    case: Case
    expected: Expected = field(repr=False)

    @property
    def setting(self) -> Setting:
        """Which limits apply to it."""
        return Setting(self.case.where, self.case.axes, self.case.recipe.limits)


def places(contract: Contract, device: Device, stream: Stream) -> Iterator[Place]:
    """Every cell, hidden draw and probe of a device."""
    regimes = list(contract.regimes)
    for number, workload in enumerate(w for w in contract.workloads if device in w.device):
        # No regime is always the first to meet a workload: a kernel that keeps its first answer is right there.
        start = number % len(regimes)
        for regime in (*regimes[start:], *regimes[:start]):
            yield Place(f"regimes.{regime}", cell_recipe(contract, workload, regime))
    numbers = {hidden.name: index for index, hidden in enumerate(contract.hidden)}
    for recipe in hidden_recipes(contract, device, stream.child("hidden")):
        yield Place(f"hidden[{numbers[recipe.name]}]", recipe)
    for index, probe in enumerate(contract.probes):
        if device in probe.device:
            yield Place(f"probes[{index}]", probe_recipe(contract, probe))


def draw_case(contract: Contract, place: Place, stream: Stream) -> Case:
    """The inputs of one call at a place.

    Raises:
        Exception: whatever a distribution that does not fit its tensor makes of it.
    """
    return make_case(contract, place.recipe, stream, static=stream.child("static"))


Answer = tuple[Drawn, Judgement | Failure]
Known = Callable[[Drawn, Sequence[Answer]], bool]
"""Whether a case need not be asked after these answers."""


class Trials:
    """The worker that the contract's kernels run in; a fresh one after each failure. Use as a context manager."""

    def __init__(self, loaded: LoadedContract, kind: Kind, stream: Stream) -> None:
        """Start it; it gets ready while the verifier goes on."""
        self._loaded = loaded
        self._kind = kind
        self._stream = stream
        self._worker = self._start()

    def ask(self, file: str, asked: Sequence[Drawn], known: Known = lambda _, __: False) -> list[Answer]:
        """Judged answers of one kernel file to all that is not `known` by then; a first failure is the last answer."""
        answers: list[Answer] = []
        if not asked:
            return answers
        failed = self._worker.load(self._loaded.read(file))
        if failed is not None:
            # What an import raised leaves the forked child in order; whatever else happened may not.
            (self._worker.leave if failed.kind == "build_failed" else self._restart)()
            return [(asked[0], failed)]
        for number, drawn in enumerate(asked):
            if known(drawn, answers):
                continue
            answer = self._worker.run(drawn.case, self._stream.child("call", file, number))
            if isinstance(answer, Failure):
                self._restart()
                return [*answers, (drawn, answer)]
            contract = self._loaded.contract
            outputs = {n: tensor_of(answer.outputs[n], spec.dtype) for n, spec in contract.outputs.items()}
            answers.append((drawn, judge(contract, drawn.expected, outputs, drawn.setting, ledger=False)))
        self._worker.leave()
        return answers

    def relate(self, file: str, relation: Relation, stream: Stream) -> Compared | Failure:
        """Both answers of one kernel file to a question put in two ways."""
        failed = self._worker.load(self._loaded.read(file))
        if failed is None:

            def call(case: Case, way: str) -> Answered | Failure:
                return self._worker.run(case, self._stream.child("relation", file, way))

            found = put_twice(self._loaded.contract, relation, stream, call)
        else:
            found = failed
        broke = isinstance(found, Failure) and not found.alive and found.kind != "build_failed"
        (self._restart if broke else self._worker.leave)()
        return found

    def _start(self) -> Worker:
        ours, theirs = cpus.split()
        return Worker(self._loaded.contract, self._kind, theirs | ours, fork=True)

    def _restart(self) -> None:
        self._worker.close()
        self._worker = self._start()

    def __enter__(self) -> "Trials":
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.close()


@dataclass
class Findings:
    """Problems as they come up; what is found in several places is said once, naming the first."""

    _found: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    _reasons: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, path: str, reason: str, where: str = "", *, alike: str = "") -> None:
        """One problem. Those of one path with the same `alike` (the reason, unless given) count as one."""
        key = (path, alike or reason)
        self._reasons.setdefault(key, reason)
        met = self._found.setdefault(key, [])
        if where and where not in met:
            met.append(where)

    def about(self, path: str) -> bool:
        """Whether there is one there."""
        return any(found == path for found, _ in self._found)

    def problems(self) -> list[Problem]:
        """All of them, in the order of their first appearance."""
        return [Problem(key[0], self._reasons[key] + _in(met)) for key, met in self._found.items()]


def _in(met: Sequence[str]) -> str:
    if not met:
        return ""
    others = len(met) - 1
    return f" (in {met[0]}{f' and {others} more' if others else ''})"


def margin_of(error: OutputError, limit: Limit) -> float:
    """Error over limit of one output, in the statistic where that is largest."""
    return max(error.median / limit.median, error.p99 / limit.p99, error.maximum / limit.maximum)


def described(judgement: Judgement) -> str:
    """The worst of a refused answer, in the author's terms."""
    found = judgement.counterexample
    if found is None:
        return "within its limits"
    place = f"{found.output}{found.index} is {found.candidate}, the oracle's {found.oracle}"
    if found.error_units is None or found.limit_units is None:
        return place
    return f"{place}; {found.statistic} {found.error_units:.3g} units, limit {found.limit_units:g}"
