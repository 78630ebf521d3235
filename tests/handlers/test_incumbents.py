"""Which merged kernel is the incumbent: each GPU has its own, by compute capability, and a CPU has one."""

from pathlib import Path

import pytest
import yaml

from bot.agent.prompt import first_message
from bot.agent.task import AgentTask
from bot.contract.load import load_contract
from bot.errors import DataError
from bot.evaluation import Evaluation, Job
from bot.github.push import read_files
from bot.handlers.evidence import EXAM
from bot.handlers.examine import examine
from bot.handlers.headroom import Earlier, costs, headroom, target_of
from bot.handlers.project import Project
from bot.handlers.run import Candidate
from bot.launch import Watch
from tests.handlers.conftest import PATH
from tests.handlers.street import Street
from tests.handlers.test_reconcile import reconciled
from tests.report.builders import BASE_NS, cell, evaluation
from tests.verify.conftest import CENTER, HONEST

FILES = ("torch_here", "triton_hopper", "triton_blackwell")
INDEX = "incumbents: {cpu: torch_here.py, sm_90: triton_hopper.py, sm_100: triton_blackwell.py}\n"


def merged(index: str = INDEX) -> dict[str, str]:
    return {"kernels/center/index.yaml": index, **{f"kernels/center/{name}.py": f"# {name}\n" for name in FILES}}


def on(architecture: str, made: Evaluation) -> Evaluation:
    """An exam as if it had been held there."""
    environment = made.environment.model_copy(update={"architecture": architecture})
    again = on(architecture, made.confirmation) if made.confirmation else None
    return made.model_copy(update={"environment": environment, "confirmation": again})


@pytest.fixture
def known(tmp_path: Path) -> Project:
    for path, text in merged().items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    return Project(tmp_path)


def test_a_job_for_a_gpu_names_the_incumbents_of_all_and_one_for_a_cpu_its_own(known: Project) -> None:
    gpu, cpu = (known.job("center", "x.py", HONEST, "exam", device).incumbents for device in ("cuda", "cpu"))
    assert {target: kernel.name for target, kernel in gpu.items()} == {
        "sm_90": "triton_hopper",
        "sm_100": "triton_blackwell",
    }
    assert {target: kernel.source for target, kernel in cpu.items()} == {"cpu": "# torch_here\n"}


@pytest.mark.parametrize("key", ["cuda", "sm_", "SM_90", "sm_90a", "../sm_90"])
def test_an_index_by_anything_else_is_a_mistake(known: Project, key: str) -> None:
    (known.kernels / "center" / "index.yaml").write_text(f"incumbents: {{{key}: torch_here.py}}\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"kernels/center/index\.yaml"):
        known.job("center", "x.py", HONEST, "exam", "cuda")


def test_an_agent_reads_what_each_is_merged_for(known: Project) -> None:
    contract = load_contract(CENTER.parent, "center")
    incumbents = known.incumbents("center", "cuda")
    told = first_message(AgentTask(contract.contract, contract.digest, "cuda", incumbents=incumbents))
    assert "- `baselines/triton_hopper.py` (incumbent on sm_90)\n" in told
    assert "- `baselines/triton_blackwell.py` (incumbent on sm_100)\n" in told


@pytest.fixture
def opened(street: Street) -> int:
    """A pull request of the bot whose candidate was examined on an sm_90, where sm_100 has another incumbent."""
    street.push("main", merged())
    town = street.town
    _, run = town.label(town.open_issue())
    run.write_order(run.order().model_copy(update={"device": "cuda"}))
    run.write_candidate(Candidate(path=PATH, source=HONEST))

    def launched(job: Job, watch: Watch = lambda _: None) -> Evaluation:
        return on("sm_90", street.examiner(job, watch))

    examine(run, town.project, launched, lambda _: None)
    number = street.published(run).pull
    assert number is not None
    return number


def test_a_candidate_becomes_the_incumbent_of_what_it_was_examined_on(street: Street, opened: int) -> None:
    path = "kernels/center/index.yaml"
    index = read_files(street.town.remote, street.town.github.pull(opened).head_sha, [path])[path]
    assert yaml.safe_load(index) == {
        "incumbents": {"cpu": "torch_here.py", "sm_90": Path(PATH).name, "sm_100": "triton_blackwell.py"}
    }


def test_another_incumbent_of_another_gpu_makes_no_report_stale(street: Street, opened: int) -> None:
    street.push("main", merged(INDEX.replace("triton_blackwell", "torch_here")))
    assert "STALE" not in reconciled(street)[0]
    assert street.statuses(opened)[EXAM][0] == "success"
    street.push("main", merged(INDEX.replace("triton_hopper", "torch_here")))
    assert "another kernel is the incumbent on the default branch" in reconciled(street)[0]
    assert street.statuses(opened)[EXAM][0] == "error"


def test_earlier_runs_of_another_gpu_say_nothing_of_the_headroom() -> None:
    def run(architecture: str, floor: float, day: int, seconds: float) -> Evaluation:
        cells = [cell(speedup=0.5, floor_ns=round(BASE_NS / floor))]
        made = evaluation(cells=cells, started_at=f"2026-12-{day:02d}T00:00:00Z", seconds=seconds, confirmation=None)
        return on(architecture, made)

    cpu, old, hopper = run("x86_64", 9.0, 4, 9.0), run("sm_100", 4.0, 2, 70.0), run("sm_90", 2.0, 3, 50.0)
    earlier = Earlier([hopper, old, cpu], [])
    assert target_of(earlier, "cuda") == "sm_90"
    found, other = (headroom(earlier, cpu.contract_digest, target) for target in ("sm_90", "sm_100"))
    assert found is not None
    assert other is not None
    assert (round(found.ratio), round(other.ratio)) == (2, 4)
    assert [costs(earlier, target).exam_seconds for target in ("sm_90", "sm_100", "cpu")] == [50.0, 70.0, 9.0]
    assert target_of(Earlier([cpu], []), "cuda") == ""
    assert headroom(earlier, cpu.contract_digest, "") is None
