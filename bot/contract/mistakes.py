"""Read what pydantic says of a document as mistakes in that document, and keep of a contract what they do not touch.

Of a union's alternatives only the one that fits best speaks: a tensor with an unknown dtype is no scalar without a
value. What remains of a contract can then be checked further, without blaming a name for a part that is broken.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast, get_origin

from pydantic import TypeAdapter, ValidationError

from bot.contract.schema import Contract
from bot.errors import Problem

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Undecided:
    """What stands in a draft where a person must decide: `!decide "…"` in YAML. It fits nowhere; its text says why."""

    text: str


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing wrong, and the keys and indices that lead to it."""

    path: Path
    reason: str

    def problem(self) -> Problem:
        """With the path as people write it: `workloads[2].axes.H`."""
        return Problem(written(self.path), self.reason)


def written(path: Path) -> str:
    """`workloads[2].axes.H`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def mistakes_of(error: ValidationError, document: Any) -> list[Mistake]:
    """All mistakes in `document`, each once. Of what holds a place to be decided nothing else is said."""
    found = [_Finding.read(item, document) for item in error.errors(include_url=False, include_input=False)]
    undecided = list(_undecided(document))
    around = {mistake.path[:length] for mistake in undecided for length in range(len(mistake.path) + 1)}
    mistakes = dict.fromkeys(finding.mistake() for finding in _best(found, 0))
    return [*undecided, *(mistake for mistake in mistakes if mistake.path not in around)]


def _undecided(document: Any) -> Iterator[Mistake]:
    """Places that a person must decide, in their order. What YAML's aliases hold many times is looked into once."""
    left: list[tuple[Path, Any]] = [((), document)]
    seen: set[int] = set()
    while left:
        path, held = left.pop()
        if isinstance(held, Undecided):
            yield Mistake(path, f"to be decided: {held.text}")
        elif isinstance(held, dict | list) and id(held) not in seen:
            seen.add(id(held))
            entries = list(held.items() if isinstance(held, dict) else enumerate(held))
            left += [((*path, key), value) for key, value in reversed(entries)]


@dataclass(frozen=True, slots=True)
class _Finding:
    """An error of pydantic's. Its location mixes keys of the document with names of alternatives: `real` tells."""

    location: Path
    real: tuple[bool, ...]
    reason: str

    @classmethod
    def read(cls, item: Mapping[str, Any], document: Any) -> "_Finding":
        cursor, real = document, []
        for part in item["loc"]:
            known = isinstance(cursor, dict) and part in cursor
            known |= isinstance(cursor, list) and isinstance(part, int) and part < len(cursor)
            if known:
                cursor = cursor[part]
            real.append(known)
        if item["type"] == "missing" and real:
            real[-1] = True
        return cls(tuple(item["loc"]), tuple(real), item["msg"].removeprefix("Value error, "))

    def mistake(self) -> Mistake:
        return Mistake(tuple(p for p, real in zip(self.location, self.real, strict=True) if real), self.reason)


def _best(findings: Sequence[_Finding], depth: int) -> list[_Finding]:
    """Findings that share their first `depth` parts, less those of alternatives that fit worse than another."""
    best = [finding for finding in findings if len(finding.location) == depth]
    keys: dict[str | int, list[_Finding]] = {}
    alternatives: dict[str | int, list[_Finding]] = {}
    for finding in findings:
        if len(finding.location) > depth:
            kind = keys if finding.real[depth] else alternatives
            kind.setdefault(finding.location[depth], []).append(finding)
    for group in keys.values():
        best += _best(group, depth + 1)
    if alternatives:
        groups = [_best(group, depth + 1) for group in alternatives.values()]
        fewest = min(len(group) for group in groups)
        fitting = [group for group in groups if len(group) == fewest]
        best += fitting[0] if len(fitting) == 1 else [_joined(fitting, depth)]
    return best


def _joined(groups: Sequence[Sequence[_Finding]], depth: int) -> _Finding:
    """Alternatives that fit equally badly: one mistake, at the place where they part."""
    first = groups[0][0]
    reasons = []
    for group in groups:
        told = [(written(finding.mistake().path[sum(first.real[:depth]) :]), finding.reason) for finding in group]
        reasons.append(" and ".join(f"{path}: {reason}" if path else reason for path, reason in told))
    return _Finding(first.location[:depth], first.real[:depth], ", or ".join(dict.fromkeys(reasons)))


@dataclass(frozen=True, slots=True)
class Remains:
    """A contract less its broken entries. `broken`: paths such as `("axes", "T")`, or `("axes",)` for all of them;
    entries of a list go by their names. `numbers`: where the entries left in a list stood."""

    contract: Contract
    broken: frozenset[Path]
    numbers: Mapping[str, Sequence[int]]

    @classmethod
    def whole(cls, contract: Contract) -> "Remains":
        """Nothing is broken."""
        return cls(contract, frozenset(), {})

    def lost(self, section: str, *names: str) -> bool:
        """Whether the section, or one of its entries of these names, is broken."""
        return (section,) in self.broken or any((section, name) in self.broken for name in names)

    def partial(self, section: str) -> bool:
        """Whether anything of the section is broken."""
        return any(path[0] == section for path in self.broken)

    def numbered(self, section: str) -> Iterator[tuple[int, Any]]:
        """Entries of a list, each with its place in the document."""
        entries = getattr(self.contract, section)
        yield from zip(self.numbers.get(section, range(len(entries))), entries, strict=True)


def remains(document: Mapping[str, Any], mistakes: Sequence[Mistake]) -> Remains:
    """What of a contract is sound: an entry with a mistake goes as a whole."""
    touched = {mistake.path[:2] for mistake in mistakes}
    broken = {path for path in touched if path and path[0] in Contract.model_fields}
    fields: dict[str, Any] = {}
    numbers: dict[str, list[int]] = {}
    for section, field in Contract.model_fields.items():
        held = document.get(section)
        if isinstance(held, list):
            numbers[section] = [i for i in range(len(held)) if (section, i) not in touched]
            broken |= {(section, e["name"]) for i, e in enumerate(held) if (section, i) in touched and _named(e)}
            held = [held[i] for i in numbers[section]]
        elif isinstance(held, dict):
            held = {key: value for key, value in held.items() if (section, key) not in touched}
        try:
            # The annotation alone: a list that has lost its last entry is not too short by the author's mistake.
            fields[section] = TypeAdapter[Any](cast("Any", field.annotation)).validate_python(held, strict=True)
        except ValidationError:
            container = get_origin(field.annotation)
            fields[section] = container() if container in {dict, list} else None
            numbers.pop(section, None)
            if section in document or field.is_required():
                broken.add((section,))
    return Remains(Contract.model_construct(**fields), frozenset(broken), numbers)


def _named(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("name"), str)
