"""Who runs where: some CPUs for the verifier, all others for workers; a single CPU is shared."""

import functools
import os

MOST = 4
"""CPUs of the verifier on a large machine. Its clock is on the first of them alone; the others are for judging answers
of kernels of its own, several at a time, when nothing is timed."""


@functools.cache
def split() -> tuple[set[int], set[int]]:
    """The verifier's CPUs, a quarter of all but not more than four, and the workers'. Asked once: afterwards the
    verifier keeps to its own."""
    available = sorted(os.sched_getaffinity(0))
    own = min(max(len(available) // 4, 1), MOST)
    return set(available[:own]), set(available[own:]) or {available[0]}


def first() -> set[int]:
    """The one on which the verifier's clock is."""
    return {min(split()[0])}
