"""The forge's bare git repository: refs, comparisons and file changes, asked of git itself."""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bot.errors import InfrastructureError

_SHA = re.compile(r"[0-9a-f]{40}")
_NO_SHA = "0" * 40


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit: `date` in ISO 8601."""

    sha: str
    tree: str
    parents: tuple[str, ...]
    author: str
    email: str
    date: str
    committer: str
    committer_email: str
    message: str


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A file that differs between two commits; `patch` holds its hunks, empty for a binary file."""

    filename: str
    previous: str | None
    status: str
    sha: str
    additions: int
    deletions: int
    patch: str


def git_environment() -> dict[str, str]:
    """Variables under which git sees no configuration but the repository's own."""
    path = os.environ.get("PATH", os.defpath)
    return {"PATH": path, "LC_ALL": "C.UTF-8", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}


class Repository:
    """A bare repository at `path`."""

    def __init__(self, path: Path) -> None:
        """Look at an existing bare repository."""
        self.path = path

    @classmethod
    def create(cls, path: Path, default_branch: str) -> "Repository":
        """An empty bare repository that takes pushes and serves commits by SHA, as GitHub does."""
        subprocess.run(
            ["git", "init", "--quiet", "--bare", "--template=", f"--initial-branch={default_branch}", str(path)],
            check=True,
            env=git_environment(),
        )
        repository = cls(path)
        for key, value in {
            "http.receivepack": "true",
            "uploadpack.allowAnySHA1InWant": "true",
            "receive.hideRefs": "refs/pull",
            "gc.auto": "0",
        }.items():
            repository._git("config", key, value)
        return repository

    def refs(self) -> dict[str, str]:
        """Every ref and the object it points to."""
        lines = self._git("for-each-ref", "--format=%(objectname) %(refname)").splitlines()
        return {ref: sha for sha, ref in (line.split(" ", 1) for line in lines)}

    def commit_sha(self, name: str) -> str | None:
        """The commit that a full SHA, a branch or a tag names."""
        if _SHA.fullmatch(name):
            return name if self._answers("cat-file", "-e", f"{name}^{{commit}}") else None
        refs = self.refs()
        return refs.get(f"refs/heads/{name}") or refs.get(f"refs/tags/{name}")

    def has_object(self, sha: str) -> bool:
        """Whether this full SHA is an object of the repository."""
        return bool(_SHA.fullmatch(sha)) and self._answers("cat-file", "-e", sha)

    def create_ref(self, ref: str, sha: str) -> bool:
        """Create the ref atomically; false when it exists already."""
        return self._answers("update-ref", ref, sha, _NO_SHA)

    def set_ref(self, ref: str, sha: str) -> None:
        """Point the ref at an object, whatever it was before."""
        self._git("update-ref", ref, sha)

    def delete_ref(self, ref: str) -> None:
        """Remove the ref."""
        self._git("update-ref", "-d", ref)

    def is_ref_name(self, ref: str) -> bool:
        """Whether git accepts this as the full name of a ref."""
        return ref.startswith("refs/") and self._answers("check-ref-format", ref)

    def commits(self, base: str, head: str) -> list[Commit]:
        """What `head` has beyond `base`, oldest first."""
        return self._log("--reverse", f"{base}..{head}")

    def commit(self, sha: str) -> Commit:
        """One commit."""
        return self._log("-1", sha)[0]

    def merge_base(self, base: str, head: str) -> str | None:
        """The commit at which `head` left `base`; None when they have none in common."""
        done = self._run("merge-base", base, head)
        return done.stdout.strip() or None

    def files(self, base: str, head: str) -> list[ChangedFile]:
        """Files that `head` changed since it left `base`, with their hunks."""
        span = (f"{base}...{head}", "--")
        names = self._git("diff", "--raw", "--abbrev=40", "-z", "-M", *span).split("\0")
        patch = self._git("diff", "--no-color", "--no-ext-diff", "-M", *span)
        sections = re.split(r"^diff --git .*\n", patch, flags=re.MULTILINE)[1:]
        return [_changed(entry, section) for entry, section in zip(_raw_entries(names), sections, strict=True)]

    def folders(self, revision: str, path: str) -> list[str]:
        """Names of the folders directly below `path` at a commit or branch; none where there is no such path."""
        if self.commit_sha(revision) is None:
            return []
        lines = self._git("ls-tree", "-d", "--name-only", revision, f"{path}/").splitlines()
        return [line.rsplit("/", 1)[-1] for line in lines]

    def _log(self, *arguments: str) -> list[Commit]:
        text = self._git("log", "-z", "--format=%H%n%T%n%P%n%an%n%ae%n%aI%n%cn%n%ce%n%B", *arguments)
        fields = (entry.split("\n", 8) for entry in text.split("\0") if entry)
        return [
            Commit(sha, tree, tuple(parents.split()), author, email, date, committer, committer_email, message.strip())
            for sha, tree, parents, author, email, date, committer, committer_email, message in fields
        ]

    def _git(self, *arguments: str) -> str:
        done = self._run(*arguments)
        if done.returncode:
            raise InfrastructureError(f"git {arguments[0]} in the forge: {done.stderr.strip()}")
        return done.stdout

    def _answers(self, *arguments: str) -> bool:
        return self._run(*arguments).returncode == 0

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["git", "--git-dir", str(self.path), *arguments]
        return subprocess.run(
            command, check=False, capture_output=True, text=True, errors="replace", env=git_environment()
        )


def _raw_entries(fields: list[str]) -> list[tuple[str, str, str | None, str]]:
    """(letter, new blob, old name, name) from `git diff --raw -z`, which gives a rename two names."""
    entries = []
    rest = iter(fields)
    for meta in rest:
        if not meta:
            continue
        _, _, _, blob, letter = meta.split(" ")
        name = next(rest)
        renamed = letter[0] in "RC"
        entries.append((letter[0], blob, name if renamed else None, next(rest) if renamed else name))
    return entries


def _changed(entry: tuple[str, str, str | None, str], section: str) -> ChangedFile:
    letter, blob, previous, name = entry
    start = section.find("@@")
    patch = section[start:].rstrip("\n") if start >= 0 else ""
    lines = patch.split("\n")
    return ChangedFile(
        filename=name,
        previous=previous,
        status={"A": "added", "D": "removed", "R": "renamed", "C": "copied", "T": "changed"}.get(letter, "modified"),
        sha=blob,
        additions=sum(line.startswith("+") for line in lines),
        deletions=sum(line.startswith("-") for line in lines),
        patch=patch,
    )
