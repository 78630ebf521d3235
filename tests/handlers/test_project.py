"""The project's root is the nearest folder with `contracts/`, upwards."""

from pathlib import Path

import pytest

from bot.errors import UsageError
from bot.handlers.project import Project


def test_the_nearest_folder_with_contracts_is_the_root(tmp_path: Path) -> None:
    inner = tmp_path / "outer" / "inner"
    for folder in (tmp_path / "outer" / "contracts", inner / "contracts", inner / "kernels" / "x"):
        folder.mkdir(parents=True)
    assert Project.find(inner / "kernels" / "x").root == inner
    assert Project.find(inner).root == inner
    assert Project.find(tmp_path / "outer").root == tmp_path / "outer"
    assert Project.find(inner / "contracts").root == inner
    with pytest.raises(UsageError, match="run proctor inside a project"):
        Project.find(tmp_path)


def test_a_file_of_that_name_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "contracts").write_text("", encoding="utf-8")
    with pytest.raises(UsageError):
        Project.find(tmp_path)
