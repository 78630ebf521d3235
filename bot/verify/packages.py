"""Which of the installed packages a sandbox sees: what everything here is made of, and what a contract or a baseline
names. What is not mounted cannot be imported, so that `may_use` is a fact and not a rule.
"""

import contextlib
import functools
import importlib.metadata
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

BASE = ("torch", "numpy", "triton", "nvidia-cutlass-dsl", "cuda-bindings", "pydantic", "packaging")
"""Distributions that every worker sees, those that are installed, with all that they require: what kernels are written
in, and what our own half of a worker needs."""
TOLD = ("numpy", "triton", "nvidia-cutlass-dsl", "cuda-bindings")
"""Of these, what times may depend on; torch is told by itself."""


def versions(extra: Iterable[str]) -> dict[str, str]:
    """Versions of what kernels are written in and of `extra`, by distribution, those that are installed."""
    found = {}
    for name in sorted({*TOLD, *extra}):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def site_packages() -> Path:
    """Where this environment's packages are."""
    return Path(psutil.__file__).resolve().parents[1]


def places() -> list[Path]:
    """Folders of packages that a sandbox would see as part of something else: this environment's, and those of the
    Python it was made from."""
    root = {"base": sys.base_prefix, "platbase": sys.base_prefix}
    base = {Path(sysconfig.get_path(name, vars=root)) for name in ("purelib", "platlib")}
    return sorted({site_packages(), *(p for p in (*base, Path("/usr/lib/python3/dist-packages")) if p.is_dir())})


@functools.cache
def entries(extra: frozenset[str]) -> tuple[Path, ...]:
    """Files and folders of the environment's packages that BASE and `extra` are made of, sorted. A name of nothing that
    is installed adds nothing."""
    site = site_packages()
    found: set[Path] = set()
    for name in _closure({*BASE, *extra}):
        for file in importlib.metadata.distribution(name).files or ():
            place = site / file.parts[0]
            if file.parts[0] not in {"..", "__pycache__"} and place.suffix != ".pth" and place.exists():
                found.add(place)
    return tuple(sorted(found))


def _closure(names: set[str]) -> set[str]:
    """These distributions and all they require here."""
    found: set[str] = set()
    left = {str(canonicalize_name(name)) for name in names}
    while left:
        name = left.pop()
        if name not in found and (needs := _required(name)) is not None:
            found.add(name)
            left |= set(needs)
    return found


def _required(name: str) -> list[str] | None:
    """What an installed distribution requires on this system; None when there is no such one."""
    try:
        lines = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    return list(_applying(lines))


def _applying(lines: list[str]) -> Iterator[str]:
    for requirement in map(Requirement, lines):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield str(canonicalize_name(requirement.name))
