"""What the verifier's tests share: the small contract, and exams of sources on it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bot.evaluation import Evaluation, Job, Mode
from bot.launch import launch

CONTRACTS = Path(__file__).parents[1] / "data" / "contracts"
CENTER = CONTRACTS / "center"
HONEST = (CENTER / "faithful" / "float32.py").read_text(encoding="utf-8")

Examine = Callable[..., Evaluation]


@pytest.fixture(scope="session")
def examine() -> Examine:
    """Examine a source under the small contract, in a real verifier process."""
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")

    def run(source: str, mode: Mode = "quick", contracts: Path = CONTRACTS) -> Evaluation:
        return launch(
            Job(contracts_dir=str(contracts), contract="center", candidate_name="torch_x.py", source=source, mode=mode)
        )

    return run
