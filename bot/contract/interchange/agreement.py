"""Whether a contract covers a definition: is every call that the definition allows a call that the contract allows?

Axes have other names here and there, so that shapes are compared dimension by dimension. A contract may allow more: a
size that the definition fixes may vary in it, an input may be absent. Of a variable axis a definition gives no bounds.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from bot.contract.interchange.flashinfer_bench import Definition, Spec
from bot.contract.schema import (
    FLOATING,
    ConstAxis,
    Contract,
    DerivedAxis,
    Output,
    ScalarInput,
    TensorInput,
    VarAxis,
    axis_of,
)
from bot.errors import Problem

_PUBLIC = re.compile(r"\bpublic name ([A-Za-z0-9_][A-Za-z0-9_.-]{0,127}) \(flashinfer-bench\)")
Bound = dict[str, str]
"""An extent of the contract → the definition's axis that stands there."""


def public_names(text: str) -> list[str]:
    """Names of the public definitions that a contract's summary says it follows."""
    return _PUBLIC.findall(" ".join(text.split()))


def following(contracts: Path, name: str) -> list[str]:
    """Names of the contracts that say they follow the public definition of this name, whether they are sound or not."""
    files = sorted(contracts.glob("*/contract.yaml"))
    return [file.parent.name for file in files if name in public_names(file.read_text("utf-8", errors="replace"))]


def differences(definition: Definition, contract: Contract) -> list[Problem]:
    """What of a definition the contract does not cover; paths are the definition's."""
    bound: Bound = {}
    found = list(_names("inputs", definition.inputs, contract.inputs))
    for name, spec in definition.inputs.items():
        held = contract.inputs.get(name)
        if held is not None:
            found += _input(definition, contract, bound, f"inputs.{name}", spec, held)
    found += _names("outputs", definition.outputs, contract.outputs)
    for name, tensor in definition.outputs.items():
        output = contract.outputs.get(name)
        if output is not None:
            found += _tensor(definition, contract, bound, f"outputs.{name}", tensor, output)
    return list(dict.fromkeys([*found, *_derived(definition, contract, bound)]))


def _names(section: str, ours: Mapping[str, object], theirs: Mapping[str, object]) -> Iterator[Problem]:
    for name in ours:
        if name not in theirs:
            yield Problem(f"{section}.{name}", "the contract has none of this name")
    for name in theirs:
        if name not in ours:
            yield Problem(section, f"the contract has {name}, which the definition has not")


def _input(
    definition: Definition, contract: Contract, bound: Bound, path: str, spec: Spec, held: TensorInput | ScalarInput
) -> Iterator[Problem]:
    if isinstance(held, ScalarInput):
        kind = "float" if spec.dtype in FLOATING else "int"
        if spec.shape is not None:
            yield Problem(f"{path}.shape", "is a number by value in the contract")
        elif held.dtype != kind:
            yield Problem(f"{path}.dtype", f"is {spec.dtype}, in the contract {held.dtype}")
        if spec.optional:
            yield Problem(f"{path}.optional", "is never absent in the contract")
        return
    if spec.optional and not held.optional:
        yield Problem(f"{path}.optional", "is never absent in the contract")
    yield from _tensor(definition, contract, bound, path, spec, held)


def _tensor(
    definition: Definition, contract: Contract, bound: Bound, path: str, spec: Spec, held: TensorInput | Output
) -> Iterator[Problem]:
    if spec.shape is None:
        yield Problem(f"{path}.shape", "is a tensor in the contract")
        return
    if spec.dtype != held.dtype:
        yield Problem(f"{path}.dtype", f"is {spec.dtype}, in the contract {held.dtype}")
    if len(spec.shape) != len(held.shape):
        yield Problem(f"{path}.shape", f"has {len(spec.shape)} dimensions, in the contract {len(held.shape)}")
        return
    for index, (axis, extent) in enumerate(zip(spec.shape, held.shape, strict=True)):
        yield from _dimension(definition, contract, bound, f"{path}.shape[{index}]", axis, extent)


def _dimension(
    definition: Definition, contract: Contract, bound: Bound, path: str, axis: str, extent: int | str
) -> Iterator[Problem]:
    size, fixed = definition.size(axis), _fixed(contract, extent)
    if fixed is not None:
        if size != fixed:
            yield Problem(path, f"{_told(definition, axis)}, in the contract {_named(extent, fixed)}")
        return
    before = bound.setdefault(str(extent), axis)
    if before != axis and (size is None or size != definition.size(before)):
        told = f"{_told(definition, axis)}, elsewhere {_told(definition, before)}"
        yield Problem(path, f"{told}: both are {extent} in the contract")
        return
    held = contract.axes.get(str(extent))
    if size is not None and isinstance(held, VarAxis) and (not held.min <= size <= held.max or size % held.multiple):
        multiple = f", multiples of {held.multiple}" if held.multiple > 1 else ""
        told = f"{_told(definition, axis)}, in the contract {extent} from {held.min} to {held.max}{multiple}"
        yield Problem(path, told)


def _derived(definition: Definition, contract: Contract, bound: Bound) -> Iterator[Problem]:
    """Axes that the contract makes of others, whose sizes then follow."""
    for name, axis in contract.axes.items():
        if not isinstance(axis, DerivedAxis) or name not in bound or axis.of not in bound:
            continue
        size, base = definition.size(bound[name]), definition.size(bound[axis.of])
        wanted = None if base is None else -(-base * axis.times // axis.over)
        if size != wanted:
            made = f"{axis.times} · {axis.of} / {axis.over}, rounded up"
            yield Problem(f"axes.{bound[name]}", f"{_told(definition, bound[name])}, in the contract {made}")


def _fixed(contract: Contract, extent: int | str) -> int | None:
    """The size of an extent that is the same in every workload."""
    name = axis_of(extent)
    if name is None or isinstance(extent, int):
        return int(extent)
    axis, plus = contract.axes.get(name), int(extent.partition("+")[2] or 0)
    if isinstance(axis, ConstAxis):
        return axis.const + plus
    base = contract.axes.get(axis.of) if isinstance(axis, DerivedAxis) else None
    if isinstance(axis, DerivedAxis) and isinstance(base, ConstAxis):
        return -(-base.const * axis.times // axis.over) + plus
    return None


def _told(definition: Definition, axis: str) -> str:
    size = definition.size(axis)
    return f"{axis} varies" if size is None else f"{axis} is {size}"


def _named(extent: int | str, size: int) -> str:
    return str(size) if str(extent) == str(size) else f"{extent} = {size}"
