"""Who runs where: one CPU for the verifier, all others for workers; a single CPU is shared."""

import functools
import os


@functools.cache
def split() -> tuple[set[int], set[int]]:
    """The verifier's CPUs and the workers'. Asked once: afterwards the verifier keeps to its own."""
    available = sorted(os.sched_getaffinity(0))
    return {available[0]}, set(available[1:]) or {available[0]}
