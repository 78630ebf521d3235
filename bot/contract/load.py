"""Read a contract folder: YAML to the frozen type, every mistake at once with its path. The only importer of yaml."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import BaseModel, Field, ValidationError

from bot import digest
from bot.contract.consistency import inconsistencies
from bot.contract.distribution import Frozen
from bot.contract.mistakes import Remains, Undecided, mistakes_of, remains, written
from bot.contract.schema import Contract, Device
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
        if key_node.tag == "tag:yaml.org,2002:merge":
            continue
        key = loader.construct_object(key_node, deep=True)
        if key in seen:
            raise yaml.constructor.ConstructorError(None, None, f"duplicate key {key!r}", key_node.start_mark)
        seen.add(key)
    found: dict[Any, Any] = loader.construct_mapping(node, deep=True)
    return found


_UniqueLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)

_DECIDE = "!decide"


def _undecided(loader: _UniqueLoader, node: yaml.ScalarNode) -> Undecided:
    return Undecided(str(loader.construct_scalar(node)))


_UniqueLoader.add_constructor(_DECIDE, _undecided)


class _Dumper(yaml.SafeDumper):
    """YAML with places that a person must decide."""


_Dumper.add_representer(Undecided, lambda dumper, held: dumper.represent_scalar(_DECIDE, held.text, style='"'))


def parse_yaml(text: str, source: str) -> Any:
    """Plain data from YAML text, without duplicate keys or Python objects.

    Raises:
        DataError: it is not YAML, or a key stands twice.
    """
    try:
        return yaml.load(text, Loader=_UniqueLoader)  # noqa: S506 - a SafeLoader that also refuses duplicate keys
    except yaml.YAMLError as error:
        raise DataError(source, [Problem("", " ".join(str(error).split()))]) from None


def dump_yaml(document: Any, *, flow: bool = False) -> str:
    """YAML text of plain data and `Undecided`, keys in the order given. `flow`: innermost collections in one line."""
    style = None if flow else False
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110, default_flow_style=style)


@dataclass(frozen=True, slots=True)
class Span:
    """Where a scalar stands in YAML text, the column of its key, and whether its mapping is written in braces."""

    start: int
    end: int
    column: int
    flow: bool


def locate(text: str, path: Sequence[str | int]) -> Span:
    """The scalar at the end of a path of keys and indices.

    Raises:
        KeyError, IndexError: nothing stands there.
    """
    # The pure-Python loader: libyaml counts its marks in bytes.
    node: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    column, flow = 0, False
    for part in path:
        if isinstance(part, int):
            node = node.value[part]
            continue
        entries = {key.value: (key, value) for key, value in node.value}
        flow = bool(node.flow_style)
        column, node = entries[part][0].start_mark.column, entries[part][1]
    start, end = node.start_mark.index, node.end_mark.index
    return Span(start, start + len(text[start:end].rstrip()), column, flow)


def problems_of(error: ValidationError) -> list[Problem]:
    """What pydantic found, as paths such as `workloads[2].axes.H`."""
    found: dict[Problem, None] = {}
    for item in error.errors(include_url=False, include_input=False):
        found[Problem(written(item["loc"]), item["msg"].removeprefix("Value error, "))] = None
    return list(found)


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
    contract = _parse(folder)
    files = {
        str(p.relative_to(folder)): p.read_bytes() for p in [*sorted(folder.rglob("*.py")), folder / "contract.yaml"]
    }
    return LoadedContract(contract, folder, digest.of_files(files))


def _parse(folder: Path) -> Contract:
    """The contract of a folder; mistakes of type and of reference are found together."""
    source = f"contracts/{folder.name}/contract.yaml"
    try:
        data = parse_yaml((folder / "contract.yaml").read_text(encoding="utf-8"), source)
    except UnicodeDecodeError:
        raise DataError(source, [Problem("", "not UTF-8 text")]) from None
    found = []
    try:
        sound = Remains.whole(Contract.model_validate(data))
    except ValidationError as error:
        mistakes = mistakes_of(error, data)
        sound = remains(data if isinstance(data, dict) else {}, mistakes)
        found = [mistake.problem() for mistake in mistakes]
    found += inconsistencies(sound, folder)
    if found:
        raise DataError(source, found)
    return sound.contract


class Incumbents(Frozen):
    """`kernels/<op>/index.yaml`: the kernel merged for `cpu` and for each compute capability, a file beside it."""

    incumbents: dict[
        Annotated[str, Field(pattern=r"^(cpu|sm_[0-9]{2,3})$")],
        Annotated[str, Field(pattern=r"^[a-z]+_[A-Za-z0-9_]+\.py$")],
    ] = {}

    def on(self, device: Device) -> dict[str, str]:
        """Those that can be merged for what an exam runs on; which GPU it is, only the verifier knows."""
        return {target: file for target, file in self.incumbents.items() if (target == "cpu") == (device == "cpu")}


def load_incumbents(kernels: Path, name: str) -> Incumbents:
    """The kernels merged for a contract, as the index names them, files there or not.

    Raises:
        DataError: the index has mistakes.
    """
    index = kernels / name / "index.yaml"
    if not index.is_file():
        return Incumbents()
    source = f"kernels/{name}/index.yaml"
    try:
        text = index.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise DataError(source, [Problem("", "not UTF-8 text")]) from None
    return validate(Incumbents, parse_yaml(text, source), source)


def read_incumbents(kernels: Path, name: str, device: Device) -> dict[str, tuple[str, str]]:
    """File name and source of the kernels merged for a contract on this device, by what each is merged for.

    Raises:
        DataError: the index has mistakes, or names a file that is not there.
    """
    found: dict[str, tuple[str, str]] = {}
    for target, file in load_incumbents(kernels, name).on(device).items():
        if not (kernels / name / file).is_file():
            source = f"kernels/{name}/index.yaml"
            raise DataError(source, [Problem(f"incumbents.{target}", f"the file {file} is missing")])
        found[target] = file, (kernels / name / file).read_text(encoding="utf-8")
    return found
