"""Statistics on lists of nanoseconds: medians, ratios, intervals, the noise floor. Pure, standard library only.

It knows nothing of verdicts. A sample that is missing, zero or negative is refused, never skipped and never averaged.
"""

import math
import random
from collections.abc import Mapping, Sequence

from bot.contract.distribution import Frozen

REPLICATES = 1000
"""Of a bootstrap: the ends of a 95 % interval then rest on 25 replicates each."""


class Interval(Frozen):
    """An estimate with its 95 % interval and how many pairs of samples stand behind it."""

    low: float
    mid: float
    high: float
    samples: int


def median(samples: Sequence[float]) -> float:
    """The median of times.

    Raises:
        ValueError: there is none, or one is not a positive number.
    """
    _require_positive(samples)
    return _middle(sorted(samples))


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of times or ratios.

    Raises:
        ValueError: there is none, or one is not a positive number.
    """
    _require_positive(values)
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def log_ratios(bar_ns: Sequence[int], candidate_ns: Sequence[int], scale: float = 1.0) -> list[float]:
    """Natural logarithm of `scale` × bar ÷ candidate, pair by pair.

    Raises:
        ValueError: a sample is missing or not a positive number.
    """
    if len(bar_ns) != len(candidate_ns):
        raise ValueError(f"{len(bar_ns)} times of the bar stand against {len(candidate_ns)} of the candidate")
    for values in (bar_ns, candidate_ns, [scale]):
        _require_positive(values)
    return [math.log(scale * bar / candidate) for bar, candidate in zip(bar_ns, candidate_ns, strict=True)]


def aa_floor(medians: Sequence[Sequence[float]]) -> float | None:
    """How far two fresh workers of the same kernel differ, as a fraction; None without two rounds in any cell.

    `medians`: for each cell the median time of the same baseline in each round. The floor is the 95 % quantile
    (nearest rank) of the relative difference over all pairs of rounds of a cell, pooled over cells; with fewer than
    20 pairs that is the largest.

    Raises:
        ValueError: a median is not a positive number.
    """
    for cell in medians:
        _require_positive(cell)
    gaps = sorted(
        abs(math.log(one / other)) for cell in medians for i, one in enumerate(cell) for other in cell[i + 1 :]
    )
    return math.expm1(gaps[math.ceil(0.95 * len(gaps)) - 1]) if gaps else None


def aa_floor_of_mean(medians: Sequence[Sequence[float]]) -> float | None:
    """How far the geometric mean over cells differs between two rounds of fresh workers of the same kernel.

    `medians`: for each cell of one run the median time of the same baseline in each round. A speedup is such a mean,
    so this is the noise it has to beat: noise of single cells averages out, what a worker has for its life does not.

    Raises:
        ValueError: a median is not a positive number, or the cells differ in how many rounds they have.
    """
    for cell in medians:
        _require_positive(cell)
    rounds = {len(cell) for cell in medians}
    if len(rounds) > 1:
        raise ValueError("every cell of a run has the same number of rounds")
    means = [math.fsum(math.log(cell[i]) for cell in medians) / len(medians) for i in range(max(rounds, default=0))]
    gaps = [abs(one - other) for i, one in enumerate(means) for other in means[i + 1 :]]
    return math.expm1(max(gaps)) if gaps else None


def intervals(cells: Mapping[str, Sequence[Sequence[float]]], seed: str) -> tuple[dict[str, Interval], Interval]:
    """The median ratio of each cell, and the geometric mean over the cells, from a joint hierarchical bootstrap.

    `cells`: for each cell its rounds, for each round the log ratios of its pairs. The same data and seed give the
    same digits; the order of the cells does not count.

    Raises:
        ValueError: there is no cell, or one has no round or an empty round.
    """
    if not cells or not all(rounds and all(rounds) for rounds in cells.values()):
        raise ValueError("a cell without samples voids the geometric mean")
    replicates: dict[str, list[float]] = {}
    found: dict[str, Interval] = {}
    for name, rounds in sorted(cells.items()):
        pairs = sorted(value for one in rounds for value in one)
        replicates[name] = _resample(rounds, random.Random(f"{seed}/{name}"))  # noqa: S311 - wants repeatable
        found[name] = _interval(_middle(pairs), replicates[name], len(pairs))
    means = [math.fsum(each) / len(each) for each in zip(*replicates.values(), strict=True)]
    middle = math.fsum(math.log(cell.mid) for cell in found.values()) / len(found)
    return found, _interval(middle, means, sum(cell.samples for cell in found.values()))


def _resample(rounds: Sequence[Sequence[float]], rng: random.Random) -> list[float]:
    """Medians of resampled rounds, and of resampled pairs inside them.

    One round fewer is drawn than there are: drawing all n understates the variance between workers by (n-1)/n, which
    is half with two rounds (Rao and Wu, JASA 83 (1988) 231).
    """
    draws = max(1, len(rounds) - 1)
    medians = []
    for _ in range(REPLICATES):
        chosen = rng.choices(rounds, k=draws)
        medians.append(_middle(sorted(v for one in chosen for v in rng.choices(one, k=len(one)))))
    return medians


def _interval(middle: float, replicates: Sequence[float], samples: int) -> Interval:
    """From logarithms to a ratio; the interval always holds its estimate."""
    ordered = sorted(replicates)
    tail = len(ordered) // 40
    low, high = min(ordered[tail], middle), max(ordered[-1 - tail], middle)
    return Interval(low=math.exp(low), mid=math.exp(middle), high=math.exp(high), samples=samples)


def _middle(ordered: Sequence[float]) -> float:
    half = len(ordered) // 2
    return float(ordered[half]) if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _require_positive(values: Sequence[float]) -> None:
    if not values:
        raise ValueError("there are no samples")
    for value in values:
        if not 0 < value < math.inf:
            raise ValueError(f"{value} is not a time or ratio: it must be a positive number")
