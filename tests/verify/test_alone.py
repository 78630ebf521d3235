"""Two exams on one device take turns."""

import subprocess
import sys
from pathlib import Path

import pytest

from bot.errors import InfrastructureError
from bot.verify.alone import alone_with

HOLD = """
import sys, time
from pathlib import Path
from bot.verify.alone import alone_with
with alone_with("GPU-1", print, Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path: Path):
    """Another process that has the device."""
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_who_comes_second_says_for_whom_it_waits_and_gets_it_when_that_one_dies(tmp_path, holder) -> None:
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        holder.kill()

    with alone_with("GPU-1", say, tmp_path):
        assert said == [f"waiting for process {holder.pid}, which has the device"]


def test_another_device_is_another_matter(tmp_path, holder) -> None:
    said: list[str] = []
    with alone_with("GPU-2", said.append, tmp_path):
        assert said == []


def test_a_lock_that_cannot_be_written_is_the_machines_fault(tmp_path) -> None:
    (tmp_path / "file").touch()
    refused = pytest.raises(InfrastructureError, match=r"the lock of the device cannot be had: .* must act")
    with refused, alone_with("GPU-1", print, tmp_path / "file" / "below"):
        pass
