"""Whether an oracle may be trusted: the same answer twice, inputs left alone, every input used, float64 throughout.

Asked by calling it again on changed inputs; nothing is read from its source.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bot.contract.distribution import bounded
from bot.contract.schema import FLOATING, Contract, RaggedAxis, ScalarInput, TensorInput
from bot.errors import DataError
from bot.verify.cases import composition
from bot.verify.draws import draw
from bot.verify.oracle import OracleFunction, Tensor, expect, tensor_of
from bot.verify.philox import Stream
from bot.verify.trials import Drawn, Findings

COARSE, FINE, OTHER_FINE = 2.0**-16, 2.0**-40, 1.25 * 2.0**-40
"""Relative changes of 1.5e-5, which arithmetic in float32 still shows, and of about 1e-12, which it does not."""
ACCORD = 0.05
"""The fine change's answer, scaled up, may differ from the coarse one's by this share; float32 on the way makes it up
to 1. Two fine changes that differ by half of it tell that float64 itself is too coarse there: nothing is concluded."""
SENSITIVE = 2.0**-6
"""Rows count that answer a relative change by at least this share of it: in others the fine change's answer is lost in
float64 too."""
PRECISION_CASES = {"cell": 3, "hidden": 1, "probe": 2}
"""On how many cases of each kind precision is looked at: three runs of the oracle for each input."""


@dataclass(frozen=True, slots=True)
class Oracle:
    """The oracle of a contract on one case, with some of its inputs changed."""

    contract: Contract
    function: OracleFunction
    drawn: Drawn
    stream: Stream

    def __call__(self, **changed: Any) -> Mapping[str, Tensor]:
        """Exact outputs with these arguments in place of the case's own."""

        def function(**arguments: Any) -> Any:
            return self.function(**{**arguments, **changed})

        return expect(self.contract, function, self.drawn.case, self.stream, runs=0).exact


def check_oracle(contract: Contract, function: OracleFunction, cases: Sequence[Drawn], found: Findings) -> None:
    """Add what is wrong with the oracle. `cases`: cells first; a change shown by one of them is shown."""
    stream = Stream.from_salt(b"", "soundness")
    oracles = [Oracle(contract, function, drawn, stream.child(str(i))) for i, drawn in enumerate(cases)]
    for oracle in oracles[: len(contract.regimes)]:
        _placed(oracle, found)
        _repeatable(oracle, found)
    for name in contract.inputs:
        _influence(name, oracles, found)
    _precision(oracles, found)


def _repeatable(oracle: Oracle, found: Findings) -> None:
    """The same inputs give the same bits, and are left as they were."""
    written: list[str] = []

    def watched(**arguments: Any) -> Any:
        before = {name: held.clone() for name, held in arguments.items() if isinstance(held, Tensor)}
        outputs = oracle.function(**arguments)
        written.extend(name for name, held in before.items() if not _same(held, arguments[name]))
        return outputs

    where = oracle.drawn.case.where
    try:
        again = Oracle(oracle.contract, watched, oracle.drawn, oracle.stream)()
    except DataError as error:
        found.add("oracle.py", f"called again, it fails: {error.problems[0].reason}", where)
        return
    for name in written:
        found.add("oracle.py", f"writes into its input `{name}`", where)
    for name, exact in oracle.drawn.expected.exact.items():
        if not _same(exact, again[name]):
            found.add("oracle.py", f"gives another `{name}` for the same inputs", where)


def _placed(oracle: Oracle, found: Findings) -> None:
    """What it makes is made where its inputs are: with another default device it is the same. A GPU's exam would fail
    otherwise, and setting the default costs the recurrences a third of their time."""
    where = oracle.drawn.case.where
    problem = "makes a tensor on the default device: give it `device=`, or make it from an input (`x.new_zeros`)"
    try:
        with torch.device("meta"):
            outputs = oracle()
    except DataError:
        found.add("oracle.py", problem, where)
        return
    if any(tensor.is_meta for tensor in outputs.values()):
        found.add("oracle.py", problem, where)


def _influence(name: str, oracles: Sequence[Oracle], found: Findings) -> None:
    """A change of the input changes some output somewhere."""
    tried = False
    for oracle in oracles:
        other = _other(oracle, name)
        if other is None:
            continue
        tried = True
        try:
            outputs = oracle(**{name: other})
        except DataError:
            continue  # Two drawn inputs need not fit together; another case may show it.
        if any(not _same(exact, outputs[key]) for key, exact in oracle.drawn.expected.exact.items()):
            return
    if tried:
        found.add(
            f"inputs.{name}", "the oracle ignores it: no output changes with it, in any regime, hidden draw or probe"
        )
    elif not isinstance(oracles[0].contract.inputs[name], ScalarInput):
        found.add(f"inputs.{name}", "is the same in every draw, so that a kernel need not read it")


def _other(oracle: Oracle, name: str) -> Any:
    """Another legal value of an input, as the oracle gets it; None where this case has none."""
    contract, case = oracle.contract, oracle.drawn.case
    spec, held, stream = contract.inputs[name], case.inputs[name], oracle.stream.child("other", name)
    if isinstance(spec, ScalarInput):
        ends = [bound for bound in (spec.low, spec.high) if bound is not None and bound != held]
        return None if not ends else int(ends[0]) if spec.dtype == "int" else ends[0]
    if held is None:
        return None
    if spec.offsets_of is not None:
        ragged, lengths = contract.axes[spec.offsets_of], case.axes[spec.offsets_of]
        assert isinstance(ragged, RaggedAxis)  # noqa: S101 - consistency.py checked it
        assert isinstance(lengths, list)  # noqa: S101
        others = composition(sum(lengths), len(lengths), ragged.min_length, stream) if lengths else []
        return torch.tensor([0, *others], dtype=torch.int64).cumsum(0) if others != lengths else None
    dist = bounded(case.recipe.draws[name], contract.bound(spec, case.axes))
    array = draw(dist, contract.shape(spec, case.axes), spec.dtype, stream)
    tensor = tensor_of(array, spec.dtype)
    other = tensor.double() if tensor.is_floating_point() else tensor.long()
    return None if _same(other, _given(oracle, name)) else other


def _given(oracle: Oracle, name: str) -> Tensor:
    """A tensor input as the oracle gets it."""
    spec, held = oracle.contract.inputs[name], oracle.drawn.case.inputs[name]
    assert isinstance(spec, TensorInput)  # noqa: S101 - callers ask for tensors that are there
    tensor = tensor_of(held, spec.dtype)  # type: ignore[arg-type]
    return tensor.double() if tensor.is_floating_point() else tensor.long()


def _precision(oracles: Sequence[Oracle], found: Findings) -> None:
    """A change far below what float32 resolves reaches every output that a larger one reaches."""
    contract, chosen = oracles[0].contract, _one_per_regime(oracles)
    deaf: dict[str, list[str]] = {}
    for name, spec in contract.inputs.items():
        if not isinstance(spec, TensorInput) or spec.dtype not in FLOATING:
            continue
        shares: dict[str, list[float]] = {}
        for oracle in chosen:
            if oracle.drawn.case.inputs[name] is not None:
                for output, share in _apart(oracle, name).items():
                    shares.setdefault(output, []).append(share)
        for output, met in shares.items():
            if statistics.median(met) > ACCORD:
                deaf.setdefault(output, []).append(f"`{name}`")
    for output, names in deaf.items():
        reason = f"is not float64 throughout: a relative change of {FINE:.0e} in {', '.join(names)} does not reach"
        found.add("oracle.py", f"{reason} `{output}` as one of {COARSE:.0e} does")


def _one_per_regime(oracles: Sequence[Oracle]) -> list[Oracle]:
    """Few cases of each kind, cells of different regimes."""
    chosen, seen = [], set()
    left = dict(PRECISION_CASES)
    for oracle in oracles:
        place = oracle.drawn.place
        kind = place.recipe.kind
        if left[kind] and not (kind == "cell" and place.path in seen):
            chosen.append(oracle)
            seen.add(place.path)
            left[kind] -= 1
    return chosen


def _apart(oracle: Oracle, name: str) -> dict[str, float]:
    """For each output, by what share its answers to a fine and a coarse change of one input differ: the median over the
    rows that answer. Outputs without such rows, or where rounding of float64 hides it, are left out."""
    given = _given(oracle, name)
    generator = torch.Generator().manual_seed(int(oracle.stream.child("direction", name).words(1)[0]))
    # Not around zero: a mean over many elements must move too.
    direction = 0.5 + torch.rand(given.shape, dtype=torch.float64, generator=generator)
    try:
        answers = [oracle(**{name: given * (1 + step * direction)}) for step in (COARSE, FINE, OTHER_FINE)]
    except DataError:
        return {}
    shares = {}
    for output, exact in oracle.drawn.expected.exact.items():
        wide, narrow, other = (
            torch.nan_to_num(answer[output] - exact, posinf=0.0, neginf=0.0) / step
            for answer, step in zip(answers, (COARSE, FINE, OTHER_FINE), strict=True)
        )
        size, apart, noise = (_length(rows) for rows in (wide, narrow - wide, narrow - other))
        answering = (size > 0) & (size >= SENSITIVE * _length(torch.nan_to_num(exact, posinf=0.0, neginf=0.0)))
        if bool(answering.any()) and float((noise[answering] / size[answering]).median()) <= ACCORD / 2:
            shares[output] = float((apart[answering] / size[answering]).median())
    return shares


def _length(rows: Tensor) -> Tensor:
    return rows.square().sum(-1).sqrt()


def _same(one: Tensor, other: Tensor) -> bool:
    """Equal values; NaN equals NaN."""
    return one.shape == other.shape and bool(((one == other) | (torch.isnan(one) & torch.isnan(other))).all())
