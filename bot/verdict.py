"""Policy: what the facts of one or more exams of the same candidate amount to. Pure; sees no file, clock or network."""

from collections.abc import Sequence
from enum import StrEnum

from bot.contract.distribution import Frozen
from bot.evaluation import Evaluation


class Kind(StrEnum):
    """The decision. The first four are acceptances (correct), the others are not; see design.md, Verdicts."""

    IMPROVED = "improved"
    MIXED = "mixed"
    NO_GAIN = "no_gain"
    SLOWER = "slower"
    INCORRECT = "incorrect"
    TAMPERED = "tampered"
    BUILD_FAILED = "build_failed"
    TIMED_OUT = "timed_out"
    VERIFIER_WEAK = "verifier_weak"
    INVALID_MEASUREMENT = "invalid_measurement"
    INFRASTRUCTURE = "infrastructure"


ACCEPTED = frozenset({Kind.IMPROVED, Kind.MIXED, Kind.NO_GAIN, Kind.SLOWER})


class Interval(Frozen):
    """An estimate with its 95 % interval and how many pairs of samples stand behind it."""

    low: float
    mid: float
    high: float
    samples: int


class CellVerdict(Frozen):
    """One scored cell: bar ÷ candidate, and which way it points beyond the noise floor."""

    workload: str
    regime: str
    bar: str
    ratio: Interval | None
    direction: str


class Verdict(Frozen):
    """The decision and what it rests on. `accepted` (correct) and `measured` are facts of their own."""

    kind: Kind
    accepted: bool
    measured: bool
    speedup: Interval | None
    noise_floor: float | None
    cells: list[CellVerdict]
    reasons: list[str]
    runs: int


def decide(evaluations: Sequence[Evaluation]) -> Verdict:
    """Pool all runs of one candidate into a verdict."""
    raise NotImplementedError(evaluations)
