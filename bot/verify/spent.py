"""Where an exam's time goes: seconds of the verifier's own thread by kind of work, none counted twice.

What other threads do meanwhile costs nobody's time; what is waited for does. The rest of an exam's seconds is our own
bookkeeping.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from bot.evaluation import Latency, Work


class Spent:
    """A clock that is always on one kind of work, or on none."""

    def __init__(self) -> None:
        """Nothing is spent; the thread that made it is the one that counts."""
        self._seconds: dict[Work, float] = defaultdict(float)
        self._thread = threading.get_ident()
        self._on: Work | None = None
        self._since = 0.0

    @contextmanager
    def on(self, work: Work) -> Iterator[None]:
        """Count what is inside as this kind, and not as the one around it."""
        if threading.get_ident() != self._thread:
            yield
            return
        around = self._switch(work)
        try:
            yield
        finally:
            self._switch(around)

    def _switch(self, work: Work | None) -> Work | None:
        """Count what has passed; returns what it was."""
        now, was = time.monotonic(), self._on
        if was is not None:
            self._seconds[was] += now - self._since
        self._on, self._since = work, now
        return was

    def clear(self) -> None:
        """Forget what was spent before anybody waited for it."""
        self._seconds.clear()

    def latency(self) -> Latency:
        """Seconds of each kind so far."""
        return Latency.model_validate({work: round(seconds, 3) for work, seconds in self._seconds.items()})
