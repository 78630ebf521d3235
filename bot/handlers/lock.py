"""The lock of an installation: which versions the workflows and the runner install, and the digest that names them.

A repository that uses Proctor keeps it in `.github/proctor/` (`proctor init` writes it); Proctor's own repository is
its own source, so there the judge's files are part of it.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bot import digest
from bot.errors import UsageError

PACKAGE = "kernel-proctor"
FOLDER = Path(".github/proctor")
CONSTRAINTS = FOLDER / "constraints.txt"
REQUIREMENTS = FOLDER / "requirements.txt"

_PIN = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*==\s*([A-Za-z0-9][A-Za-z0-9.!+_-]*)")
_WHEEL = re.compile(r"kernel_proctor-([A-Za-z0-9.!+_]+?)-[^/\s]*\.whl")


@dataclass(frozen=True, slots=True)
class Lock:
    """The lock of one checkout. `source` is empty where Proctor comes from a wheel, else the checkout itself."""

    root: Path
    constraints: Path
    source: Path | None
    digest: str
    versions: Mapping[str, str]
    """Version of each package that it names, Proctor among them where it says so."""
    requirement: str = ""
    """What installs Proctor, where it comes from a wheel."""

    @classmethod
    def read(cls, root: Path) -> "Lock":
        """The lock of a checkout.

        Raises:
            UsageError: there is none, or it is not what we write.
        """
        try:
            if (root / CONSTRAINTS).is_file() and (root / REQUIREMENTS).is_file():
                return _pinned(root)
            if is_source(root):
                return _source(root)
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"the lock of {root} cannot be read: {error}") from None
        raise UsageError(
            f"no lock in {root}: neither {CONSTRAINTS} with {REQUIREMENTS.name}, nor Proctor's own constraints.txt.\n"
            "Whoever maintains the repository must act: run `proctor init` there and merge what it writes"
        )

    def with_extra(self, extra: str) -> str:
        """The requirement with one of Proctor's extras: of a wheel at its end, else after the name."""
        if not extra:
            return self.requirement
        if self.requirement.endswith(".whl"):
            return f"{self.requirement}[{extra}]"
        return re.sub(rf"^{PACKAGE}(?:\[[\w,-]*\])?", f"{PACKAGE}[{extra}]", self.requirement)


def is_source(root: Path) -> bool:
    """Whether a folder is Proctor's own repository."""
    try:
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8")).get("project", {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return False
    return project.get("name") == PACKAGE and (root / "constraints.txt").is_file() and (root / "bot").is_dir()


def normal(name: str) -> str:
    """A package's name as all its spellings are compared: https://packaging.python.org/specifications/name-normalization"""
    return re.sub(r"[-_.]+", "-", name).lower()


def _pinned(root: Path) -> Lock:
    requirements = (root / REQUIREMENTS).read_text(encoding="utf-8")
    files = [root / CONSTRAINTS, root / REQUIREMENTS, *sorted((root / FOLDER).glob("*.whl"))]
    versions = _versions(root / CONSTRAINTS) | _versions_in(requirements)
    if wheel := _WHEEL.search(requirements):
        versions[PACKAGE] = wheel[1]
    lines = [line.partition(" #")[0].strip() for line in requirements.splitlines() if not line.startswith("#")]
    wanted = [line for line in lines if line]
    if len(wanted) != 1:
        raise UsageError(
            f"{REQUIREMENTS} names {len(wanted)} requirements, and one is wanted. Whoever maintains the repository "
            "must act: `proctor init --force` writes it anew"
        )
    return Lock(root, root / CONSTRAINTS, None, _digest(root, files), versions, wanted[0])


def _source(root: Path) -> Lock:
    kept = [path for path in sorted((root / "bot").rglob("*")) if path.is_file() and path.suffix != ".pyc"]
    files = [root / "constraints.txt", root / "pyproject.toml", *kept]
    return Lock(root, root / "constraints.txt", root, _digest(root, files), _versions(root / "constraints.txt"))


def _digest(root: Path, files: list[Path]) -> str:
    return digest.of_files({str(path.relative_to(root)): path.read_bytes() for path in files})


def _versions(file: Path) -> dict[str, str]:
    return _versions_in(file.read_text(encoding="utf-8"))


def _versions_in(text: str) -> dict[str, str]:
    """Pins, one a line; other lines (comments, wheels, options) name no version here."""
    found = (_PIN.match(line.partition("#")[0]) for line in text.splitlines())
    return {normal(pin[1]): pin[2] for pin in found if pin}
