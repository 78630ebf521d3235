"""Files onto a branch of a remote repository, and files out of one of its commits, by git plumbing.

Nothing is ever checked out, so a symbolic link in a tree is only an entry in it; no hook and no configuration of the
machine applies; the token is in the environment of git alone. Whether the push should happen is decided elsewhere.
"""

import base64
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from bot.errors import GitHubError, UsageError
from bot.github.api import REFUSED_HINT
from bot.sanitize import plain_line

GIT_SECONDS = 120
FILE_LIMIT = 4 * 2**20
"""Bytes of one file. An evaluation with all its samples is well below one MiB."""

FILES_LIMIT = 500
"""Files of one commit: a run journal with every candidate."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_OPERATION = re.compile(r"[a-z][a-z0-9_]{0,63}")
_HEAD = re.compile(r"^ref: refs/heads/(\S+)\tHEAD\n([0-9a-f]{40})\tHEAD$", re.MULTILINE)
_SHA = re.compile(r"[0-9a-f]{40}")
_BRANCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*(?:/[A-Za-z0-9][A-Za-z0-9-]*)*")
WAITS = (0.2, 1.0, 4.0)
"""Seconds before what failed in passing is tried again."""
_REJECTED = re.compile(r"could not read Username|Authentication failed|Invalid username or (?:password|token)")
"""What git says of a token that the server does not take."""
_PASSING = re.compile(
    r"stale info|lock|returned error: (?:429|5\d\d)|Empty reply|Connection (?:reset|refused|timed out)|Broken pipe|"
    r"early EOF|hung up|unexpected disconnect|expected flush|fetch first|Could not resolve host",
    re.IGNORECASE,
)
"""What git says when the branch moved, when there was no answer, or when the server has a bad moment."""
# What a runner behind a proxy needs, and nothing else of the environment.
_INHERITED = ("PATH", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR")


@dataclass(frozen=True, slots=True)
class Remote:
    """A repository to push to: an https URL with a token, or a path without."""

    url: str
    token: str | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """Author and committer."""

    name: str
    email: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Files (path → content) for one operation's folders, as one commit on top of `base_sha`."""

    operation: str
    base_sha: str
    files: Mapping[str, bytes]
    message: str
    author: Identity


def push_files(remote: Remote, branch: str, change: Change) -> str:
    """Make the branch point to the change, and return the commit.

    The same change gives the same commit, so that doing it twice is doing it once. A branch that holds another commit
    of the same author is replaced; one that holds somebody else's is left alone.

    Raises:
        UsageError: a path is not one the bot may write, or the branch holds other people's commits.
        GitHubError: git could not do it; retryable when the branch moved meanwhile.
    """
    _check_branch(branch)
    _check_change(change)
    with tempfile.TemporaryDirectory(prefix="proctor-push-") as folder:
        git = _Git(Path(folder), remote)
        git.fetch(change.base_sha)
        commit = _commit(git, change)

        def once() -> str:
            tip = git.tip(branch)
            if tip == commit:
                return commit
            if tip is not None and tip != change.base_sha:
                git.fetch(tip)
                if git("show", "-s", "--format=%ce", tip).decode().strip() != change.author.email:
                    raise UsageError(f"the branch {branch} holds commits by others and is left as it is")
            git.push(commit, branch, tip)
            return commit

        return _until_done(once)


def append_files(remote: Remote, branch: str, change: Change, *, new: Collection[str] = ()) -> str:
    """Add the change on top of whatever the branch holds by then, and return the commit that holds it.

    Nothing that is there is lost: whoever pushed meanwhile is followed, not replaced, and `new` are paths at which
    nothing else may be. Of a branch that does not exist, `change.base_sha` is the beginning; a branch that holds these
    files already is left alone.

    Raises:
        UsageError: a path is not one the bot may write, or a file is there with another content.
        GitHubError: git could not do it.
    """
    _check_branch(branch)
    _check_change(change)
    with tempfile.TemporaryDirectory(prefix="proctor-push-") as folder:
        git = _Git(Path(folder), remote)

        def once() -> str:
            tip = git.tip(branch)
            base = tip or change.base_sha
            git.fetch(base)
            commit = _commit(git, replace(change, base_sha=base))
            changed = git("diff-tree", "-r", "-z", "--name-only", "--diff-filter=M", base, commit).decode()
            if there := set(new) & set(changed.split("\0")):
                raise UsageError(f"{min(there)} is on {branch} already, and says something else")
            if not git("diff-tree", base, commit):
                return base
            git.push(commit, branch, tip)
            return commit

        return _until_done(once)


def _until_done(once: Callable[[], str]) -> str:
    """A push again, after the branch moved or the answer was lost: each begins with what the branch holds by then."""
    for wait in WAITS:
        try:
            return once()
        except GitHubError as error:
            if not error.retryable:
                raise
            time.sleep(wait)
    return once()


def branch_tip(remote: Remote, branch: str) -> str | None:
    """The commit a branch points to; None when there is no such branch.

    Raises:
        GitHubError: git could not ask.
    """
    _check_branch(branch)
    return _reader(remote).git.tip(branch)


def default_branch(remote: Remote) -> tuple[str, str]:
    """Name of the default branch and the commit at its tip; git tells both in one question, which no rate limit counts.

    Raises:
        GitHubError: git could not ask, or the branch has no commit.
    """
    return _reader(remote).git.head()


def read_files(remote: Remote, sha: str, paths: Sequence[str]) -> dict[str, bytes]:
    """Contents of regular files of a commit.

    Raises:
        UsageError: a path is missing there, is not a regular file, or is too large.
        GitHubError: git could not fetch the commit.
    """
    if not _SHA.fullmatch(sha):
        raise UsageError(f"{plain_line(sha, 60)!r} is not the full name of a commit")
    git = _reader(remote).at(sha)
    return {path: _read(git, sha, path) for path in paths}


def list_files(remote: Remote, sha: str, folder: str) -> list[str]:
    """Paths of the regular files below a folder of a commit, sorted; none when there is no such folder.

    Raises:
        UsageError: `sha` is not the full name of a commit.
        GitHubError: git could not fetch the commit.
    """
    if not _SHA.fullmatch(sha):
        raise UsageError(f"{plain_line(sha, 60)!r} is not the full name of a commit")
    git = _reader(remote).at(sha)
    entries = git("ls-tree", "-r", "-z", "--full-tree", sha, "--", f"{folder}/").decode("utf-8", "replace")
    rows = [entry.partition("\t") for entry in entries.split("\0") if entry]
    return sorted(path for meta, _, path in rows if meta.startswith(("100644", "100755")))


class _Reader:
    """Commits of a remote that were asked for, each fetched once: what a commit holds never changes."""

    def __init__(self, remote: Remote) -> None:
        folder = tempfile.mkdtemp(prefix="proctor-read-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._lock = threading.Lock()
        self._fetched: set[str] = set()
        self.git = _Git(Path(folder), remote)

    def at(self, sha: str) -> "_Git":
        with self._lock:
            if sha not in self._fetched:
                self.git.fetch(sha)
                self._fetched.add(sha)
        return self.git


@lru_cache(maxsize=16)
def _reader(remote: Remote) -> _Reader:
    return _Reader(remote)


def _read(git: "_Git", sha: str, path: str) -> bytes:
    entries = git("ls-tree", "-z", "-l", "--full-tree", sha, "--", path).decode("utf-8", "replace").split("\0")
    shown = plain_line(path)
    found = [entry.split("\t")[0].split() for entry in entries if entry.endswith(f"\t{path}")]
    if not found:
        raise UsageError(f"there is no file {shown!r} in commit {sha[:12]}")
    mode, _, name, size = found[0]
    if mode not in ("100644", "100755"):
        raise UsageError(f"{shown!r} in commit {sha[:12]} is not a regular file")
    if int(size) > FILE_LIMIT:
        raise UsageError(f"{shown!r} in commit {sha[:12]} has {size} bytes; at most {FILE_LIMIT} are read")
    return git("cat-file", "blob", name)


def _check_branch(branch: str) -> None:
    if not _BRANCH.fullmatch(branch):
        raise UsageError(f"{plain_line(branch)!r} is not a branch name the bot uses")


def _check_change(change: Change) -> None:
    if not _OPERATION.fullmatch(change.operation):
        raise UsageError(f"{plain_line(change.operation)!r} is not the name of an operation")
    if not _SHA.fullmatch(change.base_sha):
        raise UsageError(f"{plain_line(change.base_sha, 60)!r} is not the full name of a commit")
    if not 0 < len(change.files) <= FILES_LIMIT:
        raise UsageError(f"a change has 1 to {FILES_LIMIT} files, not {len(change.files)}")
    for path, data in change.files.items():
        top, *rest = path.split("/")
        names = rest[1:]
        inside = top in ("kernels", "reports") and rest[:1] == [change.operation] and names
        if not inside or not all(_NAME.fullmatch(name) for name in names):
            raise UsageError(f"the bot may not write {plain_line(path)!r}: only below its operation's folders")
        if len(data) > FILE_LIMIT:
            raise UsageError(f"{path} has {len(data)} bytes; at most {FILE_LIMIT} are committed")


def _commit(git: "_Git", change: Change) -> str:
    """The commit object. Its date is the base's, so that it depends on the change alone."""
    date = git("show", "-s", "--format=%cd", "--date=raw", change.base_sha).decode().strip()
    git("read-tree", change.base_sha)
    entries = []
    for path, data in sorted(change.files.items()):
        blob = git("hash-object", "-w", "-t", "blob", "--stdin", "--no-filters", stdin=data).decode().strip()
        entries.append(f"100644 {blob}\t{path}\0")
    git("update-index", "-z", "--add", "--index-info", stdin="".join(entries).encode())
    tree = git("write-tree").decode().strip()
    # A file or link of the base where a folder is needed would be replaced: whatever the reason, nothing else changes.
    changed = git("diff-tree", "-r", "-z", "--name-only", "--no-renames", change.base_sha, tree)
    if others := set(changed.decode("utf-8", "replace").split("\0")) - set(change.files) - {""}:
        raise UsageError(f"the change would also replace {plain_line(min(others))!r}")
    who = {"NAME": change.author.name, "EMAIL": change.author.email, "DATE": date}
    identity = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in who.items()}
    arguments = ("commit-tree", tree, "-p", change.base_sha)
    return git(*arguments, stdin=change.message.encode(), environment=identity).decode().strip()


class _Git:
    """git in a new bare repository that lives for one operation."""

    def __init__(self, folder: Path, remote: Remote) -> None:
        self._folder = folder
        self._remote = remote
        self._token = remote.token
        self("init", "--quiet", "--bare", "--template=", ".")

    def fetch(self, sha: str) -> None:
        """One commit with its files, without history."""
        self._asked("fetch", "--quiet", "--depth=1", "--no-tags", "--", self._remote.url, sha)

    def tip(self, branch: str) -> str | None:
        """Where a branch of the remote points to."""
        listed = self._asked("ls-remote", "--quiet", "--", self._remote.url, f"refs/heads/{branch}").decode()
        refs = {name: sha for sha, _, name in (line.partition("\t") for line in listed.splitlines())}
        return refs.get(f"refs/heads/{branch}")

    def head(self) -> tuple[str, str]:
        """The branch that HEAD of the remote stands for, and its commit."""
        listed = self._asked("ls-remote", "--quiet", "--symref", "--", self._remote.url, "HEAD").decode()
        found = _HEAD.search(listed)
        if found is None:
            raise GitHubError("the default branch of the repository has no commit")
        return found[1], found[2]

    def push(self, commit: str, branch: str, lease: str | None) -> None:
        """Point a branch of the remote to a commit, if it points to `lease`; None: if there is no such branch."""
        # The empty lease says that the branch must not exist: https://git-scm.com/docs/git-push
        held = f"--force-with-lease=refs/heads/{branch}:{lease or ''}"
        self("push", "--quiet", "--no-verify", held, "--", self._remote.url, f"{commit}:refs/heads/{branch}")

    def _asked(self, *arguments: str) -> bytes:
        """A question to the remote, repeated when there was no answer."""
        for wait in WAITS:
            try:
                return self(*arguments)
            except GitHubError as error:
                if not error.retryable:
                    raise
                time.sleep(wait)
        return self(*arguments)

    def __call__(self, *arguments: str, stdin: bytes = b"", environment: Mapping[str, str] | None = None) -> bytes:
        """Standard output of one git command.

        Raises:
            GitHubError: it failed; its last words, without the token.
        """
        try:
            done = subprocess.run(
                ("git", *arguments),
                cwd=self._folder,
                input=stdin,
                capture_output=True,
                env=self._environment() | dict(environment or {}),
                timeout=GIT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise GitHubError(f"git {arguments[0]} took more than {GIT_SECONDS} s", retryable=True) from None
        if done.returncode != 0:
            said = done.stderr.decode("utf-8", "replace")
            said = said.replace(self._token, "[redacted]") if self._token else said
            hint = REFUSED_HINT if _REJECTED.search(said) else ""
            raise GitHubError(
                f"git {arguments[0]} failed: {plain_line(said, 400)}{hint}", retryable=_PASSING.search(said) is not None
            )
        return done.stdout

    def _environment(self) -> dict[str, str]:
        """All that git sees. Settings by variables: https://git-scm.com/docs/git-config#ENVIRONMENT"""
        settings = {"core.hooksPath": "/dev/null", "gc.auto": "0", "http.followRedirects": "false"}
        if self._token is not None:
            basic = base64.b64encode(f"x-access-token:{self._token}".encode()).decode()
            settings[f"http.{self._remote.url}.extraHeader"] = f"Authorization: Basic {basic}"
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        environment |= {
            "HOME": str(self._folder),
            "LC_ALL": "C",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ALLOW_PROTOCOL": "file:http:https",
            "GIT_CONFIG_COUNT": str(len(settings)),
        }
        for index, (key, value) in enumerate(settings.items()):
            environment |= {f"GIT_CONFIG_KEY_{index}": key, f"GIT_CONFIG_VALUE_{index}": value}
        return environment
