"""Definitions and workloads of flashinfer-bench: JSON from outside → frozen records. Pure; runs nothing of it.

The format, as its project declares it (flashinfer_bench/data/definition.py and workload.py, April 2026): a definition
has `axes`, const or var, `inputs` and `outputs` with shapes in these axes (null: a number by value), Python source of a
`reference`, and expressions as `constraints`. Workloads come as lines, each a trace without solution and evaluation.
"""

import json
import keyword
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from bot import digest
from bot.contract.mistakes import mistakes_of, written
from bot.contract.schema import DType
from bot.errors import DataError, Problem

DEFINITION_LIMIT = 256 * 1024
"""Bytes of a definition. The public ones have 3 to 12 thousand."""
WORKLOADS_LIMIT = 4 * 1024 * 1024
LINES_LIMIT = 2_000
"""Workloads of a file. The public ones have up to some hundred."""
DEPTH_LIMIT = 12
"""A definition is four levels deep; more is nobody's."""
PROBLEMS_LIMIT = 50
"""A document may hold thousands of mistakes; nobody reads them."""

_DIGITS = 20
_LARGEST = 2**53
"""Beyond it two readers of JSON no longer agree about a number."""
_PLUS = re.compile(r" *(\w+) *={1,2} *(\w+) *\+ *(\d{1,6}) *", re.ASCII)
_RUN = re.compile(r"^def +run *\(", re.MULTILINE)


def _held(dtype: str) -> str:
    if dtype not in get_args(DType):
        raise ValueError(f"{dtype[:40]!r} is no type that a contract can hold: {', '.join(get_args(DType))}")
    return dtype


def _parameter(name: str) -> str:
    if keyword.iskeyword(name) or name == "noise":
        raise ValueError("cannot be the name of a parameter of a kernel and of an oracle")
    return name


def _reference(text: str) -> str:
    if not _RUN.search(text):
        raise ValueError("has no function `run` at its top level")
    return text


Identifier = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
Parameter = Annotated[Identifier, AfterValidator(_parameter)]
Size = Annotated[int, Field(ge=0, lt=2**31)]
Line = Annotated[str, Field(min_length=1, max_length=400)]
Prose = Annotated[str, Field(max_length=4_000)]


class _Foreign(BaseModel):
    """Data of another project's: immutable, strict, unknown fields ignored."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", allow_inf_nan=False)


class Const(_Foreign):
    """An axis of one size."""

    type: Literal["const"]
    value: Annotated[int, Field(ge=1, lt=2**31)]


class Var(_Foreign):
    """An axis that each workload gives a size; the format knows no bounds."""

    type: Literal["var"]


class Spec(_Foreign):
    """A tensor, or a number that is passed by value (`shape` null)."""

    shape: Annotated[list[Identifier], Field(min_length=1, max_length=8)] | None
    dtype: Annotated[str, AfterValidator(_held)]
    description: Prose | None = None
    optional: bool = False


class Tensor(Spec):
    """What a kernel fills."""

    shape: Annotated[list[Identifier], Field(min_length=1, max_length=8)]


class Definition(_Foreign):
    """An operator as flashinfer-bench describes it. `digest`: of the whole document, whatever its order and spacing."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$")]
    op_type: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$")]
    axes: Annotated[
        dict[Identifier, Annotated[Const | Var, Field(discriminator="type")]], Field(min_length=1, max_length=64)
    ]
    inputs: Annotated[dict[Parameter, Spec], Field(min_length=1, max_length=64)]
    outputs: Annotated[dict[Parameter, Tensor], Field(min_length=1, max_length=16)]
    reference: Annotated[str, Field(max_length=100_000), AfterValidator(_reference)]
    description: Prose | None = None
    tags: Annotated[list[Line], Field(max_length=64)] = []
    constraints: Annotated[list[Line], Field(max_length=64)] = []
    digest: str = ""

    def size(self, axis: str) -> int | None:
        """The size of a constant axis; None for a variable one."""
        held = self.axes[axis]
        return held.value if isinstance(held, Const) else None

    def variable(self) -> frozenset[str]:
        """Axes that a workload gives a size."""
        return frozenset(name for name, axis in self.axes.items() if isinstance(axis, Var))

    def sums(self) -> dict[str, tuple[str, int, str]]:
        """Variable axes that constraints such as `L == N + 1` make of another one: axis, number, constraint."""
        found = [(_PLUS.fullmatch(constraint), constraint) for constraint in self.constraints]
        read = {m[1]: (m[2], int(m[3]), text) for m, text in found if m and {m[1], m[2]} <= self.variable()}
        # What is made of a made one, or of itself, is left as it stands.
        return {name: made for name, made in read.items() if made[0] not in read}


class Given(_Foreign):
    """Where the values of an input come from. Paths of files are not read."""

    type: Literal["random", "scalar", "safetensors"]
    value: float | bool | None = None


class Workload(_Foreign):
    """Sizes of the variable axes, and where values come from."""

    axes: dict[Identifier, Size]
    inputs: dict[Identifier, Given] = {}


class _Trace(_Foreign):
    definition: str
    workload: Workload
    solution: None = None
    evaluation: None = None


class _Object(dict[str, Any]):
    """A JSON object, and its keys that stand twice."""

    twice: tuple[str, ...] = ()


def read_definition(data: bytes | str, source: str) -> Definition:
    """The definition in a document.

    Raises:
        DataError: it is too large, no JSON, or no definition that a contract can follow; every problem with its path.
    """
    document = _parsed(data, DEFINITION_LIMIT, source)
    found = [*_unfit(document), *_crossed(document)]
    try:
        definition = Definition.model_validate(document)
    except ValidationError as error:
        mistakes = [mistake.problem() for mistake in mistakes_of(error, document)]
        raise _refused(source, found + mistakes) from None
    if found:
        raise _refused(source, found)
    return definition.model_copy(update={"digest": digest.of_document(document)})


def read_workloads(data: bytes, definition: Definition, source: str) -> list[Workload]:
    """The workloads of a definition, from lines of JSON.

    Raises:
        DataError: too large, or a line is no workload of this definition; every problem with its line.
    """
    if len(data) > WORKLOADS_LIMIT:
        raise _refused(source, [Problem("", f"has {len(data)} bytes; at most {WORKLOADS_LIMIT} are read")])
    lines = [(number, line) for number, line in enumerate(data.split(b"\n"), 1) if line.strip()]
    if not 1 <= len(lines) <= LINES_LIMIT:
        raise _refused(source, [Problem("", f"has {len(lines)} workloads; 1 to {LINES_LIMIT} are read")])
    workloads, found = [], list[Problem]()
    for number, line in lines:
        try:
            workloads.append(_workload(line, definition, source))
        except DataError as error:
            found += [Problem(f"line {number}: {each.path}".removesuffix(": "), each.reason) for each in error.problems]
    if found:
        raise _refused(source, found)
    return workloads


def _workload(line: bytes, definition: Definition, source: str) -> Workload:
    document = _parsed(line, DEFINITION_LIMIT, source)
    found = list(_unfit(document))
    try:
        trace = _Trace.model_validate(document)
    except ValidationError as error:
        raise _refused(source, found + [mistake.problem() for mistake in mistakes_of(error, document)]) from None
    if trace.definition != definition.name:
        found.append(Problem("definition", f"is not {definition.name}"))
    wanted, given = definition.variable(), trace.workload.axes
    found += [Problem("workload.axes", f"axis {name!r} has no size") for name in sorted(wanted - set(given))]
    found += [Problem(f"workload.axes.{name}", "no variable axis") for name in sorted(set(given) - wanted)]
    found += [
        Problem(f"workload.inputs.{name}", "no input of the definition")
        for name in sorted(set(trace.workload.inputs) - set(definition.inputs))
    ]
    found += [
        Problem(f"workload.axes.{name}", f"is {given[name]}, and not {base} + {plus} = {given[base] + plus}")
        for name, (base, plus, _) in definition.sums().items()
        if name in given and base in given and given[name] != given[base] + plus
    ]
    if found:
        raise _refused(source, found)
    return trace.workload


def _refused(source: str, found: list[Problem]) -> DataError:
    problems = list(dict.fromkeys(found))
    rest = len(problems) - PROBLEMS_LIMIT
    return DataError(source, [*problems[:PROBLEMS_LIMIT], *([Problem("", f"and {rest} more")] if rest > 0 else [])])


def _parsed(data: bytes | str, limit: int, source: str) -> Any:
    """Plain data of a JSON text. Numbers beyond what everybody reads alike become infinite, for `_unfit` to name."""
    if len(data) > limit:
        raise _refused(source, [Problem("", f"has {len(data)} bytes; at most {limit} are read")])
    try:
        text = data.decode() if isinstance(data, bytes) else data
        return json.loads(text, object_pairs_hook=_object, parse_int=_integer)
    except UnicodeDecodeError:
        reason = "not UTF-8 text"
    except RecursionError:
        reason = "nested too deeply"
    except json.JSONDecodeError as error:
        reason = f"not JSON: {error.msg} in line {error.lineno}, column {error.colno}"
    raise _refused(source, [Problem("", reason)])


def _integer(digits: str) -> float:
    # Reading a number takes the square of its length.
    return int(digits) if len(digits) <= _DIGITS else math.inf


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    found = _Object(pairs)
    if len(found) != len(pairs):
        found.twice = tuple(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
    return found


def _unfit(document: Any) -> Iterator[Problem]:
    """What JSON can hold and no document of ours does: keys twice, numbers beyond measure, depth, halves of letters."""
    left: list[tuple[tuple[str | int, ...], Any]] = [((), document)]
    while left:
        path, value = left.pop()
        if isinstance(value, dict | list) and len(path) >= DEPTH_LIMIT:
            yield Problem(written(path[:4]), "nested too deeply")
        elif isinstance(value, dict):
            yield from (Problem(written((*path, key)), "stands twice") for key in getattr(value, "twice", ()))
            yield from (Problem(written(path), "has a key that is no text") for key in value if not _is_text(key))
            left += [((*path, key), held) for key, held in value.items()]
        elif isinstance(value, list):
            left += [((*path, index), held) for index, held in enumerate(value)]
        elif isinstance(value, str) and not _is_text(value):
            yield Problem(written(path), "is no text: it holds half of a letter")
        elif isinstance(value, int | float) and not abs(value) < _LARGEST:
            yield Problem(written(path), "is no number that everybody reads alike")


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _crossed(document: Any) -> Iterator[Problem]:
    """Names that refer to nothing or stand for two things, in a document whose form may be wrong elsewhere."""
    sections = {key: _mapping(document, key) for key in ("axes", "inputs", "outputs")}
    for section in ("inputs", "outputs"):
        for name in sections[section]:
            shape = _mapping(sections[section], name).get("shape")
            for index, axis in enumerate(shape if isinstance(shape, list) else []):
                if not (isinstance(axis, str) and axis in sections["axes"]):
                    yield Problem(written((section, name, "shape", index)), "no axis of the definition")
    for name in sections["outputs"]:
        if name in sections["inputs"]:
            yield Problem(written(("outputs", name)), "an input has the same name")


def _mapping(document: Any, key: str) -> Mapping[str, Any]:
    held = document.get(key) if isinstance(document, dict) else None
    return held if isinstance(held, dict) else {}
