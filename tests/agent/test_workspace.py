"""The workspace: nothing outside it is read, and only kernels of the contract are written."""

from pathlib import Path

import pytest

from bot.agent.workspace import SOURCE_LIMIT, Workspace
from bot.errors import UsageError

KERNEL = "kernels/toy/torch_a.py"

ESCAPES = [
    "../outside.txt",
    "/etc/hostname",
    "baselines/../../outside.txt",
    "kernels/toy/../../../outside.txt",
    "~/outside.txt",
    "..",
    ".hidden",
    "baselines\\loop.py",
    "baselines/\x00loop.py",
    "a\nb",
    "ｂaselines/loop.py",
    "x" * 4000,
]


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    (tmp_path / "outside.txt").write_text("secret")
    root = tmp_path / "run"
    root.mkdir()
    workspace = Workspace(root, "toy")
    workspace.lay_out({"contract.md": "the contract", "baselines/loop.py": "# loop"})
    return workspace


@pytest.mark.parametrize("path", ESCAPES)
def test_no_path_leads_outside(place: Workspace, path: str) -> None:
    with pytest.raises(UsageError):
        place.read(path)
    with pytest.raises(UsageError):
        place.write(path, "x")


@pytest.mark.parametrize(
    "path",
    [
        "contract.md",
        "baselines/loop.py",
        "kernels/other/torch_a.py",
        "kernels/toy/index.yaml",
        "kernels/toy/torch_A.py",
        "kernels/toy/torch.py",
        "kernels/toy/cuda_a.py",
        "kernels/toy/sub/torch_a.py",
        "kernels/toy/torch_a.py\n",
        "./kernels/toy/torch_a.py",
        "candidates/01_torch_a.py",
    ],
)
def test_only_kernel_files_of_the_contract_are_written(place: Workspace, path: str) -> None:
    before = sorted(place.root.rglob("*"))
    with pytest.raises(UsageError):
        place.write(path, "x")
    assert sorted(place.root.rglob("*")) == before


def test_what_was_written_is_read_back_and_listed(place: Workspace) -> None:
    place.write(KERNEL, "def run(): ...\n")
    assert place.kernel(KERNEL) == "def run(): ...\n"
    assert place.read(".").splitlines() == ["baselines/loop.py", "contract.md", KERNEL]
    assert place.read("baselines/") == "baselines/loop.py"


def test_links_are_refused_whatever_they_point_to(place: Workspace, tmp_path: Path) -> None:
    (place.root / "wiki").symlink_to(tmp_path)
    (place.root / "baselines" / "link.py").symlink_to(place.root / "contract.md")
    (place.root / KERNEL).symlink_to(tmp_path / "outside.txt")
    for path in ("wiki/outside.txt", "wiki", "baselines/link.py", KERNEL):
        with pytest.raises(UsageError, match="link"):
            place.read(path)
    with pytest.raises(UsageError, match="link"):
        place.write(KERNEL, "overwritten")
    assert (tmp_path / "outside.txt").read_text() == "secret"
    assert "outside" not in place.read(".")


def test_a_source_beyond_the_limit_is_refused_and_leaves_the_old_one(place: Workspace) -> None:
    place.write(KERNEL, "x" * SOURCE_LIMIT)
    with pytest.raises(UsageError, match="at most"):
        place.write(KERNEL, "é" * (SOURCE_LIMIT // 2 + 1))
    assert len(place.kernel(KERNEL)) == SOURCE_LIMIT


def test_a_long_listing_says_how_much_is_left_out(place: Workspace) -> None:
    place.lay_out({f"wiki/{n:03d}.md": "x" for n in range(300)})
    lines = place.read("wiki").splitlines()
    assert (len(lines), lines[-1]) == (201, "… and 100 more")
