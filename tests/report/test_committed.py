"""What was measured where CI cannot: the evaluations in reports/ are read, and their reports say what they say."""

from pathlib import Path

import pytest

from bot.evaluation import Evaluation
from bot.report.comment import ReportFacts, render_comment
from bot.verdict import decide

REPORTS = Path(__file__).parents[2] / "reports"
COMMITTED = sorted(REPORTS.glob("*/sm_*/*.json"))


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: "/".join(path.parts[-3:]))
def test_an_evaluation_of_record_still_says_what_its_report_says(path: Path) -> None:
    evaluation = Evaluation.model_validate_json(path.read_text(encoding="utf-8"))
    assert evaluation.environment.architecture == path.parts[-2]
    report = path.with_suffix(".md").read_text(encoding="utf-8")
    made = render_comment(ReportFacts(evaluations=[evaluation], verdict=decide([evaluation])))
    assert report.splitlines()[0] == made.splitlines()[0]
    assert f"evaluation `{evaluation.digest()[:7]}`" in report, "what has been added to the facts since says nothing"


def test_there_are_some() -> None:
    assert COMMITTED
