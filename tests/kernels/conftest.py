"""What tests of merged kernels share: one builder, and what each file compiles to for both architectures, once."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bot.evaluation import Inspected
from tests.inspecting import Look, looking

Compiled = Callable[[Path], Inspected]


@pytest.fixture(scope="package")
def look() -> Iterator[Look]:
    with looking() as found:
        yield found


@pytest.fixture(scope="package")
def compiled(look: Look) -> Compiled:
    """Inspect a file for both architectures under the contract that its folder is named after."""
    kept: dict[Path, Inspected] = {}

    def one(file: Path) -> Inspected:
        if file not in kept:
            kept[file] = look(file.read_text(encoding="utf-8"), "sm_90a", "sm_100a", contract=file.parent.name)
        return kept[file]

    return one
