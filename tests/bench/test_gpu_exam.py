"""What the run on a GPU keeps of its tests, read from pytest's own report of a run here."""

import subprocess
import sys
from pathlib import Path

import pytest

gpu_exam = pytest.importorskip("tests.bench.gpu_exam", reason="needs the extra [gpu]")

TESTS = """
import pytest

@pytest.mark.parametrize("file", ["lucky_race_gpu"])
def test_no_cheat_is_accepted(file, record_property):
    record_property("museum", ["exploits", "lucky-race", "no_gain", "", "12"])
    assert False

def test_other():
    pass

def test_left():
    pytest.skip("needs a CUDA device")
"""


def test_each_test_is_told_and_of_a_museum_file_what_was_expected_and_what_came(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS, encoding="utf-8")
    report = tmp_path / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *gpu_exam.reported(report), "."]
    subprocess.run(command, cwd=tmp_path, check=False, capture_output=True)
    told, other, left = gpu_exam.outcomes(report)
    assert (told["outcome"], other["outcome"], left["outcome"]) == ("failure", "passed", "skipped")
    assert (told["file"], told["expected"], told["got"]) == ("tests/exploits/lucky_race_gpu.py", "incorrect", "no_gain")
    assert "file" not in other
