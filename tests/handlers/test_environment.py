"""`proctor runner prepare`: one folder for each lock, whole or not there, made once. A wheel of a few bytes stands for
Proctor, and pip may not use the network."""

import json
import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from bot.errors import InfrastructureError, UsageError
from bot.handlers.environment import TORCH, Recipe, prepare
from bot.handlers.install import SHIPPED
from bot.handlers.lock import Lock
from bot.handlers.runner import MARKER

ROOT = Path(__file__).parents[2]
WHEEL = "kernel_proctor-0.1.0-py3-none-any.whl"


def tiny_wheel(path: Path) -> None:
    folder = "kernel_proctor-0.1.0.dist-info"
    files = {
        "tiny.py": "",
        f"{folder}/METADATA": "Metadata-Version: 2.1\nName: kernel-proctor\nVersion: 0.1.0\nProvides-Extra: local\n",
        f"{folder}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, f"{folder}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {**files, f"{folder}/RECORD": record}.items():
            archive.writestr(name, text)


def locked(root: Path) -> Lock:
    folder = root / ".github" / "proctor"
    folder.mkdir(parents=True)
    tiny_wheel(folder / WHEEL)
    (folder / "constraints.txt").write_text("kernel-proctor==0.1.0\n", encoding="utf-8")
    (folder / "requirements.txt").write_text(f"./.github/proctor/{WHEEL}\n", encoding="utf-8")
    return Lock.read(root)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("GITHUB_TOKEN", "ghp_secret")


def test_an_environment_is_made_once_whole_and_named_current(tmp_path: Path) -> None:
    recipe = Recipe(locked(tmp_path / "checkout"), torch="", extra="local")
    kept, said = tmp_path / "kept", list[str]()
    place = prepare(recipe, kept, said.append)
    assert place == kept / recipe.name
    assert json.loads((place / MARKER).read_text(encoding="utf-8"))["lock"] == recipe.lock.digest
    python = place / "bin" / "python"
    done = subprocess.run(
        [python, "-c", "import tiny, importlib.metadata as m; print(m.version('kernel-proctor'))"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "0.1.0\n"
    assert subprocess.run([python, "-m", "pip"], capture_output=True, check=False).returncode != 0, "installs nothing"
    assert (kept / "current").resolve() == place
    assert [part for line in said for part in (line.partition(" ")[0],)] == ["making", "installing"]

    before = (place / MARKER).stat().st_mtime_ns
    assert prepare(recipe, kept, said.append) == place
    assert said[-1] == f"there already: {place}"
    assert (place / MARKER).stat().st_mtime_ns == before

    # An attempt that broke off has no marker: it is made again, and nothing of it stays.
    (place / MARKER).unlink()
    (place / "left-over").write_text("", encoding="utf-8")
    prepare(recipe, kept, said.append)
    assert (place / MARKER).exists()
    assert not (place / "left-over").exists()


def test_what_cannot_be_installed_leaves_nothing_and_says_who_must_act(tmp_path: Path) -> None:
    recipe = Recipe(locked(tmp_path / "checkout"), torch="no-such-torch==1", extra="none")
    with pytest.raises(InfrastructureError, match=r"no-such-torch==1 cannot be installed\. Whoever owns this machine"):
        prepare(recipe, tmp_path / "kept", lambda _: None)
    assert [path.name for path in (tmp_path / "kept").iterdir() if path.name != ".lock"] == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    recipe = Recipe(locked(tmp_path / "checkout"), torch="")
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(InfrastructureError, match="--folder"):
        prepare(recipe, tmp_path / "closed" / "kept", lambda _: None)


def test_everything_that_decides_what_is_inside_names_the_folder(tmp_path: Path) -> None:
    lock = locked(tmp_path)
    names = {Recipe(lock).name, Recipe(lock, torch="").name, Recipe(lock, extra="local").name}
    (tmp_path / ".github" / "proctor" / "constraints.txt").write_text("kernel-proctor==0.1.0\nx==1\n", encoding="utf-8")
    names.add(Recipe(Lock.read(tmp_path)).name)
    assert len(names) == 4


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("./.github/proctor/x.whl", "./.github/proctor/x.whl[gpu]"),
        ("kernel-proctor==0.1.0  # why", "kernel-proctor[gpu]==0.1.0"),
        ("kernel-proctor @ https://x.org/a.whl#sha256=ab", "kernel-proctor[gpu] @ https://x.org/a.whl#sha256=ab"),
    ],
)
def test_the_extra_goes_where_pip_reads_it(tmp_path: Path, line: str, wanted: str) -> None:
    locked(tmp_path)
    file = tmp_path / ".github" / "proctor" / "requirements.txt"
    file.write_text(f"# ours\n{line}\n", encoding="utf-8")
    assert Lock.read(tmp_path).with_extra("gpu") == wanted
    file.write_text(f"{line}\nevil\n", encoding="utf-8")
    with pytest.raises(UsageError, match="names 2 requirements"):
        Lock.read(tmp_path)


def test_the_lock_of_this_repository_covers_the_judge() -> None:
    lock = Lock.read(ROOT)
    assert lock.source == ROOT
    assert lock.versions["pygithub"] == "2.10.0"
    assert (SHIPPED / "constraints.txt").read_bytes() == lock.constraints.read_bytes()


def test_without_a_lock_somebody_is_told_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="proctor init"):
        Lock.read(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[project\n", encoding="utf-8")
    with pytest.raises(UsageError, match="proctor init"):
        Lock.read(tmp_path)


def test_torch_is_the_one_of_the_makefile() -> None:
    assert f"TORCH ?= {TORCH}\n" in (ROOT / "Makefile").read_text(encoding="utf-8")
