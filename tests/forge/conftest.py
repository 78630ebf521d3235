"""A served forge with a small cast and a repository of one commit; a branch `faster` is one commit ahead."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from github import Auth, Github

from bot.forge.repository import Repository, git_environment
from bot.forge.server import Forge
from bot.forge.state import ForgeState
from tests.forge.described import described

__all__ = ["described"]

PERSON = {
    "GIT_AUTHOR_NAME": "maintainer",
    "GIT_AUTHOR_EMAIL": "maintainer@example.org",
    "GIT_COMMITTER_NAME": "maintainer",
    "GIT_COMMITTER_EMAIL": "maintainer@example.org",
}

KERNEL = "import math\n\n\ndef run(x):\n    return x + 0\n\n\nASSUMED = math.pi\n"

Git = Callable[..., str]
Client = Callable[[str], Github]


def run_git(*arguments: str, cwd: Path, check: bool = True) -> str:
    """What git printed; its complaints instead when it is allowed to fail."""
    environment = git_environment() | PERSON | {"GIT_TERMINAL_PROMPT": "0"}
    done = subprocess.run(["git", *arguments], check=False, cwd=cwd, env=environment, capture_output=True, text=True)
    assert not check or done.returncode == 0, done.stderr
    return (done.stdout if check else done.stderr).strip()


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A work tree and the forge's repository, made once and copied for each test."""
    folder = tmp_path_factory.mktemp("template")
    tree = folder / "work"
    run_git("init", "--quiet", "--initial-branch=main", str(tree), cwd=folder)
    (tree / "contracts" / "rmsnorm").mkdir(parents=True)
    (tree / "contracts" / "rmsnorm" / "contract.yaml").write_text("name: rmsnorm\n")
    (tree / "kernel.py").write_text(KERNEL)
    run_git("add", ".", cwd=tree)
    run_git("commit", "--quiet", "--message", "First", cwd=tree)
    run_git("checkout", "--quiet", "-b", "faster", cwd=tree)
    (tree / "kernel.py").write_text(KERNEL.replace("x + 0", "x * 1"))
    (tree / "notes.md").write_text("quick\n")
    run_git("add", ".", cwd=tree)
    run_git("commit", "--quiet", "--message", "Faster", cwd=tree)
    bare = ForgeState.create(folder / "remotes").repository.path
    run_git("push", "--quiet", str(bare), "main", "faster", cwd=tree)
    return folder


@pytest.fixture
def git(tmp_path: Path) -> Git:
    def run(*arguments: str, cwd: Path = tmp_path, check: bool = True) -> str:
        return run_git(*arguments, cwd=cwd, check=check)

    return run


@pytest.fixture
def work(tmp_path: Path, template: Path) -> Path:
    """A work tree with branches `main` and `faster`, the latter checked out."""
    return shutil.copytree(template / "work", tmp_path / "work")


@pytest.fixture
def state(tmp_path: Path, template: Path) -> ForgeState:
    bare = shutil.copytree(template / "remotes" / "acme" / "kernels.git", tmp_path / "acme" / "kernels.git")
    made = ForgeState(Repository(bare))
    made.add_user("alice", "admin", "token-alice")
    made.add_user("rachel", "write", "token-rachel")
    made.add_user("tom", "triage", "token-tom")
    made.add_user("mallory", "none", "token-mallory")
    made.add_user("github-actions[bot]", "write", "token-bot", actions_bot=True)
    return made


@pytest.fixture
def forge(state: ForgeState) -> Iterator[Forge]:
    with Forge.serving(state) as served:
        yield served


@pytest.fixture
def client(forge: Forge) -> Iterator[Client]:
    """A PyGithub client for a user, without its spacing and retries."""
    opened: list[Github] = []

    def connect(login: str) -> Github:
        auth = Auth.Token(f"token-{login}")
        made = Github(
            base_url=forge.api_url, auth=auth, retry=None, seconds_between_requests=None, seconds_between_writes=None
        )
        opened.append(made)
        return made

    yield connect
    for each in opened:
        each.close()
