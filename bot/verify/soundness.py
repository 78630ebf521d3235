"""Whether an oracle may be trusted: the same answer twice, inputs left alone, every input used, float64 throughout.

Asked by calling it again on changed inputs; nothing is read from its source.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bot.contract.schema import Contract, RaggedAxis, ScalarInput, TensorInput
from bot.errors import DataError
from bot.verify.cases import composition
from bot.verify.draws import draw
from bot.verify.oracle import OracleFunction, Tensor, expect, tensor_of
from bot.verify.philox import Stream
from bot.verify.trials import Drawn, Findings

COARSE, FINE = 2.0**-16, 2.0**-40
"""Relative changes of 1.5e-5, which arithmetic in float32 still shows, and of 9e-13, which it does not."""
ACCORD = 0.5
"""The fine change's answer, scaled up, may differ from the coarse one's by this share: rounding of float64 adds 1e-4
times the condition of the sum, float32 anywhere on the way makes it 1."""


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

        return expect(self.contract, function, self.drawn.case, self.stream, units=False).exact


def check_oracle(contract: Contract, function: OracleFunction, cases: Sequence[Drawn], found: Findings) -> None:
    """Add what is wrong with the oracle. `cases`: cells first; a change shown by one of them is shown."""
    stream = Stream.from_salt(b"", "soundness")
    oracles = [Oracle(contract, function, drawn, stream.child(str(i))) for i, drawn in enumerate(cases)]
    for oracle in oracles[: len(contract.regimes)]:
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
        return ends[0] if ends else None
    if held is None:
        return None
    if spec.offsets_of is not None:
        ragged, lengths = contract.axes[spec.offsets_of], case.axes[spec.offsets_of]
        assert isinstance(ragged, RaggedAxis)  # noqa: S101 - consistency.py checked it
        assert isinstance(lengths, list)  # noqa: S101
        others = composition(sum(lengths), len(lengths), ragged.min_length, stream) if lengths else []
        return torch.tensor([0, *others], dtype=torch.int64).cumsum(0) if others != lengths else None
    array = draw(case.recipe.draws[name], contract.shape(spec, case.axes), spec.dtype, stream)
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
    contract = oracles[0].contract
    deaf: dict[str, list[str]] = {}
    for name, spec in contract.inputs.items():
        if not isinstance(spec, TensorInput) or spec.dtype.startswith("int"):
            continue
        open_outputs = dict.fromkeys(contract.outputs, False)
        for oracle in oracles:
            if oracle.drawn.case.inputs[name] is None or not open_outputs:
                continue
            for output, accord in _accord(oracle, name).items():
                if output not in open_outputs or accord is None:
                    continue
                if accord <= ACCORD:
                    del open_outputs[output]
                else:
                    open_outputs[output] = True
        for output in (output for output, doubted in open_outputs.items() if doubted):
            deaf.setdefault(output, []).append(f"`{name}`")
    for output, names in deaf.items():
        reason = f"is not float64 throughout: a relative change of {FINE:.0e} in {', '.join(names)} does not reach"
        found.add("oracle.py", f"{reason} `{output}` as one of {COARSE:.0e} does")


def _accord(oracle: Oracle, name: str) -> dict[str, float | None]:
    """For each output, how far its answers to a fine and a coarse change of one input differ, as a share: median over
    the rows that answer; None where none does."""
    given = _given(oracle, name)
    generator = torch.Generator().manual_seed(int(oracle.stream.child("direction", name).words(1)[0]))
    direction = 2 * torch.rand(given.shape, dtype=torch.float64, generator=generator) - 1
    try:
        coarse, fine = (oracle(**{name: given * (1 + step * direction)}) for step in (COARSE, FINE))
    except DataError:
        return {}
    shares: dict[str, float | None] = {}
    for output, exact in oracle.drawn.expected.exact.items():
        wide = torch.nan_to_num(coarse[output] - exact, posinf=0.0, neginf=0.0)
        narrow = torch.nan_to_num(fine[output] - exact, posinf=0.0, neginf=0.0) * (COARSE / FINE)
        size, apart = wide.square().sum(-1).sqrt(), (narrow - wide).square().sum(-1).sqrt()
        answering = size > 0
        shares[output] = float((apart[answering] / size[answering]).median()) if bool(answering.any()) else None
    return shares


def _same(one: Tensor, other: Tensor) -> bool:
    """Equal values; NaN equals NaN."""
    return one.shape == other.shape and bool(((one == other) | (torch.isnan(one) & torch.isnan(other))).all())
