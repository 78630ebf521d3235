"""Who runs where: one CPU for the verifier, all others for workers; a single CPU is shared."""

import os


def split() -> tuple[set[int], set[int]]:
    """The verifier's CPUs and the workers'."""
    available = sorted(os.sched_getaffinity(0))
    return {available[0]}, set(available[1:]) or {available[0]}
