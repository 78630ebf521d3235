"""Pushing to and reading from real bare repositories."""

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bot.errors import GitHubError, UsageError
from bot.forge.server import Forge
from bot.forge.state import ForgeState
from bot.github.push import (
    FILE_LIMIT,
    Change,
    Identity,
    Remote,
    append_files,
    branch_tip,
    list_files,
    push_files,
    read_files,
)
from tests.github.flaky import Fault, Line, line_to

BRANCH = "proctor/issue-1"
BOT = Identity("proctor", "proctor@example.org")
KERNEL = "kernels/rmsnorm/torch_fused.py"


def git(folder: Path, *arguments: str, stdin: bytes = b"") -> str:
    """git with a fixed identity, outside any configuration of the machine."""
    who = {f"GIT_{role}_{key}": "alice" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1", **who}
    done = subprocess.run(
        ["git", *arguments], cwd=folder, input=stdin, capture_output=True, env=environment, check=True
    )
    return done.stdout.decode().strip()


def commit(bare: Path, entries: str, *parents: str) -> str:
    """A commit in a bare repository, from lines `mode path=content`."""
    lines = []
    for entry in entries.splitlines():
        mode, _, rest = entry.partition(" ")
        path, _, content = rest.partition("=")
        blob = git(bare, "hash-object", "-w", "--stdin", stdin=content.encode())
        lines.append(f"{mode} {blob}\t{path}")
    git(bare, "read-tree", "--empty")
    git(bare, "update-index", "--index-info", stdin="\n".join(lines).encode())
    tree = git(bare, "write-tree")
    return git(bare, "commit-tree", tree, *(f"-p{parent}" for parent in parents), "-m", "people's work")


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    folder = tmp_path / "remote.git"
    folder.mkdir()
    git(folder, "init", "--quiet", "--bare", "--initial-branch=main", ".")
    base = commit(folder, "100644 README.md=hello\n100644 kernels/rmsnorm/torch_fused.py=old\n120000 link=kernels")
    git(folder, "update-ref", "refs/heads/main", base)
    return folder


@pytest.fixture
def change(bare: Path) -> Change:
    files = {KERNEL: b"def run(): ...\n", "reports/rmsnorm/0123/evaluation.json": b"\x00{}\r\n"}
    base = git(bare, "rev-parse", "main")
    return Change(operation="rmsnorm", base_sha=base, files=files, message="Add a kernel\n\nWhy.", author=BOT)


def test_a_change_becomes_one_commit_on_top_of_the_base(bare: Path, change: Change):
    sha = push_files(Remote(str(bare)), BRANCH, change)
    assert git(bare, "rev-parse", BRANCH) == sha
    assert git(bare, "rev-parse", f"{sha}^") == change.base_sha
    assert git(bare, "log", "-1", "--format=%an <%ae> %cn %s|%b", sha) == (
        "proctor <proctor@example.org> proctor Add a kernel|Why."
    )
    assert git(bare, "diff", "--name-status", f"{sha}^", sha).split("\n") == [
        f"M\t{KERNEL}",
        "A\treports/rmsnorm/0123/evaluation.json",
    ]
    assert read_files(Remote(str(bare)), sha, list(change.files)) == dict(change.files)


def test_the_same_change_twice_is_the_same_commit(bare: Path, change: Change):
    assert push_files(Remote(str(bare)), BRANCH, change) == push_files(Remote(str(bare)), BRANCH, change)


def test_another_change_of_ours_replaces_the_branch(bare: Path, change: Change):
    first = push_files(Remote(str(bare)), BRANCH, change)
    second = push_files(Remote(str(bare)), BRANCH, replace(change, files={KERNEL: b"better"}))
    assert first != second == branch_tip(Remote(str(bare)), BRANCH)
    assert git(bare, "rev-parse", f"{second}^") == change.base_sha


def test_a_change_on_top_of_the_tip_extends_the_branch(bare: Path, change: Change):
    first = push_files(Remote(str(bare)), "proctor/evidence", change)
    second = push_files(Remote(str(bare)), "proctor/evidence", replace(change, base_sha=first, files={KERNEL: b"more"}))
    assert git(bare, "rev-list", "proctor/evidence").split() == [second, first, change.base_sha]


def test_a_branch_with_other_peoples_commits_is_left_alone(bare: Path, change: Change):
    sha = push_files(Remote(str(bare)), BRANCH, change)
    theirs = commit(bare, "100644 README.md=mine", sha)
    git(bare, "update-ref", f"refs/heads/{BRANCH}", theirs)
    with pytest.raises(UsageError, match="commits by others"):
        push_files(Remote(str(bare)), BRANCH, replace(change, files={KERNEL: b"other"}))
    assert branch_tip(Remote(str(bare)), BRANCH) == theirs


def test_a_remote_that_moves_during_the_push_is_not_overwritten(bare: Path, change: Change):
    theirs = commit(bare, "100644 README.md=theirs")
    # The remote's hook plays somebody who is faster: it runs after the lease was sent and before refs are updated.
    hook = bare / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\nunset GIT_QUARANTINE_PATH\ngit update-ref refs/heads/{BRANCH} {theirs}\n")
    hook.chmod(0o755)
    with pytest.raises(UsageError, match="commits by others"):
        push_files(Remote(str(bare)), BRANCH, change)
    assert branch_tip(Remote(str(bare)), BRANCH) == theirs


def test_a_remote_that_refuses_is_reported_with_its_words(bare: Path, change: Change):
    hook = bare / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho this branch is protected >&2\nexit 1\n")
    hook.chmod(0o755)
    with pytest.raises(GitHubError, match="this branch is protected") as caught:
        push_files(Remote(str(bare)), BRANCH, change)
    assert not caught.value.retryable
    assert branch_tip(Remote(str(bare)), BRANCH) is None


def test_hooks_and_configuration_of_this_machine_do_not_apply(
    bare: Path, change: Change, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    template = tmp_path / "template" / "hooks"
    template.mkdir(parents=True)
    (template / "pre-push").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (template / "pre-push").chmod(0o755)
    (tmp_path / ".gitconfig").write_text(
        f"[init]\ntemplateDir = {template.parent}\n[core]\nhooksPath = {template}\nautocrlf = input\n"
        f'[url "/nowhere"]\ninsteadOf = {bare}\n'
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_AUTHOR_NAME", "mallory")
    sha = push_files(Remote(str(bare)), BRANCH, change)
    assert not (tmp_path / "ran").exists()
    assert read_files(Remote(str(bare)), sha, list(change.files)) == dict(change.files)
    assert git(bare, "log", "-1", "--format=%an", sha) == "proctor"


@pytest.mark.parametrize(
    "path",
    [
        "README.md",
        ".github/workflows/x.yml",
        "contracts/rmsnorm/oracle.py",
        "kernels/rmsnorm",
        "kernels/rmsnorm/",
        "kernels/kda_prefill/x.py",
        "kernels/rmsnorm/../../bot/x.py",
        "kernels/rmsnorm/./x.py",
        "kernels//rmsnorm/x.py",
        "/kernels/rmsnorm/x.py",
        "kernels/rmsnorm/.gitattributes",
        "kernels/rmsnorm/.git/config",
        "kernels/rmsnorm/a b.py",
        "kernels/rmsnorm/a\nb.py",
        "kernels/rmsnorm/a\0b.py",
        "kernels/rmsnorm/a\\b.py",
        "Kernels/rmsnorm/x.py",
        "",
    ],
)
def test_only_the_operations_folders_may_be_written(bare: Path, change: Change, path: str):
    with pytest.raises(UsageError, match="may not write"):
        push_files(Remote(str(bare)), BRANCH, replace(change, files={path: b""}))
    assert branch_tip(Remote(str(bare)), BRANCH) is None


def test_a_change_too_large_empty_or_misnamed_is_refused(bare: Path, change: Change):
    for wrong in (
        replace(change, files={}),
        replace(change, files={KERNEL: bytes(FILE_LIMIT + 1)}),
        replace(change, operation="../rmsnorm"),
        replace(change, base_sha="main"),
    ):
        with pytest.raises(UsageError):
            push_files(Remote(str(bare)), BRANCH, wrong)
    for branch in ("", "-x", "a..b", "a b", "refs/heads/a:b", "a/"):
        with pytest.raises(UsageError, match="not a branch name"):
            push_files(Remote(str(bare)), branch, change)


@pytest.mark.parametrize(
    "entries", ["120000 kernels/rmsnorm=../../../etc", "120000 kernels=/etc", f"100644 {KERNEL}/nested.py=x"]
)
def test_nothing_else_is_replaced_where_a_link_or_folder_is_in_the_way(bare: Path, change: Change, entries: str):
    base = commit(bare, entries)
    git(bare, "update-ref", "refs/heads/linked", base)
    with pytest.raises(UsageError, match="would also replace"):
        push_files(Remote(str(bare)), BRANCH, replace(change, base_sha=base))


def test_a_link_in_the_tree_leads_nowhere(bare: Path):
    base = commit(bare, "120000 kernels/rmsnorm=../../../etc\n100644 README.md=x")
    for path in ("kernels/rmsnorm", "kernels/rmsnorm/passwd"):
        with pytest.raises(UsageError):
            read_files(Remote(str(bare)), base, [path])


@pytest.mark.parametrize("path", ["link", "kernels", "missing", "kernels/*", "../README.md", ""])
def test_only_regular_files_are_read(bare: Path, change: Change, path: str):
    with pytest.raises((UsageError, GitHubError)):
        read_files(Remote(str(bare)), change.base_sha, [path])


def test_a_commit_is_read_by_its_full_name_even_when_no_branch_holds_it(bare: Path, change: Change):
    loose = commit(bare, "100644 README.md=loose")
    assert read_files(Remote(str(bare)), loose, ["README.md"]) == {"README.md": b"loose"}
    with pytest.raises(UsageError, match="full name"):
        read_files(Remote(str(bare)), "main", ["README.md"])
    with pytest.raises(GitHubError):
        read_files(Remote(str(bare)), "0" * 39 + "1", ["README.md"])


@pytest.mark.parametrize("remote", ["ext::touch ran", "ssh://example.org/x", "git://example.org/x"])
def test_only_https_and_paths_are_remotes(remote: str):
    with pytest.raises(GitHubError, match="not allowed"):
        branch_tip(Remote(remote), BRANCH)


def test_a_branch_that_moves_between_look_and_push_is_not_overwritten(tmp_path: Path, bare: Path, change: Change):
    state = ForgeState.create(tmp_path)
    state.add_user("proctor[bot]", "write", "s3cret-token")
    there = state.repository
    git(bare, "push", "--quiet", str(there.path), "main")
    theirs = commit(there.path, "100644 README.md=theirs")
    with Forge.serving(state) as forge, line_to(forge.url) as line:
        remote = Remote(f"http://127.0.0.1:{line.server_port}/acme/kernels.git", "s3cret-token")
        first = push_files(remote, BRANCH, change)
        line.overtake = (
            "GET /acme/kernels.git/info/refs?service=git-receive-pack",
            lambda: there.set_ref(f"refs/heads/{BRANCH}", theirs),
        )
        with pytest.raises(UsageError, match="commits by others"):
            push_files(remote, BRANCH, replace(change, files={KERNEL: b"other"}))
    assert there.refs()[f"refs/heads/{BRANCH}"] == theirs != first


def test_over_http_the_token_opens_the_door_and_is_never_shown(tmp_path: Path, bare: Path, change: Change):
    state = ForgeState.create(tmp_path)
    state.add_user("proctor[bot]", "write", "s3cret-token")
    git(bare, "push", "--quiet", str(state.repository.path), "main")
    with Forge.serving(state) as forge:
        sha = push_files(Remote(forge.clone_url, "s3cret-token"), BRANCH, change)
        assert branch_tip(Remote(forge.clone_url, "s3cret-token"), BRANCH) == sha
        with pytest.raises(GitHubError) as caught:
            push_files(Remote(forge.clone_url, "wr0ng-token"), "proctor/issue-2", change)
    assert "wr0ng" not in str(caught.value)
    assert str(caught.value).endswith("the token is not valid, or not any more: repeat the run, which gets a new one")


EVIDENCE = "proctor/evidence"


def run_of(change: Change, number: int, content: bytes = b"{}") -> Change:
    return replace(change, files={f"reports/rmsnorm/issue-1/evaluations/{number:03d}.json": content})


@pytest.fixture
def line(tmp_path: Path, bare: Path) -> Iterator[Line]:
    """A line to a forge that holds what `bare` does."""
    state = ForgeState.create(tmp_path / "served")
    state.add_user("proctor[bot]", "write", "s3cret-token")
    git(bare, "push", "--quiet", str(state.repository.path), "main")
    with Forge.serving(state) as forge, line_to(forge.url) as line:
        yield line


def over(line: Line) -> Remote:
    return Remote(f"{line.api_url}/acme/kernels.git", "s3cret-token")


def test_what_is_appended_follows_whoever_was_faster(line: Line, change: Change):
    """The branch of evidence is everybody's: a run of another pull request is not replaced."""
    append_files(over(line), EVIDENCE, run_of(change, 1))
    line.overtake = (
        "GET /acme/kernels.git/info/refs?service=git-receive-pack",
        lambda: append_files(over(line), EVIDENCE, run_of(change, 2)),
    )
    last = append_files(over(line), EVIDENCE, run_of(change, 3))
    assert branch_tip(over(line), EVIDENCE) == last
    found = list_files(over(line), last, "reports")
    assert [path[-8:] for path in found] == ["001.json", "002.json", "003.json"]


@pytest.mark.parametrize("fault", ["502 after", "502 instead", "drop after", "drop instead"])
@pytest.mark.parametrize("push", [append_files, push_files])
def test_a_push_whose_answer_is_lost_is_made_once(line: Line, change: Change, push: Callable[..., str], fault: Fault):
    line.faults = {"POST /acme/kernels.git/git-receive-pack": [fault]}
    sha = push(over(line), EVIDENCE, run_of(change, 1))
    assert branch_tip(over(line), EVIDENCE) == sha
    assert not line.faults["POST /acme/kernels.git/git-receive-pack"]
    assert git_log(line, sha) == 2


def git_log(line: Line, sha: str) -> int:
    """How many commits lead to one."""
    url = f"{line.api_url}/acme/kernels.git".replace("://", "://x:s3cret-token@")
    with tempfile.TemporaryDirectory() as folder:
        git(Path(folder), "init", "--quiet", "--bare", ".")
        git(Path(folder), "fetch", "--quiet", url, sha)
        return int(git(Path(folder), "rev-list", "--count", sha))


def test_the_same_run_twice_is_one_and_another_of_its_number_is_refused(line: Line, change: Change):
    (path,) = run_of(change, 1).files
    first = append_files(over(line), EVIDENCE, run_of(change, 1), new=[path])
    assert append_files(over(line), EVIDENCE, run_of(change, 1), new=[path]) == first
    with pytest.raises(UsageError, match="says something else"):
        append_files(over(line), EVIDENCE, run_of(change, 1, b"[]"), new=[path])


def test_a_commit_is_fetched_once(line: Line, change: Change):
    for _ in range(3):
        assert read_files(over(line), change.base_sha, ["README.md"]) == {"README.md": b"hello"}
        assert list_files(over(line), change.base_sha, "kernels") == [KERNEL]
    assert sum("git-upload-pack" in request.path for request in line.requests if request.method == "POST") <= 2
