"""Where an exam's time goes (bot/verify/spent.py): nothing counted twice, other threads not at all."""

import threading

import pytest

from bot.evaluation import Latency
from bot.verify import spent
from bot.verify.spent import Spent


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(spent, "time", found)
    return found


def test_what_is_inside_is_not_counted_for_what_is_around(clock: Clock) -> None:
    kept = Spent()
    clock.now = 5.0
    with kept.on("check"):
        clock.now += 1
        with kept.on("oracle"):
            clock.now += 10
        clock.now += 2
    clock.now += 100
    assert kept.latency() == Latency(check=3.0, oracle=10.0)


def test_an_exception_ends_its_kind(clock: Clock) -> None:
    kept = Spent()

    def fails() -> None:
        clock.now += 1
        raise ValueError("a")

    with pytest.raises(ValueError, match="a"), kept.on("draw"):
        fails()
    with kept.on("time"):
        clock.now += 2
    assert kept.latency() == Latency(draw=1.0, time=2.0)


def test_other_threads_cost_nothing(clock: Clock) -> None:
    kept = Spent()

    def beside() -> None:
        with kept.on("compile"):
            clock.now += 7

    with kept.on("start"):
        thread = threading.Thread(target=beside)
        thread.start()
        thread.join()
        clock.now += 1
    assert kept.latency() == Latency(start=8.0)


def test_clearing_forgets(clock: Clock) -> None:
    kept = Spent()
    with kept.on("draw"):
        clock.now += 3
    kept.clear()
    assert kept.latency() == Latency()
