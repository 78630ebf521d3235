"""Questions put in two ways whose answers must agree, for lengths the oracle cannot reach: cut in two with the state
handed over, one sequence without the others, in another order, at another scale.

Each way is a list of calls; the pieces of their outputs are put together here and compared with the whole. What a
kernel answers to one part may be an input of the next.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch

from bot.contract.schema import (
    Contract,
    CountAxis,
    Output,
    RaggedAxis,
    Relation,
    Sizes,
    TensorInput,
    TotalAxis,
    axis_of,
)
from bot.errors import InfrastructureError
from bot.verify.calls import Answered, Failure
from bot.verify.cases import Case, Inputs, make_case, relation_recipe
from bot.verify.counterexample import array_of
from bot.verify.draws import Array
from bot.verify.oracle import Tensor, tensor_of
from bot.verify.philox import Stream

POWERS = (-6, -5, -4, -3, -2, 2, 3, 4, 5, 6)
"""Exponents of two by which a scaled relation moves its inputs."""

Call = Callable[[Case, str], Answered | Failure]
"""Runs a kernel on a case; the text names the call."""
Outputs = dict[str, Tensor]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Compared:
    """The whole question, and both answers to what was asked twice of it, with the axis values these have."""

    case: Case
    axes: Sizes
    answers: Mapping[str, tuple[Tensor, Tensor]]


def whole_of(contract: Contract, relation: Relation, stream: Stream) -> Case:
    """The whole question of a relation."""
    recipe = relation_recipe(contract, relation, stream)
    return make_case(contract, recipe, stream.child("case"), static=stream.child("static"))


def put_twice(contract: Contract, relation: Relation, stream: Stream, call: Call) -> Compared | Failure:
    """Ask the whole question and the same otherwise. An early end is the kernel's."""
    case = whole_of(contract, relation, stream)
    answer = call(case, "whole")
    if isinstance(answer, Failure):
        return answer
    whole = _tensors(contract, answer)
    ways = {"split": _split, "alone": _alone, "permuted": _permuted, "scaled": _scaled}
    other = ways[relation.kind](contract, relation, case, stream, call)
    if isinstance(other, Failure):
        return other
    compared, kept, outputs = other
    kept_of = {name: _kept(contract, name, whole[name], kept) for name in outputs}
    # Large outputs stay on the device; the same cut into parts may be small enough for the host.
    pairs = {name: (kept_of[name], held.to(kept_of[name].device)) for name, held in outputs.items()}
    return Compared(case, compared.axes, pairs)


Steps = Mapping[str, Tensor | None]
"""Which steps of an axis of the whole another way answers for, by axis; None: all."""


def _split(
    contract: Contract, relation: Relation, case: Case, stream: Stream, call: Call
) -> tuple[Case, Steps, Outputs] | Failure:
    """The beginnings of all sequences, then their rest from where the beginnings ended.

    A beginning is at most half: what a kernel does after so many tokens of a sequence, it does in the whole and, at
    another place or not at all, in the rest. After a later cut neither half may be long enough to show it.
    """
    ragged, lengths = _lengths(contract, case)
    cuts = [int(stream.child("cut", i).below(n // 2)[0]) + 1 if n > 1 else n for i, n in enumerate(lengths)]
    starts = np.cumsum([0, *lengths])
    first = [np.arange(a, a + cut) for a, cut in zip(starts, cuts, strict=False)]
    rest = [np.arange(a + cut, b) for (a, b), cut in zip(pairwise(starts), cuts, strict=True)]
    beginning = call(_cut(contract, case, ragged, cuts, np.concatenate(first)), "beginning")
    if isinstance(beginning, Failure):
        return beginning
    left = [n - cut for n, cut in zip(lengths, cuts, strict=True)]
    ending = _cut(contract, case, ragged, left, np.concatenate(rest))
    carried: Inputs = {target: beginning.outputs[name] for name, target in relation.carry.items()}
    end = call(replace(ending, inputs={**ending.inputs, **carried}), "rest")
    if isinstance(end, Failure):
        return end
    one, two = _tensors(contract, beginning), _tensors(contract, end)
    places = torch.from_numpy(np.argsort(np.concatenate([*first, *rest]), kind="stable"))
    joined = {}
    for name, spec in contract.outputs.items():
        position = _position(contract, spec, TotalAxis)
        joined[name] = two[name]
        if position is not None:
            both = torch.cat([one[name].to(two[name].device), two[name]])
            joined[name] = both.index_select(0, places.to(both.device))
    return case, {}, joined


def _alone(
    contract: Contract, _: Relation, case: Case, stream: Stream, call: Call
) -> tuple[Case, Steps, Outputs] | Failure:
    """A secret sequence without the others, and so the longest of them: of a sequence of one token there may be nothing
    that could be wrong."""
    ragged, lengths = _lengths(contract, case)
    filled = [i for i, n in enumerate(lengths) if n] or [0]
    # Mostly not the first: what leaks forwards, as a state does, cannot reach that one.
    later = filled[1:] if len(filled) > 1 and stream.child("later").below(4)[0] else filled
    picked = [later[int(stream.child("sequence").below(len(later))[0])]]
    picked += [n for n in [max(later, key=lengths.__getitem__)] if n not in picked]
    starts = np.cumsum([0, *lengths])
    tokens = [np.arange(starts[n], starts[n + 1]) for n in picked]
    answers: list[Outputs] = []
    for way, number, own in zip(("alone", "the longest alone"), picked, tokens, strict=False):
        answer = call(_cut(contract, case, ragged, [len(own)], own, sequences=np.array([number])), way)
        if isinstance(answer, Failure):
            return answer
        answers.append(_tensors(contract, answer))
    steps: dict[str, Tensor | None] = {}
    for name, axis in contract.axes.items():
        if isinstance(axis, TotalAxis) and axis.total_of == ragged:
            steps[name] = torch.from_numpy(np.concatenate(tokens))
        if isinstance(axis, CountAxis) and axis.count_of == ragged:
            steps[name] = torch.tensor(picked)
    both = _cut(
        contract, case, ragged, [len(own) for own in tokens], np.concatenate(tokens), sequences=np.array(picked)
    )
    outputs = {}
    for name, spec in contract.outputs.items():
        position = _position(contract, spec, (TotalAxis, CountAxis))
        held = [answer[name].to(answers[0][name].device) for answer in answers]
        outputs[name] = held[0] if position is None else torch.cat(held, dim=position)
    return both, steps, outputs


def _permuted(
    contract: Contract, relation: Relation, case: Case, stream: Stream, call: Call
) -> tuple[Case, Steps, Outputs] | Failure:
    """The steps of an axis in another order."""
    axis, size = relation.axis or "", case.axes[relation.axis or ""]
    assert isinstance(size, int)  # noqa: S101 - consistency.py wants an axis with min and max
    order = stream.child("order").shuffled(size)
    inputs = {
        name: _taken(held, spec, axis, np.array(order)) if isinstance(spec, TensorInput) else held
        for (name, spec), held in zip(contract.inputs.items(), case.inputs.values(), strict=True)
    }
    answer = call(replace(case, inputs=inputs), "permuted")
    if isinstance(answer, Failure):
        return answer
    return case, {axis: torch.tensor(order)}, _tensors(contract, answer)


def _scaled(
    contract: Contract, relation: Relation, case: Case, stream: Stream, call: Call
) -> tuple[Case, Steps, Outputs] | Failure:
    """Inputs times a power of two; the outputs are scaled back."""
    power = POWERS[int(stream.child("power").below(len(POWERS))[0])]
    inputs = dict(case.inputs)
    for name in relation.powers:
        spec, held = contract.inputs.get(name), case.inputs.get(name)
        if isinstance(spec, TensorInput) and isinstance(held, np.ndarray):
            inputs[name] = _times(held, spec, power * relation.powers[name])
    answer = call(replace(case, inputs=inputs), f"scaled by 2^{power}")
    if isinstance(answer, Failure):
        return answer
    outputs = _tensors(contract, answer)
    return (
        case,
        {},
        {
            name: torch.ldexp(value.double(), torch.tensor(float(-power * relation.powers.get(name, 0))))
            for name, value in outputs.items()
        },
    )


def _lengths(contract: Contract, case: Case) -> tuple[str, list[int]]:
    """The ragged axis and its lengths."""
    for name, axis in contract.axes.items():
        lengths = case.axes.get(name)
        if isinstance(axis, RaggedAxis) and isinstance(lengths, list):
            return name, lengths
    raise InfrastructureError(f"{contract.name} has no ragged axis: its consistency was not checked")


def _cut(
    contract: Contract,
    case: Case,
    ragged: str,
    lengths: list[int],
    tokens: Indices,
    *,
    sequences: Indices | None = None,
) -> Case:
    """A case of these tokens (and sequences), with sequences of these lengths."""
    inputs = dict(case.inputs)
    for name, spec in contract.inputs.items():
        held = case.inputs[name]
        if not isinstance(spec, TensorInput) or not isinstance(held, np.ndarray):
            continue
        if spec.offsets_of == ragged:
            inputs[name] = np.cumsum([0, *lengths], dtype=np.int64)
            continue
        for position, extent in enumerate(spec.shape):
            axis = contract.axes.get(axis_of(extent) or "")
            if isinstance(axis, TotalAxis) and axis.total_of == ragged:
                held = np.take(held, tokens, axis=position)
            elif isinstance(axis, CountAxis) and axis.count_of == ragged and sequences is not None:
                held = np.take(held, sequences, axis=position)
        inputs[name] = held
    return replace(case, axes={**case.axes, ragged: lengths}, inputs=inputs)


def _taken(held: object, spec: TensorInput, axis: str, order: Indices) -> Array | None:
    """An input with the steps of an axis in another order."""
    if not isinstance(held, np.ndarray):
        return None
    for position, extent in enumerate(spec.shape):
        if axis_of(extent) == axis:
            held = np.take(held, order, axis=position)
    return held


def _times(held: Array, spec: TensorInput, power: int) -> Array:
    """An input times a power of two, in its own type: exact but for what leaves its range."""
    scaled = torch.ldexp(tensor_of(held, spec.dtype).float(), torch.tensor(float(power)))
    return array_of(scaled.to(tensor_of(held, spec.dtype).dtype))


def _position(contract: Contract, spec: Output, kind: type | tuple[type, ...]) -> int | None:
    """Where an output has an axis of a kind."""
    return next((i for i, e in enumerate(spec.shape) if isinstance(contract.axes.get(axis_of(e) or ""), kind)), None)


def _kept(contract: Contract, name: str, whole: Tensor, steps: Steps) -> Tensor:
    """What of a whole output another way answers for."""
    for position, extent in enumerate(contract.outputs[name].shape):
        chosen = steps.get(axis_of(extent) or "")
        if chosen is not None:
            whole = whole.index_select(position, chosen.to(whole.device))
    return whole


def _tensors(contract: Contract, answer: Answered) -> Outputs:
    return {name: tensor_of(answer.outputs[name], spec.dtype) for name, spec in contract.outputs.items()}
