"""`proctor runner prepare`: the environment in which a runner's jobs work, one folder for each lock.

A virtual environment cannot be moved once it is made, so what makes a folder count is its marker, written last and
by renaming: a folder without one is an attempt that broke off, and is made again. `current` names the newest.
"""

import contextlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from filelock import FileLock

from bot import digest
from bot.errors import InfrastructureError
from bot.handlers.lock import PACKAGE, Lock
from bot.handlers.runner import MARKER

TORCH = "torch==2.13.0"
"""Not in the lock: each machine takes the build that fits its driver. The Makefile has the same."""

_NAME_DIGITS = 24
_SECONDS = 3600
_KEPT = 2000
# What pip and a build need: the package index of the machine, and never a token.
_INHERITED = ("PATH", "HOME", "TMPDIR", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR", "NETRC")
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")

Extra = Literal["gpu", "local", "none"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """What an environment is made from: the lock, torch (empty: none), the extra, and this Python."""

    lock: Lock
    torch: str = TORCH
    extra: Extra = "gpu"

    @property
    def name(self) -> str:
        """The folder's name: a digest over everything that decides what is in it."""
        return digest.of_document(self.document())[:_NAME_DIGITS]

    def document(self) -> dict[str, str]:
        """The same, to be read."""
        python = f"{sys.implementation.name} {platform.python_version()}"
        return {
            "lock": self.lock.digest,
            "torch": self.torch,
            "extra": self.extra,
            "python": python,
            "machine": platform.machine(),
        }


def default_folder(environment: Mapping[str, str]) -> Path:
    """Where environments are kept when nothing is said."""
    cache = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "proctor" / "environments"


def prepare(recipe: Recipe, folder: Path, say: Callable[[str], None]) -> Path:
    """The environment of this recipe, made if it is not there.

    Raises:
        InfrastructureError: it cannot be made; nothing of the attempt is left.
    """
    folder = folder.absolute()
    place = folder / recipe.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            if _finished(place, recipe):
                say(f"there already: {place}")
            else:
                _make(recipe, place, say)
            _point(folder / "current", recipe.name)
    except OSError as error:
        raise InfrastructureError(
            f"cannot make {place}: {error.strerror or error}. Whoever owns this machine must act: make {folder} "
            "writable for the runner's user, or name another folder with --folder"
        ) from None
    return place


def _finished(place: Path, recipe: Recipe) -> bool:
    try:
        return bool(json.loads((place / MARKER).read_text(encoding="utf-8")) == recipe.document())
    except (OSError, ValueError):
        return False


def _make(recipe: Recipe, place: Path, say: Callable[[str], None]) -> None:
    shutil.rmtree(place, ignore_errors=True)
    try:
        say(f"making {place}")
        # Without pip: what works in it installs nothing. Ours fills it.
        _run([sys.executable, "-m", "venv", "--without-pip", str(place)], "the virtual environment")
        pip = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "--disable-pip-version-check"]
        pip += ["--no-input", "install", "--quiet"]
        if recipe.torch:
            # First and by version, or pip picks a build for another driver.
            say(f"installing {recipe.torch}")
            _run([*pip, recipe.torch], recipe.torch)
        with _requirement(recipe) as wanted:
            say(f"installing {PACKAGE} within {recipe.lock.constraints.name}")
            command = [*pip, "--constraint", str(recipe.lock.constraints), wanted]
            _run(command, PACKAGE, cwd=recipe.lock.root)
        fresh = place / f".{MARKER}"
        fresh.write_text(json.dumps(recipe.document(), indent=2) + "\n", encoding="utf-8")
        fresh.replace(place / MARKER)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise


@contextlib.contextmanager
def _requirement(recipe: Recipe) -> Iterator[str]:
    """What pip is told to install; a checkout is copied first, for a build leaves files in its source."""
    extra = "" if recipe.extra == "none" else recipe.extra
    if recipe.lock.source is None:
        yield recipe.lock.with_extra(extra)
        return
    with tempfile.TemporaryDirectory(prefix="proctor-") as copy:
        ignored = shutil.ignore_patterns("__pycache__")
        # Links are followed: what the package carries are files of the repository.
        shutil.copytree(recipe.lock.source / "bot", Path(copy) / "bot", ignore=ignored)
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            with contextlib.suppress(FileNotFoundError):
                shutil.copy(recipe.lock.source / name, copy)
        yield f"{copy}[{extra}]" if extra else copy


def _point(link: Path, name: str) -> None:
    """Let `current` name this folder, in one step."""
    fresh = link.with_name(f".current-{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(name)
    fresh.replace(link)


def _run(command: list[str], what: str, cwd: Path | None = None) -> None:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in _INHERITED or name.upper() in _PROXIES or name.startswith("PIP_")
    }
    try:
        done = subprocess.run(
            command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        said = f"no end after {_SECONDS} s"
    else:
        if done.returncode == 0:
            return
        said = (done.stderr or done.stdout).strip()[-_KEPT:]
    raise InfrastructureError(
        f"{what} cannot be installed. Whoever owns this machine must act: see below; pip's own settings apply "
        f"(PIP_INDEX_URL, PIP_FIND_LINKS, pip.conf)\n{said}"
    )
