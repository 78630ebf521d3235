"""The smallest input that a wrong candidate still gets wrong: sizes shrunk first, then values made plain.

A trial keeps part of the first case: its tensors are cut from the same bits and never drawn anew, so that a small
counterexample is a piece of the large one. Greedy: what still fails is what the search goes on from. Pure, but for the
question it asks and a clock. For people; it decides nothing.
"""

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

import numpy as np

from bot.contract.schema import (
    FLOATING,
    Contract,
    CountAxis,
    Output,
    RaggedAxis,
    Sizes,
    TensorInput,
    TotalAxis,
    VarAxis,
    axis_of,
)
from bot.evaluation import Counterexample, Smallest
from bot.verify.cases import Case, Inputs
from bot.verify.compare import Judgement
from bot.verify.draws import Array, store

MOST_TRIALS = 400
"""Controls of the contracts take ten to a hundred; one that needs nine of 600 scattered steps takes three hundred."""
FINEST = 16
"""Blocks that are left out of the middle of an axis go down to this share of it: with a few steps, to single ones."""
FAINTEST = 1e-6
"""Plainer values may not make the difference fainter than this share of what it was. A state of ones that decays for 33
tokens without a drawn gate is 1e-36 instead of 0: wrong as well, but a reader would take it for rounding."""

Held = Literal["as drawn", "zeros", "ones", "absent"]
PLAINEST_FIRST: tuple[Held, ...] = ("absent", "zeros", "ones", "as drawn")

Asked = Judgement | None
"""None: it did not answer, which is another failure than the one looked for."""
Ask = Callable[[Case], Asked]
Item = TypeVar("Item")
Side = Callable[[Sequence[int], int], Sequence[int]]
Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """What is kept of one sequence: its number and its packed tokens, both counted in the first case."""

    sequence: int
    tokens: range


@dataclass(frozen=True, slots=True)
class Cut:
    """A trial in terms of the first case. `kept`: by axis, parts of sequences where it is ragged and steps where it has
    a size; both in their old order. `plain`: inputs that hold something else than was drawn."""

    kept: Mapping[str, tuple[Part | int, ...]]
    plain: Mapping[str, Held] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """Equal for equal cuts, and hashable."""
        return (tuple(self.kept.items()), frozenset(self.plain.items()))

    def parts(self, axis: str) -> list[Part]:
        """What is kept of the sequences of a ragged axis."""
        return [kept for kept in self.kept[axis] if isinstance(kept, Part)]


def whole(contract: Contract, case: Case) -> Cut:
    """The cut that leaves everything as it is."""
    kept: dict[str, tuple[Part | int, ...]] = {}
    fixed = contract.fixed_axes()
    for name, axis in contract.axes.items():
        size = case.axes.get(name)
        if isinstance(axis, RaggedAxis) and isinstance(size, list):
            ends = np.cumsum(size).tolist()
            kept[name] = tuple(Part(i, range(end - size[i], end)) for i, end in enumerate(ends))
        elif isinstance(axis, VarAxis) and isinstance(size, int) and name not in fixed:
            kept[name] = tuple(range(size))
    return Cut(kept)


def trial(contract: Contract, first: Case, cut: Cut) -> Case:
    """The case that a cut leaves of the first one. Numbers passed by value stay."""
    axes: Sizes = dict(first.axes)
    for name, kept in cut.kept.items():
        ragged = isinstance(contract.axes[name], RaggedAxis)
        axes[name] = [len(part.tokens) for part in cut.parts(name)] if ragged else len(kept)
    steps, sizes = _steps(contract, cut), contract.sizes(first.axes)
    inputs: Inputs = {}
    for name, spec in contract.inputs.items():
        held = first.inputs[name]
        if not isinstance(spec, TensorInput) or not isinstance(held, np.ndarray):
            inputs[name] = held
        elif spec.offsets_of is not None:
            inputs[name] = np.cumsum([0, *_lengths(axes[spec.offsets_of])], dtype=held.dtype)
        else:
            inputs[name] = made_plain(spec, _taken(held, spec, steps, sizes), cut.plain.get(name, "as drawn"))
    return replace(first, axes=axes, inputs=inputs)


def _steps(contract: Contract, cut: Cut) -> dict[str, Array]:
    """The kept steps of each axis that a dimension may refer to."""
    found: dict[str, Array] = {}
    for name, axis in contract.axes.items():
        match axis:
            case VarAxis() if name in cut.kept:
                found[name] = np.array(cut.kept[name], dtype=np.int64)
            case CountAxis(count_of=ragged):
                found[name] = np.array([part.sequence for part in cut.parts(ragged)], dtype=np.int64)
            case TotalAxis(total_of=ragged):
                tokens = [np.arange(part.tokens.start, part.tokens.stop) for part in cut.parts(ragged)]
                found[name] = np.concatenate([np.zeros(0, dtype=np.int64), *tokens])
            case _:
                pass
    return found


def _taken(held: Array, spec: TensorInput, steps: Mapping[str, Array], sizes: Sizes) -> Array:
    """The kept steps of a tensor in every dimension; what an extent like `N+1` has beyond its axis stays."""
    for position, extent in enumerate(spec.shape):
        name = axis_of(extent) or ""
        size = sizes.get(name)
        if name not in steps or not isinstance(size, int) or len(steps[name]) == size:
            continue
        beyond = np.arange(size, held.shape[position])
        held = np.take(held, np.concatenate([steps[name], beyond]), axis=position)
    return held


def made_plain(spec: TensorInput, held: Array, wanted: Held) -> Array | None:
    """A tensor of the same shape and storage that holds what is wanted."""
    match wanted:
        case "absent":
            return None
        case "zeros":
            return np.zeros_like(held)
        case "ones":
            return store(np.ones(held.shape), spec.dtype)
        case "as drawn":
            return held


def holds(spec: TensorInput, held: object) -> Held:
    """What a tensor holds, by its bits, for a draw may be all zeros, too; integers count as drawn."""
    if not isinstance(held, np.ndarray):
        return "absent"
    if spec.dtype in FLOATING and held.size:
        bits = held.tobytes()
        for plain in ("zeros", "ones"):
            same = made_plain(spec, held, plain)
            if same is not None and same.tobytes() == bits:
                return plain
    return "as drawn"


def plainer(spec: TensorInput, held: object) -> Iterator[Held]:
    """What a tensor could hold that is plainer than what it does. Integers are metadata, whose values must fit."""
    if spec.dtype not in FLOATING or spec.offsets_of is not None:
        return
    for plain in PLAINEST_FIRST[: PLAINEST_FIRST.index(holds(spec, held))]:
        if spec.optional if plain == "absent" else isinstance(held, np.ndarray) and held.size > 0:
            yield plain


def failing(contract: Contract, axes: Sizes, example: Counterexample) -> dict[str, int]:
    """Where the worst element lies, by axis, as its group and its index say: step, token, or sequence (ragged axes)."""
    output = contract.outputs[example.output]
    found = {name: int(step) for name, step in re.findall(r"(\w+)=(\d+)", example.group)}
    named = re.search(r"\bsequence (\d+)", example.group)
    if named is not None:
        found |= dict.fromkeys(_ragged_axes(contract, output), int(named[1]))
    for extent, step in zip(output.shape, example.index, strict=False):
        name = axis_of(extent) or ""
        match contract.axes.get(name):
            case VarAxis():
                found[name] = step
            case CountAxis(count_of=ragged):
                found[ragged] = step
            case TotalAxis(total_of=ragged):
                found[name] = step
                found[ragged] = int(np.searchsorted(np.cumsum(_lengths(axes[ragged])), step, side="right"))
            case _:
                pass
    return found


def _ragged_axes(contract: Contract, output: Output) -> Iterator[str]:
    for extent in output.shape:
        match contract.axes.get(axis_of(extent) or ""):
            case CountAxis(count_of=ragged) | TotalAxis(total_of=ragged):
                yield ragged
            case _:
                pass


def _lengths(value: int | list[int]) -> list[int]:
    return value if isinstance(value, list) else [value]


@dataclass
class Search:
    """The smallest failing trial so far, and what was asked. Mutable: it gathers answers."""

    contract: Contract
    first: Case
    ask: Ask
    deadline: float
    clock: Callable[[], float]
    cut: Cut
    case: Case
    example: Counterexample
    seconds: float
    tried: int = 0
    asked: set[Key] = field(default_factory=set)

    def put(self, cut: Cut, least: float = 0.0) -> bool:
        """Ask a trial, each only once; one that fails in the same output, by at least that difference, is kept."""
        if cut.key in self.asked or cut.key == self.cut.key or self.tried >= MOST_TRIALS:
            return False
        if self.clock() >= self.deadline:
            return False
        case = trial(self.contract, self.first, cut)
        started = self.clock()
        if started + self._seconds_for(case) > self.deadline:
            return False
        self.asked.add(cut.key)
        self.tried += 1
        example = _same_failure(self.ask(case), self.example.output)
        if example is None or difference(example) < least:
            return False
        self.cut, self.case, self.example, self.seconds = cut, case, example, self.clock() - started
        return True

    def keep(self, axis: str, kept: Sequence[Part | int]) -> bool:
        """Ask with less of one axis."""
        return self.put(replace(self.cut, kept={**self.cut.kept, axis: tuple(kept)}))

    def make(self, name: str, plain: Held) -> bool:
        """Ask with a plainer input."""
        cut = replace(self.cut, plain={**self.cut.plain, name: plain})
        return self.put(cut, FAINTEST * difference(self.example))

    def failing(self) -> dict[str, int]:
        """Where the present counterexample lies."""
        return failing(self.contract, self.case.axes, self.example)

    def _seconds_for(self, case: Case) -> float:
        """How long a smaller case may take: as long as the present one, by their sizes."""
        return self.seconds * min(1.0, _elements(case) / max(_elements(self.case), 1))


def _elements(case: Case) -> int:
    return sum(held.size for held in case.inputs.values() if isinstance(held, np.ndarray))


def _same_failure(asked: Asked, output: str) -> Counterexample | None:
    """By any statistic: with few rows a group is judged by its maximum alone."""
    example = asked.counterexample if asked is not None else None
    return example if example is not None and example.output == output else None


def difference(example: Counterexample) -> float:
    """Between its two values; infinite where one of them is not finite, or told in words as sets are."""
    try:
        apart = abs(float(example.candidate) - float(example.oracle))
    except ValueError:
        return math.inf
    return apart if math.isfinite(apart) else math.inf


def fewest(least: int, most: int, fails: Callable[[int], bool]) -> None:
    """Halve a number that is known to fail while it still does, then by a quarter, an eighth, …: binary search."""
    while least < most:
        middle = (least + most) // 2
        if fails(middle):
            most = middle
        else:
            least = middle + 1


def firsts(items: Sequence[Item], count: int) -> Sequence[Item]:
    """The first ones; all where there are no more."""
    return items[:count]


def lasts(items: Sequence[Item], count: int) -> Sequence[Item]:
    """The last ones."""
    return items[max(len(items) - count, 0) :]


def fewer_steps(search: Search, axis: str, least: int) -> None:
    """Fewer sequences, or steps of an axis: the failing one alone, some first or last ones, without some in between."""
    kept, place = search.cut.kept[axis], search.failing().get(axis, -1)
    if 0 <= place < len(kept):
        search.keep(axis, _around(kept, place, least))
    kept = search.cut.kept[axis]
    fewest(least, len(kept), lambda count: search.keep(axis, firsts(kept, count)))
    rest = search.cut.kept[axis]
    fewest(least, len(rest), lambda count: search.keep(axis, lasts(rest, count)))
    leave_out(search, axis, least)


def _around(items: Sequence[Item], place: int, least: int) -> Sequence[Item]:
    """One item, or as few that hold it as are legal."""
    count = max(least, 1)
    start = max(min(place, len(items) - count), 0)
    return items[start : start + count]


def leave_out(search: Search, axis: str, least: int) -> None:
    """Leave out blocks, large ones first, wherever they lie: a failure may need two distant steps."""
    size = len(search.cut.kept[axis]) // 2
    finest = max(1, len(search.cut.kept[axis]) // FINEST)
    while size >= finest:
        start = 0
        while start < len(kept := search.cut.kept[axis]):
            rest = kept[:start] + kept[start + size :]
            if len(rest) < least or not search.keep(axis, rest):
                start += size
        size //= 2


def fewer_tokens(search: Search, axis: str, least: int) -> None:
    """Shorter sequences: all together, then one by one, the failing one first; cut at the end and at the start."""
    one, token = _failing_token(search, axis)
    parts = search.cut.parts(axis)
    if one is not None:
        short = [_part(part, firsts(part.tokens, least)) for part in parts]
        tokens = parts[one].tokens
        for rest in (_around(tokens, token, least), firsts(tokens, max(token + 1, least)), tokens):
            if search.keep(axis, [*short[:one], _part(parts[one], rest), *short[one + 1 :]]):
                break
    for side in (firsts, lasts):
        shorten(search, axis, least, side, range(len(parts)))
    for number in sorted(range(len(parts)), key=lambda i: i != one):
        for side in (firsts, lasts):
            shorten(search, axis, least, side, [number])


def shorten(search: Search, axis: str, least: int, side: Side, numbers: Sequence[int]) -> None:
    """Cut these sequences to the fewest tokens of one side."""
    parts = search.cut.parts(axis)
    longest = max((len(parts[i].tokens) for i in numbers), default=0)

    def fails(count: int) -> bool:
        return search.keep(
            axis, [_part(part, side(part.tokens, count)) if i in numbers else part for i, part in enumerate(parts)]
        )

    fewest(least, longest, fails)


def _part(part: Part, tokens: Sequence[int]) -> Part:
    assert isinstance(tokens, range)  # noqa: S101 - a slice of a range is one
    return replace(part, tokens=tokens)


def _failing_token(search: Search, axis: str) -> tuple[int | None, int]:
    """The failing sequence, if the counterexample names one, and the token inside it; 0 if it names none."""
    places, lengths = search.failing(), _lengths(search.case.axes[axis])
    one = places.get(axis, -1)
    if not 0 <= one < len(lengths):
        return None, 0
    totals = [n for n, a in search.contract.axes.items() if isinstance(a, TotalAxis) and a.total_of == axis]
    token = next((places[name] - sum(lengths[:one]) for name in totals if name in places), 0)
    return one, token


def shrink_shapes(search: Search) -> None:
    """One pass over all axes: fewer sequences, smaller sizes, shorter sequences."""
    axes = search.contract.axes
    for name, axis in axes.items():
        if isinstance(axis, RaggedAxis):
            # No contract says how few sequences are legal; hidden draws have at least one.
            fewer_steps(search, name, 1)
    for name, axis in axes.items():
        if isinstance(axis, VarAxis) and name in search.cut.kept:
            fewer_steps(search, name, axis.min)
    for name, axis in axes.items():
        if isinstance(axis, RaggedAxis):
            fewer_tokens(search, name, axis.min_length)


def make_values_plain(search: Search) -> None:
    """One pass over the inputs: absent, zeros, ones, whichever first still fails."""
    for name, spec in search.contract.inputs.items():
        if isinstance(spec, TensorInput):
            for plain in plainer(spec, search.case.inputs[name]):
                if search.make(name, plain):
                    break


def settle(search: Search) -> None:
    """Shapes until they shrink no further, then values; with plainer values the shapes once more."""
    while True:
        before = search.cut.key
        shrink_shapes(search)
        if search.cut.key == before:
            make_values_plain(search)
            if search.cut.key == before:
                return


def shrink(
    contract: Contract,
    case: Case,
    wrong: Counterexample,
    ask: Ask,
    deadline: float,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[Smallest, Case] | None:
    """The smallest trial found that fails in the same output as `wrong`, until `deadline` on the clock.

    `ask` puts a case to the candidate and judges the answer. The case itself is asked first; None when it does not fail
    again, or no time is left to ask.
    """
    started = clock()
    if started >= deadline:
        return None
    example = _same_failure(ask(case), wrong.output)
    if example is None:
        return None
    cut = whole(contract, case)
    search = Search(contract, case, ask, deadline, clock, cut, case, example, seconds=clock() - started)
    settle(search)
    held = {n: holds(s, search.case.inputs[n]) for n, s in contract.inputs.items() if isinstance(s, TensorInput)}
    return Smallest(counterexample=search.example, inputs=held, tried=search.tried), search.case
