"""The folder of one run: what the agent may read, and the one place it may write. Holds no secret, by construction:
oracle, controls, faithful variants and evaluations never enter it.

    contract.md  baselines/  wiki/      laid out at the start
    kernels/<op>/<backend>_<name>.py    the agent's own files
    candidates/NN_<digest>.py           every source that was examined
    lessons.md  journal.jsonl           notes of the agent; the record of the run
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from bot import digest
from bot.errors import UsageError

SOURCE_LIMIT = 128 * 1024
"""Bytes of a kernel file; the largest generated kernels the research found are below 100 KiB."""

READ_LIMIT = 1024 * 1024
LISTED = 200
_PATH_LIMIT = 200


class Workspace:
    """Paths are as the model gives them: relative to the folder, with forward slashes.

    Every method that takes one raises UsageError when it leads outside, through a link, or is not allowed; the text is
    the answer for the model.
    """

    def __init__(self, root: Path, op: str) -> None:
        """Use a folder that exists, for kernels of one contract."""
        self.root = root
        self._op = op
        self._kernel = re.compile(rf"kernels/{re.escape(op)}/(?:torch|triton|cute)_[a-z0-9_]{{1,48}}\.py")

    def lay_out(self, files: Mapping[str, str]) -> None:
        """Write what the agent starts from: relative path → text."""
        for path, text in files.items():
            self._save(path, text)
        (self.root / "kernels" / self._op).mkdir(parents=True, exist_ok=True)

    def read(self, path: str) -> str:
        """Text of a file, or the names in a folder, one a line."""
        target = self._inside(path)
        if target.is_dir():
            return "\n".join(self._listing(target)) or "(empty)"
        if not target.is_file():
            raise UsageError(f'{path}: no such file; read "." lists what there is')
        if target.stat().st_size > READ_LIMIT:
            raise UsageError(f"{path}: larger than {READ_LIMIT} bytes")
        return target.read_text(encoding="utf-8", errors="replace")

    def write(self, path: str, source: str) -> None:
        """Create or replace a kernel file."""
        self._check_kernel(path)
        if len(source.encode()) > SOURCE_LIMIT:
            raise UsageError(f"{path}: a kernel file has at most {SOURCE_LIMIT} bytes")
        self._save(path, source)

    def kernel(self, path: str) -> str:
        """Source of a kernel file the agent wrote."""
        self._check_kernel(path)
        return self.read(path)

    def keep(self, number: int, source: str) -> None:
        """Save an examined source under its number and digest."""
        self._save(f"candidates/{number:02d}_{digest.of_bytes(source.encode())[:12]}.py", source)

    def note(self, text: str) -> None:
        """Add a lesson."""
        with self._inside("lessons.md").open("a", encoding="utf-8") as stream:
            stream.write(f"- {text}\n")

    def _check_kernel(self, path: str) -> None:
        if not self._kernel.fullmatch(path):
            raise UsageError(
                f"{path[:_PATH_LIMIT]}: kernels are kernels/{self._op}/<backend>_<name>.py, "
                "the backend torch, triton or cute, the name lower case"
            )

    def _inside(self, path: str) -> Path:
        parts = PurePosixPath(path).parts
        odd = len(path) > _PATH_LIMIT or not (path.isascii() and path.isprintable()) or "\\" in path
        if odd or PurePosixPath(path).is_absolute() or any(part.startswith((".", "~")) for part in parts):
            raise UsageError(f"{path[:_PATH_LIMIT]!r}: not a path inside the workspace")
        target = self.root
        for part in parts:
            target /= part
            if target.is_symlink():
                raise UsageError(f"{path}: leads through a link")
        return target

    def _save(self, path: str, text: str) -> None:
        target = self._inside(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    def _listing(self, folder: Path) -> Iterable[str]:
        found = sorted(p for p in folder.rglob("*") if p.is_file() and not p.is_symlink())
        names = [str(p.relative_to(self.root)) for p in found]
        return names if len(names) <= LISTED else [*names[:LISTED], f"… and {len(names) - LISTED} more"]
