"""Builder and reader that stay for many files: starting them takes longer than compiling a kernel."""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from bot.contract.load import load_contract
from bot.evaluation import Architecture, Inspected, Inspection
from bot.verify import cpus
from bot.verify.artefacts import BUILDER, READER
from bot.verify.inspect import examine, find_tools
from bot.verify.room import Room

ROOT = Path(__file__).parents[1]
Look = Callable[..., Inspected]


def missing() -> str:
    """Why kernels cannot be compiled here; empty when they can."""
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed"
    return next((f"{name} is not installed" for name in ("triton", "cutlass") if find_spec(name) is None), "")


@contextlib.contextmanager
def looking() -> Iterator[Look]:
    """Inspect sources, one after the other; the test is skipped where that cannot be."""
    if missing():
        pytest.skip(missing())
    ours, theirs = cpus.split()
    with Room("bubblewrap", BUILDER, theirs) as builder, Room("bubblewrap", READER, ours) as reader:

        def look(
            source: str, *architectures: Architecture, axes: dict[str, int] | None = None, contract: str = "rmsnorm"
        ) -> Inspected:
            order = Inspection(
                contracts_dir=str(ROOT / "contracts"),
                contract=contract,
                candidate_name="x.py",
                source=source,
                architectures=list(architectures or ("sm_90a",)),
            )
            loaded = load_contract(ROOT / "contracts", contract).contract
            workload = loaded.anchor("cuda").model_copy(update={"axes": axes} if axes else {})
            asked = loaded.model_copy(update={"workloads": [workload]})
            return examine(order, asked, builder, reader, find_tools())

        yield look
