"""Statistics on lists of nanoseconds: medians, ratios, intervals, the noise floor. Pure, standard library only.

It knows nothing of verdicts. A sample that is missing, zero or negative is refused, never skipped and never averaged.
"""

import math
import random
import statistics
from collections.abc import Iterable, Mapping, Sequence

from bot.contract.distribution import Frozen

REPLICATES = 1000
"""Of a bootstrap: the ends of a 95 % interval then rest on 25 replicates each."""


INSIDE = 2
"""Degrees of freedom that the spread inside the rounds counts for beside that between them (`repeatability`). With two
rounds Student's quantile is then 3.2 instead of 12.7, and a gap that is small by luck does not make a figure exact."""


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
    same digits; the order of the cells does not count. Each cell's rounds are resampled for themselves: what a worker
    has in all cells is averaged with the rest (`repeatability` does not).

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


def means_of_rounds(cells: Iterable[Sequence[Sequence[float]]]) -> list[float]:
    """Round by round, the mean over the cells of the median of its values.

    `cells`: for each cell its rounds, for each round its logarithms; of cells with more rounds the first ones count.
    """
    return [math.fsum(_middle(sorted(one)) for one in each) / len(each) for each in zip(*cells, strict=False)]


def repeatability(
    speedup: Interval, rounds: Sequence[float], bar: Sequence[float] = (), clean: float = 0.0
) -> float | None:
    """How far apart two speedups measured like this one are at most, 19 times of 20, as a fraction; None from fewer
    than two rounds. ISO 5725-6 calls it the repeatability limit: a quantile times the square root of 2 times the
    deviation.

    `rounds`: the logarithm of the speedup by each round alone, or by each of several runs. `bar`: of the bar's time in
    the same rounds. `clean`: the share of cells that rest on the bar's time alone, which one more worker took.

    The variance joins two estimates, weighted by degrees of freedom as Smyth moderates variances (Stat. Appl. Genet.
    Mol. Biol. 3 (2004) 3). The interval has many samples behind it, but takes cells for independent, so that it misses
    what a worker has in all of them. The distances of whole rounds have that, but two or three rounds tell it badly.
    Where workers differ by so much that nothing inside a round foretells it, two rounds cover 80 to 90 % instead of 95.
    """
    if len(rounds) < 2:
        return None
    quantile = statistics.NormalDist().inv_cdf(0.975)
    inside = (math.log(speedup.high / speedup.low) / 2 / quantile) ** 2
    between = statistics.variance(rounds) / len(rounds) + (clean * statistics.variance(bar) if clean else 0.0)
    freedom = INSIDE + len(rounds) - 1
    joined = (INSIDE * inside + (freedom - INSIDE) * between) / freedom
    return math.expm1(_student(quantile, freedom) * math.sqrt(2 * joined))


def _student(normal: float, freedom: int) -> float:
    """Student's quantile from the normal one (Abramowitz and Stegun 26.7.5); 0.7 % low at 3 degrees of freedom."""
    terms = (
        normal,
        (normal**3 + normal) / 4,
        (5 * normal**5 + 16 * normal**3 + 3 * normal) / 96,
        (3 * normal**7 + 19 * normal**5 + 17 * normal**3 - 15 * normal) / 384,
    )
    return math.fsum(term / freedom**power for power, term in enumerate(terms))


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
