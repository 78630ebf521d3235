"""Mistakes of a contract that no type can see: names that refer to nothing, sizes outside their domain, contradictions.

Asks what remains of a contract whose other parts are broken, and blames nothing for referring to a broken part. Pure,
but for asking whether files are there.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bot.contract.distribution import Distribution, Ids, Packed, Param, Portion, numbers, reach, within
from bot.contract.mistakes import Remains
from bot.contract.schema import (
    BYTES,
    FLOATING,
    ConstAxis,
    CountAxis,
    DerivedAxis,
    Device,
    Hidden,
    HiddenInt,
    HiddenLengths,
    HiddenRange,
    Limit,
    Output,
    RaggedAxis,
    Relation,
    ScalarInput,
    Sizes,
    TensorInput,
    TotalAxis,
    VarAxis,
    axis_of,
)
from bot.errors import Problem

DEVICES: tuple[Device, ...] = ("cpu", "cuda")
INFINITE = ("bfloat16", "float16", "float32")


def inconsistencies(remains: Remains, folder: Path) -> Iterator[Problem]:
    """All of them, each with its path."""
    contract = remains.contract
    if not remains.lost("name") and contract.name != folder.name:
        yield Problem("name", f"is {contract.name!r}, but the folder is {folder.name!r}")
    yield from _axes(remains)
    yield from _tensors(remains)
    yield from _scalars(remains)
    yield from _limits(remains)
    yield from _draws(remains)
    yield from _workloads(remains)
    yield from _probes(remains)
    for index, hidden in remains.numbered("hidden"):
        yield from _hidden(remains, hidden, f"hidden[{index}].axes")
    for index, relation in remains.numbered("relations"):
        yield from _hidden(remains, relation, f"relations[{index}].axes")
        yield from _relation(remains, relation, f"relations[{index}]")
    for section in ("workloads", "hidden", "probes", "relations", "baselines"):
        yield from _unique([entry.name for entry in getattr(contract, section)], section)
    yield from _unique([control.file for control in contract.controls], "controls")
    yield from _unique(contract.faithful, "faithful")
    yield from _files(remains, folder)
    yield from _fails(remains)


def _axes(remains: Remains) -> Iterator[Problem]:
    contract = remains.contract
    for name, axis in contract.axes.items():
        match axis:
            case TotalAxis(total_of=target) | CountAxis(count_of=target):
                yield from _ragged(remains, target, f"axes.{name}")
            case VarAxis() if axis.min > axis.max:
                yield Problem(f"axes.{name}", f"min {axis.min} exceeds max {axis.max}")
            case RaggedAxis() if axis.min_length > axis.max_length:
                yield Problem(f"axes.{name}", f"min_length {axis.min_length} exceeds max_length {axis.max_length}")
            case DerivedAxis(of=target):
                yield from _dimension(remains, target, f"axes.{name}.of")
                if isinstance(contract.axes.get(target), DerivedAxis):
                    yield Problem(f"axes.{name}.of", f"{target!r} is itself made of another axis")
            case _:
                pass
    yield from _work(remains)


def _work(remains: Remains) -> Iterator[Problem]:
    work = remains.contract.work
    if work is None:
        return
    products = {"work.operations": work.operations} | {f"work.reads.{name}": of for name, of in work.reads.items()}
    for path, factors in products.items():
        for index, factor in enumerate(factors):
            if isinstance(factor, str):
                yield from _dimension(remains, factor, f"{path}[{index}]")
    for name in work.reads:
        if not isinstance(remains.contract.inputs.get(name), TensorInput) and not remains.lost("inputs", name):
            yield Problem(f"work.reads.{name}", "not a tensor input")


def _ragged(remains: Remains, axis: str, path: str) -> Iterator[Problem]:
    if not remains.lost("axes", axis) and not isinstance(remains.contract.axes.get(axis), RaggedAxis):
        yield Problem(path, f"refers to {axis!r}, which is not a ragged axis")


def _dimension(remains: Remains, axis: str, path: str) -> Iterator[Problem]:
    held = remains.contract.axes.get(axis)
    if not remains.lost("axes", axis) and (held is None or isinstance(held, RaggedAxis)):
        yield Problem(path, f"no axis {axis!r} that could be a dimension")


def _tensors(remains: Remains) -> Iterator[Problem]:
    contract = remains.contract
    tensors: dict[str, TensorInput | Output] = {
        f"inputs.{name}": tensor for name, tensor in contract.inputs.items() if isinstance(tensor, TensorInput)
    }
    tensors |= {f"outputs.{name}": output for name, output in contract.outputs.items()}
    for path, tensor in tensors.items():
        yield from _tensor(remains, path, tensor)
    for name in sorted(set(contract.inputs) & set(contract.outputs)):
        yield Problem(f"outputs.{name}", "an input has the same name")


def _tensor(remains: Remains, path: str, tensor: TensorInput | Output) -> Iterator[Problem]:
    axes = [axis_of(extent) for extent in tensor.shape]
    for index, axis in enumerate(axes):
        if axis is not None:
            yield from _dimension(remains, axis, f"{path}.shape[{index}]")
    if isinstance(tensor, Output):
        for group in sorted(set(tensor.groups) - set(axes)):
            yield Problem(f"{path}.groups", f"{group!r} is not one of its axes")
        yield from _compared(path, tensor)
        if BYTES[tensor.dtype] == 1:
            yield Problem(
                f"{path}.dtype",
                f"{tensor.dtype} has no value that no kernel leaves: an element left unwritten could not be told",
            )
    else:
        yield from _input(remains, path, tensor)


def _input(remains: Remains, path: str, tensor: TensorInput) -> Iterator[Problem]:
    if tensor.offsets_of is not None:
        yield from _offsets(remains, path, tensor, tensor.offsets_of)
    if tensor.below is not None:
        axis = axis_of(tensor.below)
        if axis is not None:
            yield from _dimension(remains, axis, f"{path}.below")
        if tensor.dtype in FLOATING:
            yield Problem(f"{path}.below", f"bounds integers, not {tensor.dtype}")
    if tensor.infinite and tensor.dtype not in INFINITE:
        yield Problem(f"{path}.infinite", f"{tensor.dtype} has no infinities")


def _compared(path: str, output: Output) -> Iterator[Problem]:
    integer = output.dtype not in FLOATING
    if output.compare == "rows" and integer:
        yield Problem(f"{path}.dtype", f"rows are compared as floating numbers, not {output.dtype}")
    if output.compare == "set_at_cut" and not integer:
        yield Problem(f"{path}.dtype", f"a set holds ids, which are integers, not {output.dtype}")
    if output.compare == "set_at_cut" and not output.shape:
        yield Problem(f"{path}.shape", "a set needs an axis to lie along")


def _offsets(remains: Remains, path: str, tensor: TensorInput, ragged: str) -> Iterator[Problem]:
    axes = remains.contract.axes
    yield from _ragged(remains, ragged, f"{path}.offsets_of")
    if tensor.optional:
        yield Problem(f"{path}.optional", "offsets are never absent")
    if tensor.below is not None:
        yield Problem(f"{path}.below", f"offsets are bounded by {ragged!r}")
    if tensor.dtype != "int64":
        yield Problem(f"{path}.dtype", f"offsets are int64, not {tensor.dtype}")
    wanted = [f"{name}+1" for name, axis in axes.items() if isinstance(axis, CountAxis) and axis.count_of == ragged]
    if not remains.partial("axes") and [str(extent) for extent in tensor.shape] not in [[name] for name in wanted]:
        yield Problem(
            f"{path}.shape", f"offsets of {ragged!r} have one entry more than it has lengths: a count axis + 1"
        )


def _scalars(remains: Remains) -> Iterator[Problem]:
    for name, scalar in remains.contract.inputs.items():
        if not isinstance(scalar, ScalarInput):
            continue
        if scalar.low is not None and scalar.high is not None and scalar.low > scalar.high:
            yield Problem(f"inputs.{name}", f"low {scalar.low:g} exceeds high {scalar.high:g}")
        else:
            yield from _legal(scalar, scalar.value, f"inputs.{name}.value")


def _legal(scalar: ScalarInput, param: Param, path: str) -> Iterator[Problem]:
    """A scalar is drawn inside its own domain only."""
    least, most = reach(param)
    low, high = scalar.low, scalar.high
    if (low is not None and least < low) or (high is not None and most > high):
        drawn = f"{least:g}" if least == most else f"{least:g} to {most:g}"
        domain = "..".join("" if bound is None else f"{bound:g}" for bound in (low, high))
        yield Problem(path, f"{drawn} is outside {domain}")
    if scalar.dtype == "int" and any(value != int(value) for value in numbers(param)):
        yield Problem(path, "an integer is wanted")


def _limits(remains: Remains) -> Iterator[Problem]:
    contract = remains.contract
    for name in sorted(set(contract.outputs) - set(contract.limits)):
        if not remains.lost("limits", name):
            yield Problem("limits", f"output {name!r} has no limit")
    places: list[tuple[str, Mapping[str, Limit]]] = [("limits", contract.limits)]
    places += [(f"probes[{index}].limits", probe.limits) for index, probe in remains.numbered("probes")]
    for path, limits in places:
        for name, limit in limits.items():
            if name not in contract.outputs and not remains.lost("outputs", name):
                yield Problem(f"{path}.{name}", "no output of this name")
            if not limit.median <= limit.p99 <= limit.maximum:
                yield Problem(f"{path}.{name}", "wants median <= p99 <= maximum")


def _draws(remains: Remains) -> Iterator[Problem]:
    contract = remains.contract
    places: list[tuple[str, Mapping[str, Distribution], Mapping[str, Param], Sequence[str]]]
    places = [("", contract.draws, {}, [])]
    places += [(f"regimes.{n}.", r.draws, r.values, r.absent) for n, r in contract.regimes.items()]
    places += [(f"probes[{i}].", p.draws, p.values, p.absent) for i, p in remains.numbered("probes")]
    for prefix, draws, values, absent in places:
        for name in draws:
            spec = contract.inputs.get(name)
            if not remains.lost("inputs", name) and not _drawn(spec):
                yield Problem(f"{prefix}draws.{name}", "not an input that is drawn")
            if isinstance(spec, TensorInput):
                yield from _fitting(remains, spec, draws[name], f"{prefix}draws.{name}")
        yield from _values(remains, values, f"{prefix}values")
        yield from _absent(remains, absent, draws, f"{prefix}absent")
    for name, regime in contract.regimes.items():
        given = set(contract.draws) | set(regime.draws) | set(regime.absent)
        for missing in sorted({n for n, spec in contract.inputs.items() if _drawn(spec)} - given):
            if not remains.lost("draws", missing):
                yield Problem(f"regimes.{name}.draws", f"input {missing!r} is never drawn")


def _absent(remains: Remains, absent: Sequence[str], draws: Mapping[str, Distribution], path: str) -> Iterator[Problem]:
    for name in absent:
        tensor = remains.contract.inputs.get(name)
        if not remains.lost("inputs", name) and not (isinstance(tensor, TensorInput) and tensor.optional):
            yield Problem(path, f"{name!r} is not an optional input")
        if name in draws:
            yield Problem(path, f"{name!r} is drawn and absent at once")


def _fitting(remains: Remains, spec: TensorInput, dist: Distribution, path: str) -> Iterator[Problem]:
    """A distribution that needs something of its input finds it there."""
    for part in within(dist):
        match part:
            case Portion() | Ids() if part.below is not None:
                yield Problem(f"{path}.below", "stands with the input, not here")
            case Portion() | Ids() if spec.below is None:
                yield Problem(path, f"{part.kind} needs an input with a bound (`below`)")
            case Packed() if part is not dist:
                yield Problem(path, "packed records are no part of another distribution")
            case Packed() if BYTES[spec.dtype] != 1 or spec.dtype in FLOATING:
                yield Problem(path, f"packed records are bytes (int8 or uint8), not {spec.dtype}")
            case Packed():
                sizes = [_constant(remains, extent) for extent in spec.shape[1:]]
                wanted = sum(BYTES[held.dtype] * math.prod(held.shape) for held in part.parts)
                given = math.prod(size for size in sizes if size is not None)
                if None not in sizes and given != wanted:
                    yield Problem(path, f"its parts take {wanted} bytes, a step of the input has {given}")
            case _:
                pass


def _constant(remains: Remains, extent: int | str) -> int | None:
    """The size of a dimension that is the same in every workload."""
    axis = remains.contract.axes.get(str(extent))
    return extent if isinstance(extent, int) else axis.const if isinstance(axis, ConstAxis) else None


def _values(remains: Remains, values: Mapping[str, Param], path: str) -> Iterator[Problem]:
    for name, value in values.items():
        scalar = remains.contract.inputs.get(name)
        if isinstance(scalar, ScalarInput):
            yield from _legal(scalar, value, f"{path}.{name}")
        elif not remains.lost("inputs", name):
            yield Problem(f"{path}.{name}", "not a scalar input")


def _drawn(spec: Any) -> bool:
    return isinstance(spec, TensorInput) and spec.offsets_of is None


def _workloads(remains: Remains) -> Iterator[Problem]:
    contract = remains.contract
    for index, workload in remains.numbered("workloads"):
        yield from _sizes(remains, workload.axes, f"workloads[{index}].axes")
    if not remains.partial("workloads") and not any(workload.scored for workload in contract.workloads):
        yield Problem("workloads", "no workload is scored")
    for device in DEVICES:
        anchors = [workload.name for workload in contract.workloads if workload.anchor and device in workload.device]
        if len(anchors) > 1:
            yield Problem("workloads", f"only one can be the anchor on {device}: {', '.join(anchors)}")


def _probes(remains: Remains) -> Iterator[Problem]:
    for index, probe in remains.numbered("probes"):
        yield from _sizes(remains, probe.axes, f"probes[{index}].axes")
        if probe.regime not in remains.contract.regimes and not remains.lost("regimes", probe.regime):
            yield Problem(f"probes[{index}].regime", f"no regime {probe.regime!r}")


def _names(remains: Remains, given: set[str], path: str) -> Iterator[Problem]:
    """A workload sets the axes that have no size of their own, and no others."""
    wanted = {name for name, axis in remains.contract.axes.items() if isinstance(axis, VarAxis | RaggedAxis)}
    for name in sorted(wanted - given):
        yield Problem(path, f"axis {name!r} has no value")
    for name in sorted(given - wanted):
        if not remains.lost("axes", name):
            yield Problem(f"{path}.{name}", "not an axis that a workload sets")


def _sizes(remains: Remains, axes: Sizes, path: str) -> Iterator[Problem]:
    yield from _names(remains, set(axes), path)
    for name, value in axes.items():
        match remains.contract.axes.get(name), value:
            case VarAxis() as axis, int():
                yield from _size(axis, value, f"{path}.{name}")
            case VarAxis(), list():
                yield Problem(f"{path}.{name}", "wants one number, not a list")
            case RaggedAxis(), int():
                yield Problem(f"{path}.{name}", "wants a list of lengths")
            case RaggedAxis() as axis, list():
                for index, length in enumerate(value):
                    if not axis.min_length <= length <= axis.max_length:
                        reason = f"{length} is outside {axis.min_length}..{axis.max_length}"
                        yield Problem(f"{path}.{name}[{index}]", reason)
            case _:
                pass


def _size(axis: VarAxis, value: int, path: str) -> Iterator[Problem]:
    if not axis.min <= value <= axis.max:
        yield Problem(path, f"{value} is outside {axis.min}..{axis.max}")
    elif value % axis.multiple:
        yield Problem(path, f"{value} is no multiple of {axis.multiple}")


def _relation(remains: Remains, relation: Relation, path: str) -> Iterator[Problem]:
    contract = remains.contract
    if relation.regime not in contract.regimes and not remains.lost("regimes", relation.regime):
        yield Problem(f"{path}.regime", f"no regime {relation.regime!r}")
    if remains.partial("axes") or remains.partial("inputs") or remains.partial("outputs"):
        return
    ragged = any(isinstance(axis, RaggedAxis) for axis in contract.axes.values())
    match relation.kind:
        case "split" | "alone" if not ragged:
            yield Problem(f"{path}.kind", "needs a ragged axis")
        case "split" if not relation.carry:
            yield Problem(f"{path}.carry", "says which output of the first part is which input of the second")
        case "permuted" if not isinstance(contract.axes.get(relation.axis or ""), VarAxis):
            yield Problem(f"{path}.axis", "wants an axis with min and max, whose steps change places")
        case "scaled" if not set(relation.powers) & set(contract.outputs):
            yield Problem(f"{path}.powers", "says how each output scales; one that is not named stays as it is")
        case _:
            pass
    yield from _carried(remains, relation, path)


def _carried(remains: Remains, relation: Relation, path: str) -> Iterator[Problem]:
    """What a relation hands over or scales is there and fits."""
    contract = remains.contract
    for name, target in relation.carry.items():
        given, taken = contract.outputs.get(name), contract.inputs.get(target)
        if given is None or not isinstance(taken, TensorInput):
            yield Problem(f"{path}.carry.{name}", "goes from an output to a tensor input")
        elif (given.shape, given.dtype) != (taken.shape, taken.dtype):
            yield Problem(f"{path}.carry.{name}", f"{name} and {target} differ in shape or dtype")
    for name in relation.powers:
        spec = contract.inputs.get(name)
        if not (name in contract.outputs or (isinstance(spec, TensorInput) and spec.lifetime == "call")):
            yield Problem(f"{path}.powers.{name}", "is neither an output nor a tensor that is new in every call")


def _hidden(remains: Remains, hidden: Hidden | Relation, path: str) -> Iterator[Problem]:
    yield from _names(remains, set(hidden.axes), path)
    for name, choice in hidden.axes.items():
        match remains.contract.axes.get(name), choice:
            case VarAxis() as axis, HiddenInt(choice=options):
                for index, value in enumerate(options):
                    yield from _size(axis, value, f"{path}.{name}.choice[{index}]")
            case VarAxis() as axis, HiddenRange(between=[low, high]):
                yield from _size(axis, low, f"{path}.{name}.between[0]")
                yield from _size(axis, high, f"{path}.{name}.between[1]")
                if not 1 <= low <= high:
                    yield Problem(f"{path}.{name}.between", "wants two sizes from 1 on, the first not above the second")
            case RaggedAxis() as axis, HiddenLengths():
                yield from _hidden_lengths(axis, choice, f"{path}.{name}")
            case VarAxis(), HiddenLengths():
                yield Problem(f"{path}.{name}", "wants a choice of numbers, not lengths")
            case RaggedAxis(), HiddenInt() | HiddenRange():
                yield Problem(f"{path}.{name}", "wants lengths: total and count")
            case _:
                pass


def _hidden_lengths(axis: RaggedAxis, choice: HiddenLengths, path: str) -> Iterator[Problem]:
    for key, (low, high) in (("total", choice.total), ("count", choice.count)):
        least = 1 if key == "count" else 0
        if not least <= low <= high:
            yield Problem(f"{path}.{key}", f"wants two numbers from {least} upwards, the first not above the second")
    if choice.count[1] * axis.min_length > choice.total[0]:
        yield Problem(
            path, f"{choice.count[1]} lengths of {axis.min_length} or more exceed a total of {choice.total[0]}"
        )
    if choice.total[1] > axis.max_length:
        yield Problem(f"{path}.total", f"one length may be all of {choice.total[1]}, above {axis.max_length}")


def _unique(names: Sequence[str], path: str) -> Iterator[Problem]:
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Problem(path, f"{name!r} stands twice")


def _files(remains: Remains, folder: Path) -> Iterator[Problem]:
    wanted: list[tuple[str, str]] = [("", "oracle.py")]
    wanted += [(f"baselines[{i}].file", baseline.file) for i, baseline in remains.numbered("baselines")]
    wanted += [(f"controls[{i}].file", control.file) for i, control in remains.numbered("controls")]
    wanted += [(f"faithful[{i}]", file) for i, file in remains.numbered("faithful")]
    for path, file in wanted:
        if not (folder / file).is_file():
            yield Problem(path, f"the file {file} is missing")


def _fails(remains: Remains) -> Iterator[Problem]:
    contract = remains.contract
    known = {probe.name for probe in contract.probes} | set(contract.regimes) | {h.name for h in contract.hidden}
    for index, control in remains.numbered("controls"):
        for name in control.fails:
            lost = any(remains.lost(section, name) for section in ("probes", "regimes", "hidden"))
            if name not in known and not lost:
                yield Problem(f"controls[{index}].fails", f"no probe, regime or hidden draw {name!r}")
