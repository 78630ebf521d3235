"""A definition of flashinfer-bench → the files of a draft contract. Pure; nothing of the definition is run.

What follows from a definition is written down. What only a person can decide stands there as `!decide "…"`, which
`proctor contract check` refuses, each with its path. The reference becomes comments of `oracle.py`: an oracle is
trusted code, which runs beside the expected values, so that its author turns it into float64 by hand.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bot.contract.interchange.flashinfer_bench import Definition, Spec, Workload
from bot.contract.load import dump_yaml
from bot.contract.mistakes import Undecided
from bot.contract.schema import FLOATING
from bot.sanitize import printable

WORKLOADS = 16
"""Of more than these the sizes are spread: each one is timed in every regime."""
LENGTHS = 4_096
"""A workload with more sequences is not written out."""

_LAST = re.compile(r" *(\w+) *={1,2} *(\w+)\[-1\](?:\.item\(\))? *", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_]{1,40}", re.ASCII)

HEAD = """\
# A draft, made by `proctor contract import` of the flashinfer-bench definition {name},
# sha256 {digest}.
# It is no contract yet: `proctor contract check {contract}` refuses it until every `!decide` has been replaced and
# oracle.py is written. contracts/README.md lists all keys.
"""

DECIDED: Mapping[str, tuple[str, str]] = {
    "compute": (
        "The roundings that an honest kernel may make.",
        "as in {operands: bfloat16, accumulate: float32}: what matrix operands are rounded to, what sums are kept in",
    ),
    "limits": (
        "Largest honest error of each output, in noise units.",
        "for each output median, p99, maximum and source: begin with wide ones, then `proctor contract calibrate`",
    ),
    "regimes": (
        "Families of input distributions, no parameter of which is fixed. A definition has none.",
        "how callers' values are spread: two families at least, which hide different mistakes",
    ),
    "hidden": (
        "Draws at sizes that nobody was told.",
        "sizes off the workloads: odd ones, one, none where it is legal",
    ),
    "probes": (
        "Inputs made to break one shortcut each.",
        "for each shortcut that you fear an input that shows it: extreme values, empty sequences, absent inputs",
    ),
    "baselines": (
        "Kernels to compare with, files under baselines/.",
        "the fastest kernels that you know: without one that is right nothing is `improved`",
    ),
    "controls": (
        "Deliberately wrong kernels, files under controls/; `fails` names the places that must see each.",
        "for each cheat that you fear a kernel that commits it, which the exam must refuse",
    ),
    "faithful": (
        "Honest kernels that round differently, files under faithful/. They must always pass.",
        "two at least: limits are measured on them",
    ),
    "work": (
        "Least operations of a call, as a product of axes and numbers; bytes follow from the tensors.",
        "as in {operations: [2, B, D]}, or take the key out: a time below its floor cannot be true",
    ),
}
"""Keys that only a person can fill: what stands there in a contract, and what is to be decided."""

ORACLE = '''\
"""DRAFT of the float64 reference of {contract}: it computes nothing yet.

Below, as comments, is the reference of the flashinfer-bench definition {name}.
Read it first: an oracle is trusted and runs outside the sandbox. Then write it anew in float64:

- floating inputs arrive as float64 and integers as int64: casts to a narrower type go, and nothing is rounded;
- `noise(x)` stands where a faithful kernel rounds a matrix operand, never on inputs as given or on running sums;
- every output is returned by name, and no input is changed.
"""


def oracle(*, {parameters}, noise):
    raise NotImplementedError("a draft: write the reference below anew, in float64")


{reference}
'''


@dataclass(frozen=True, slots=True)
class _Ragged:
    """Packed sequences: `lengths` is our name for the axis; the definition's are its sum, its number, its offsets."""

    lengths: str
    total: str
    count: str
    offsets: str


@dataclass(frozen=True, slots=True)
class _Structure:
    """What constraints say of axes. `plus`: an axis that is another one and some. `rest`: what we do not understand."""

    plus: Mapping[str, str]
    ragged: _Ragged | None
    rest: Sequence[str]


def draft(definition: Definition, workloads: Sequence[Workload], contract: str) -> dict[str, str]:
    """Files of the folder `contracts/<contract>/`, by name."""
    structure = _structure(definition)
    return {
        "contract.yaml": "\n".join(_sections(definition, workloads, structure, contract)),
        "oracle.py": ORACLE.format(
            contract=contract,
            name=definition.name,
            parameters=", ".join(definition.inputs),
            reference=_commented(definition.reference),
        ),
    }


def suggested_name(definition: Definition) -> str:
    """A name for the contract of a definition."""
    name = re.sub(r"[^a-z0-9]+", "_", definition.name.casefold()).strip("_")
    return (name if name[:1].isalpha() else f"op_{name}")[:64].rstrip("_")


def _sections(
    definition: Definition, workloads: Sequence[Workload], structure: _Structure, contract: str
) -> Iterator[str]:
    said = _flat(definition.description or "")
    summary = f"{said} Made of the definition with the public name {definition.name} (flashinfer-bench)".strip()
    yield HEAD.format(name=definition.name, digest=definition.digest, contract=contract) + dump_yaml(
        {"name": contract, "version": 1, "summary": f"{summary}."}
    )
    comments = ["Named dimensions. A workload sets those with `min` and `max`, and lists of lengths."]
    if structure.rest:
        comments += ["The definition's constraints, which a contract must say in its own words:"]
        comments += [f"  {_flat(constraint)}" for constraint in structure.rest]
    yield _section(comments, {"axes": dict(_axes(definition, workloads, structure))})
    yield _section(
        [
            "What a kernel gets, in the order of its arguments; then what it fills. Say of weights `lifetime: static`,",
            "of tables `metadata`, and of ids and lengths under which size they stay (`below`).",
        ],
        {"inputs": {name: _input(name, spec, workloads, structure) for name, spec in definition.inputs.items()}},
    )
    yield _section([], {"outputs": {name: _output(held, structure) for name, held in definition.outputs.items()}})
    yield _workloads(definition, workloads, structure)
    yield from (_section([about], {key: Undecided(what)}) for key, (about, what) in DECIDED.items())


def _section(comments: Sequence[str], document: Mapping[str, Any]) -> str:
    return "".join(f"# {line}\n" for line in comments) + dump_yaml(dict(document), flow=True)


def _structure(definition: Definition) -> _Structure:
    sums = definition.sums()
    plus = {name: f"{base}+{number}" for name, (base, number, _) in sums.items()}
    rest = [each for each in definition.constraints if each not in {text for _, _, text in sums.values()}]
    for constraint in rest:
        found = _LAST.fullmatch(constraint)
        ragged = _ragged(definition, plus, found[1], found[2]) if found else None
        if ragged is not None:
            return _Structure(plus, ragged, [each for each in rest if each != constraint])
    return _Structure(plus, None, rest)


def _ragged(definition: Definition, plus: Mapping[str, str], total: str, offsets: str) -> _Ragged | None:
    """Packed sequences, where one tensor of integers has an entry more than there are, and ends with their sum."""
    spec = definition.inputs.get(offsets)
    if spec is None or spec.shape is None or len(spec.shape) != 1 or spec.dtype in FLOATING:
        return None
    count, _, one = plus.get(spec.shape[0], "").partition("+")
    if one != "1" or total not in definition.variable() - {count, *plus}:
        return None
    names = ("lengths", *(f"lengths_{number}" for number in range(len(definition.axes))))
    return _Ragged(next(name for name in names if name not in definition.axes), total, count, offsets)


def _axes(definition: Definition, workloads: Sequence[Workload], structure: _Structure) -> Iterator[tuple[str, Any]]:
    ragged = structure.ragged
    if ragged is not None:
        total = _seen([w.axes[ragged.total] for w in workloads])
        most = Undecided(f"the longest legal sequence; min_length is the shortest{total and f'; sums seen: {total}'}")
        yield ragged.lengths, {"ragged": True, "min_length": 0, "max_length": most}
    for name in definition.axes:
        size = definition.size(name)
        if size is not None:
            yield name, {"const": size}
        elif ragged is not None and name == ragged.total:
            yield name, {"total_of": ragged.lengths}
        elif ragged is not None and name == ragged.count:
            yield name, {"count_of": ragged.lengths}
        elif name not in structure.plus:
            seen = _seen([workload.axes[name] for workload in workloads])
            told = "the largest legal size; min is the smallest, 0 where none is legal"
            yield name, {"min": 1, "max": Undecided(told + (f"; seen: {seen}" if seen else ""))}


def _seen(values: Sequence[float]) -> str:
    if not values:
        return ""
    least, most = min(values), max(values)
    return f"{least:.12g}" if least == most else f"{least:.12g} to {most:.12g}"


def _tensor(spec: Spec, structure: _Structure) -> dict[str, Any]:
    shape = [structure.plus.get(axis, axis) for axis in spec.shape or ()]
    doc = _flat(spec.description or "")
    return {"shape": shape, "dtype": spec.dtype} | ({"doc": doc} if doc else {})


def _output(spec: Spec, structure: _Structure) -> dict[str, Any]:
    told = "integers are near to nothing: set_at_cut for the ids of a top-k; contracts compare no others"
    return _tensor(spec, structure) | ({} if spec.dtype in FLOATING else {"compare": Undecided(told)})


def _input(name: str, spec: Spec, workloads: Sequence[Workload], structure: _Structure) -> dict[str, Any]:
    if spec.shape is None:
        return _scalar(name, spec, workloads)
    held = _tensor(spec, structure)
    if structure.ragged is not None and name == structure.ragged.offsets:
        return held | {"lifetime": "metadata", "offsets_of": structure.ragged.lengths}
    return held | ({"optional": True} if spec.optional else {})


def _scalar(name: str, spec: Spec, workloads: Sequence[Workload]) -> dict[str, Any]:
    given = [workload.inputs[name].value for workload in workloads if name in workload.inputs]
    values = [value for value in given if value is not None and not isinstance(value, bool)]
    seen = _seen(values)
    told = f"; seen: {seen}" if seen else ""
    doc = _flat(spec.description or "")
    return {
        "dtype": "float" if spec.dtype in FLOATING else "int",
        "value": values[0] if values else Undecided("the value that callers pass"),
        "low": Undecided(f"the least legal value{told}"),
        "high": Undecided(f"the largest legal value{told}"),
    } | ({"doc": doc} if doc else {})


def _workloads(definition: Definition, workloads: Sequence[Workload], structure: _Structure) -> str:
    about = ["Scored workloads are timed. Give some `device: [cpu]`, small ones, so that `check` can be run anywhere."]
    if not workloads:
        told = Undecided("the sizes that callers really use: name, device and axes of each")
        return _section(about, {"workloads": told})
    sizes = _spread(workloads)
    about += [f"{len(workloads)} workloads of the definition have these sizes." if len(sizes) <= WORKLOADS else ""]
    if len(sizes) > WORKLOADS:
        about[-1] = f"{WORKLOADS} of the {len(sizes)} sizes that {len(workloads)} workloads of the definition have."
        sizes = [sizes[round(step * (len(sizes) - 1) / (WORKLOADS - 1))] for step in range(WORKLOADS)]
    if structure.ragged is not None:
        about += [
            "Lengths are as even as their sum lets them be: the definition keeps the real ones in files of its own."
        ]
    free = [name for name in definition.axes if name in definition.variable() - set(structure.plus)]
    names = ["_".join(f"{name}{size[name]}" for name in free) for size in sizes]
    fit = len(set(names)) == len(names) and all(_NAME.fullmatch(name) for name in names)
    listed = [
        {"name": name if fit else f"size_{number}", "device": ["cuda"], "axes": _sizes(size, free, structure.ragged)}
        for number, (name, size) in enumerate(zip(names, sizes, strict=True), 1)
    ]
    return _section(about, {"workloads": listed})


def _spread(workloads: Sequence[Workload]) -> list[Mapping[str, int]]:
    """Different sizes, the smallest first."""
    different = {tuple(sorted(workload.axes.items())): workload.axes for workload in workloads}
    return sorted(different.values(), key=lambda axes: (sum(axes.values()), sorted(axes.items())))


def _sizes(size: Mapping[str, int], free: Sequence[str], ragged: _Ragged | None) -> dict[str, Any]:
    if ragged is None:
        return {name: size[name] for name in free}
    total, count = size[ragged.total], size[ragged.count]
    lengths: list[int] | Undecided = Undecided(f"{count} lengths that sum to {total}")
    if 0 < count <= LENGTHS or total == count == 0:
        lengths = [total // count + (number < total % count) for number in range(count)]
    return {ragged.lengths: lengths} | {name: size[name] for name in free if name not in {ragged.total, ragged.count}}


def _flat(text: str) -> str:
    return " ".join(printable(text).split())


def _commented(source: str) -> str:
    """Python source as comments: hidden characters out, no line that could end one."""
    return "\n".join(f"# {line}".rstrip() for line in printable(source).splitlines())
