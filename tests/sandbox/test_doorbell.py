"""What a candidate gains by writing the words of the doorbell itself: no answer that is early and right."""

from collections.abc import Iterator

import numpy as np
import pytest

from bot.verify.calls import MAX_CLAIM_NS, Answered, Failure, Worker
from tests.sandbox.conftest import STREAM, case, everything

pytestmark = pytest.mark.sandbox

KERNEL = """
import sys
import threading
import time

from bot.verify.doorbell import CLAIMED, DONE, FAILED, RING, SLOT


def bell_of(depth):
    frame = sys._getframe(depth)
    while "bell" not in frame.f_locals:
        frame = frame.f_back
    return frame.f_locals["bell"].words, frame.f_locals["self"].rung


def run(x, offset, scale, cu_seqlens, y):
    words, call = bell_of(1)
    {before}
    y.fill_(1.0)
    {after}
"""


@pytest.fixture
def worker(contract) -> Iterator[Worker]:
    with Worker(contract, "bubblewrap", everything()) as one:
        yield one


def answers(worker: Worker, before: str = "pass", after: str = "pass", calls: int = 2) -> list[Answered | Failure]:
    assert worker.load(KERNEL.format(before=before, after=after)) is None
    return [worker.run(case(worker.contract), STREAM.child(number), 3.0) for number in range(calls)]


def written(answer: Answered | Failure) -> bool:
    return isinstance(answer, Answered) and answer.unwritten is None and np.size(answer.outputs["y"]) > 0


def test_without_a_trick_the_outputs_are_there(worker: Worker) -> None:
    assert all(map(written, answers(worker)))


def test_rung_before_the_outputs_are_written_the_call_ends_without_them(worker: Worker) -> None:
    first = answers(worker, before="words[DONE] = call; time.sleep(0.3)", calls=1)[0]
    assert isinstance(first, Answered)
    assert first.unwritten is not None


def test_a_helper_that_rings_for_the_next_call_is_overwritten(worker: Worker) -> None:
    """The word is set to zero while everything is stopped; nothing can be said of a call that has not begun."""
    found = answers(worker, after="words[DONE] = call + 1", calls=3)
    assert all(map(written, found))


@pytest.mark.parametrize("number", ["call + 7", "2**63", "0"])
def test_the_end_of_another_call_ends_nothing(worker: Worker, number: str) -> None:
    assert all(map(written, answers(worker, before=f"words[DONE] = {number}")))


def test_a_failure_without_a_word_about_it_is_not_an_answer(worker: Worker) -> None:
    first = answers(worker, before="words[FAILED] = 1; words[DONE] = call; time.sleep(1.5)", calls=1)[0]
    assert isinstance(first, Failure)
    assert first.kind in {"timed_out", "tampered"}


def test_a_claim_is_bounded_and_touches_no_time_of_ours(worker: Worker) -> None:
    found = answers(worker, before="words[CLAIMED] = 2**64 - 1; words[DONE] = call; time.sleep(0.2)", calls=1)[0]
    assert isinstance(found, Answered)
    assert found.claimed_ns <= MAX_CLAIM_NS
    assert 0 < found.envelope_ns < MAX_CLAIM_NS


def test_a_slot_of_its_own_choice_does_not_exist(worker: Worker) -> None:
    """The slot was read before the kernel ran; a wrong one would only raise in its own process."""
    assert all(map(written, answers(worker, before="words[SLOT] = 99", after="words[SLOT] = 99")))


def test_ringing_for_itself_calls_itself_at_most(worker: Worker) -> None:
    """Between calls it is stopped; what runs before that writes into outputs that have been copied already, or are."""
    found = answers(worker, after="words[RING] = call + 5 if words[RING] == call else words[RING]", calls=2)
    assert all(written(answer) or isinstance(answer, Failure) for answer in found)
