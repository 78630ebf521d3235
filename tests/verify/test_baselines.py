"""How the bar is chosen: who comes last, and who is not asked further."""

import shutil
from pathlib import Path

import pytest

from bot.evaluation import Job
from bot.launch import launch
from bot.verify.stages.baselines import HOPELESS
from tests.verify.conftest import CENTER, HONEST

pytestmark = pytest.mark.sandbox
DECLARED = """baselines:
  - {name: plain, role: reference, file: baselines/plain.py, device: [cpu]}
  - {name: torch, role: official, file: baselines/torch_loop.py, device: [cpu]}
"""


def test_a_plain_reference_far_slower_than_the_bar_is_named_and_asked_no_further(tmp_path: Path) -> None:
    folder = tmp_path / "center"
    shutil.copytree(CENTER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    # 40 ms before each call: hundreds of times what the contract's own baseline takes.
    plain = HONEST.replace("def run(", "def honest(") + "\n\nimport time\n\n\ndef run(*arguments):\n"
    (folder / "baselines" / "plain.py").write_text(plain + "    time.sleep(0.04)\n    honest(*arguments)\n")
    text = (folder / "contract.yaml").read_text(encoding="utf-8")
    start, end = text.index("baselines:"), text.index("controls:")
    (folder / "contract.yaml").write_text(text[:start] + DECLARED + text[end:], encoding="utf-8")
    job = Job(contracts_dir=str(tmp_path), contract="center", candidate_name="x.py", source=HONEST, mode="full")
    evaluation = launch(job)
    states = {state.name: state for state in evaluation.baselines}
    assert list(states) == ["torch", "plain"]
    assert {state.state for state in states.values()} == {"available"}
    times, _, rest = states["plain"].note.partition(" times slower than torch in ")
    assert int(times) > HOPELESS
    assert rest.endswith(": neither checked nor timed further")
    assert {row.baseline for cell in evaluation.cells for row in cell.baselines} == {"torch"}
    assert {cell.bar for cell in evaluation.cells} == {"torch"}
