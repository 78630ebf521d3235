"""Read a contract folder: YAML to the frozen type, every mistake at once with its path. The only importer of yaml."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import BaseModel, Field, ValidationError

from bot import digest
from bot.contract.distribution import Distribution, Frozen
from bot.contract.schema import (
    Contract,
    CountAxis,
    Device,
    Output,
    RaggedAxis,
    ScalarInput,
    Sizes,
    TensorInput,
    TotalAxis,
    VarAxis,
    axis_of,
)
from bot.errors import DataError, Problem, UsageError

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class LoadedContract:
    """A contract, where its files are, and the digest of all of them."""

    contract: Contract
    folder: Path
    digest: str

    def read(self, file: str) -> str:
        """Text of one of the contract's files (`oracle.py`, `controls/…`)."""
        return (self.folder / file).read_text(encoding="utf-8")


class _UniqueLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc] # libyaml, ten times faster
    """YAML without duplicate keys: the second of two would silently win."""


def _mapping(loader: _UniqueLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if key in seen:
            raise yaml.constructor.ConstructorError(None, None, f"duplicate key {key!r}", key_node.start_mark)
        seen.add(key)
    found: dict[Any, Any] = loader.construct_mapping(node, deep=True)
    return found


_UniqueLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def parse_yaml(text: str, source: str) -> Any:
    """Plain data from YAML text, without duplicate keys or Python objects.

    Raises:
        DataError: it is not YAML, or a key stands twice.
    """
    try:
        return yaml.load(text, Loader=_UniqueLoader)  # noqa: S506 - a SafeLoader that also refuses duplicate keys
    except yaml.YAMLError as error:
        raise DataError(source, [Problem("", " ".join(str(error).split()))]) from None


def dump_yaml(document: Any) -> str:
    """YAML text of plain data, keys in the order given."""
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110)


def problems_of(error: ValidationError) -> list[Problem]:
    """What pydantic found, as paths such as `workloads[2].axes.H`."""
    found: dict[tuple[str, str], None] = {}
    for item in error.errors(include_url=False, include_input=False):
        path = ""
        for part in item["loc"]:
            path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
        found[(path, item["msg"].removeprefix("Value error, "))] = None
    return [Problem(path, reason) for path, reason in found]


def validate(model: type[M], data: Any, source: str) -> M:
    """Plain data as a frozen type.

    Raises:
        DataError: with every problem and its path.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise DataError(source, problems_of(error)) from None


def contract_names(root: Path) -> list[str]:
    """Names of the contracts below `root` (the folder `contracts/`)."""
    return sorted(path.parent.name for path in root.glob("*/contract.yaml"))


def load_contract(root: Path, name: str) -> LoadedContract:
    """The contract `name` from the folder `contracts/`.

    Raises:
        UsageError: there is none of that name.
        DataError: its file has mistakes; all of them, with paths.
    """
    folder = root / name
    if name not in contract_names(root):
        known = ", ".join(contract_names(root)) or "none"
        raise UsageError(f"unknown contract {name!r}; known: {known}")
    source = f"contracts/{name}/contract.yaml"
    data = parse_yaml((folder / "contract.yaml").read_text(encoding="utf-8"), source)
    contract = validate(Contract, data, source)
    found = list(_inconsistencies(contract, folder))
    if found:
        raise DataError(source, found)
    files = {
        str(p.relative_to(folder)): p.read_bytes() for p in [*sorted(folder.rglob("*.py")), folder / "contract.yaml"]
    }
    return LoadedContract(contract, folder, digest.of_files(files))


def _inconsistencies(contract: Contract, folder: Path) -> Iterator[Problem]:
    """Mistakes that a type cannot see: names that refer to nothing, sizes outside their domain, missing files."""
    if contract.name != folder.name:
        yield Problem("name", f"is {contract.name!r}, but the folder is {folder.name!r}")
    yield from _axes(contract)
    yield from _tensors(contract)
    yield from _draws(contract)
    for index, workload in enumerate(contract.workloads):
        yield from _sizes(contract, workload.axes, f"workloads[{index}].axes")
    for index, probe in enumerate(contract.probes):
        yield from _sizes(contract, probe.axes, f"probes[{index}].axes")
        if probe.regime not in contract.regimes:
            yield Problem(f"probes[{index}].regime", f"no regime {probe.regime!r}")
    for index, hidden in enumerate(contract.hidden):
        yield from _hidden_names(contract, set(hidden.axes), f"hidden[{index}].axes")
    yield from _unique([w.name for w in contract.workloads], "workloads")
    yield from _unique([p.name for p in contract.probes], "probes")
    yield from _unique([b.name for b in contract.baselines], "baselines")
    yield from _files(contract, folder)


def _axes(contract: Contract) -> Iterator[Problem]:
    for name, axis in contract.axes.items():
        target = (
            axis.total_of if isinstance(axis, TotalAxis) else axis.count_of if isinstance(axis, CountAxis) else None
        )
        if target is not None and not isinstance(contract.axes.get(target), RaggedAxis):
            yield Problem(f"axes.{name}", f"refers to {target!r}, which is not a ragged axis")
        if isinstance(axis, VarAxis) and axis.min > axis.max:
            yield Problem(f"axes.{name}", f"min {axis.min} exceeds max {axis.max}")


def _tensors(contract: Contract) -> Iterator[Problem]:
    tensors: dict[str, TensorInput | Output] = {
        f"inputs.{name}": tensor for name, tensor in contract.inputs.items() if isinstance(tensor, TensorInput)
    }
    tensors |= {f"outputs.{name}": output for name, output in contract.outputs.items()}
    for path, tensor in tensors.items():
        yield from _tensor(contract, path, tensor)
    for name in set(contract.inputs) & set(contract.outputs):
        yield Problem(f"outputs.{name}", "an input has the same name")
    for name in set(contract.outputs) - set(contract.limits):
        yield Problem("limits", f"output {name!r} has no limit")
    for name in set(contract.limits) - set(contract.outputs):
        yield Problem(f"limits.{name}", "no output of this name")


def _tensor(contract: Contract, path: str, tensor: TensorInput | Output) -> Iterator[Problem]:
    axes = [axis_of(extent) for extent in tensor.shape]
    for index, axis in enumerate(axes):
        if axis is not None and (axis not in contract.axes or isinstance(contract.axes[axis], RaggedAxis)):
            yield Problem(f"{path}.shape[{index}]", f"no axis {axis!r} that could be a dimension")
    if isinstance(tensor, Output):
        for group in set(tensor.groups) - set(axes):
            yield Problem(f"{path}.groups", f"{group!r} is not one of its axes")
    elif tensor.offsets_of is not None and not isinstance(contract.axes.get(tensor.offsets_of), RaggedAxis):
        yield Problem(f"{path}.offsets_of", f"{tensor.offsets_of!r} is not a ragged axis")


def _draws(contract: Contract) -> Iterator[Problem]:
    drawn = {n for n, t in contract.inputs.items() if isinstance(t, TensorInput) and t.offsets_of is None}
    scalars = {n for n, t in contract.inputs.items() if isinstance(t, ScalarInput)}
    optional = {n for n, t in contract.inputs.items() if isinstance(t, TensorInput) and t.optional}
    places: list[tuple[str, Mapping[str, Distribution], Mapping[str, Any], list[str]]] = [("", contract.draws, {}, [])]
    places += [(f"regimes.{n}.", r.draws, r.values, r.absent) for n, r in contract.regimes.items()]
    places += [(f"probes[{i}].", p.draws, p.values, p.absent) for i, p in enumerate(contract.probes)]
    for prefix, draws, values, absent in places:
        for name in set(draws) - drawn:
            yield Problem(f"{prefix}draws.{name}", "not an input that is drawn")
        for name in set(values) - scalars:
            yield Problem(f"{prefix}values.{name}", "not a scalar input")
        for name in set(absent) - optional:
            yield Problem(f"{prefix}absent", f"{name!r} is not an optional input")
    for name, regime in contract.regimes.items():
        for missing in sorted(drawn - set(contract.draws) - set(regime.draws) - set(regime.absent)):
            yield Problem(f"regimes.{name}.draws", f"input {missing!r} is never drawn")


def _hidden_names(contract: Contract, given: set[str], path: str) -> Iterator[Problem]:
    wanted = {name for name, axis in contract.axes.items() if isinstance(axis, VarAxis | RaggedAxis)}
    for name in sorted(wanted - given):
        yield Problem(path, f"axis {name!r} has no value")
    for name in sorted(given - wanted):
        yield Problem(f"{path}.{name}", "not an axis that a workload sets")


def _sizes(contract: Contract, axes: Sizes, path: str) -> Iterator[Problem]:
    yield from _hidden_names(contract, set(axes), path)
    for name, value in axes.items():
        match contract.axes.get(name), value:
            case VarAxis() as axis, int() if not axis.min <= value <= axis.max:
                yield Problem(f"{path}.{name}", f"{value} is outside {axis.min}..{axis.max}")
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


def _unique(names: list[str], path: str) -> Iterator[Problem]:
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Problem(path, f"{name!r} stands twice")


def _files(contract: Contract, folder: Path) -> Iterator[Problem]:
    wanted = [("", "oracle.py"), *((f"baselines[{i}].file", b.file) for i, b in enumerate(contract.baselines))]
    wanted += [(f"controls[{i}].file", c.file) for i, c in enumerate(contract.controls)]
    wanted += [(f"faithful[{i}]", file) for i, file in enumerate(contract.faithful)]
    for path, file in wanted:
        if not (folder / file).is_file():
            yield Problem(path, f"the file {file} is missing")
    known = (
        {probe.name for probe in contract.probes} | set(contract.regimes) | {hidden.name for hidden in contract.hidden}
    )
    for index, control in enumerate(contract.controls):
        for name in control.fails:
            if name not in known:
                yield Problem(f"controls[{index}].fails", f"no probe, regime or hidden draw {name!r}")
    devices: list[Device] = ["cpu", "cuda"]
    if not any(contract.scored(device) for device in devices):
        yield Problem("workloads", "no workload is scored")


class Incumbents(Frozen):
    """`kernels/<op>/index.yaml`: the merged kernel for each architecture, a file beside it."""

    incumbents: dict[str, Annotated[str, Field(pattern=r"^[a-z]+_[A-Za-z0-9_]+\.py$")]] = {}


def load_incumbent(kernels: Path, name: str, architecture: str) -> tuple[str, str] | None:
    """File name and source of the kernel merged for this contract and architecture, if there is one.

    Raises:
        DataError: the index has mistakes, or names a file that is not there.
    """
    index = kernels / name / "index.yaml"
    if not index.is_file():
        return None
    source = f"kernels/{name}/index.yaml"
    file = validate(Incumbents, parse_yaml(index.read_text(encoding="utf-8"), source), source).incumbents.get(
        architecture
    )
    if file is None:
        return None
    if not (kernels / name / file).is_file():
        raise DataError(source, [Problem(f"incumbents.{architecture}", f"the file {file} is missing")])
    return file, (kernels / name / file).read_text(encoding="utf-8")
