"""Properties of the statistics, and the ways to bend them that must not work."""

import math
import random
import time

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bot import stats

TIMES = st.integers(min_value=1, max_value=10**12)
ROUNDS = st.lists(st.lists(st.tuples(TIMES, TIMES), min_size=1, max_size=5), min_size=1, max_size=4)


def logs(rounds, bar_factor=1):
    return [stats.log_ratios([bar * bar_factor for bar, _ in one], [mine for _, mine in one]) for one in rounds]


@pytest.mark.parametrize("bad", [[], [0], [5, 0], [5, -1], [math.nan], [5, math.inf], [5.0, -math.inf]])
@pytest.mark.parametrize("statistic", [stats.median, stats.geometric_mean, lambda times: stats.aa_floor([times])])
def test_a_sample_that_is_no_time_is_refused_and_never_averaged(statistic, bad):
    with pytest.raises(ValueError, match=r"positive|no samples"):
        statistic(bad)


@pytest.mark.parametrize(
    ("bar", "candidate"), [([5], [0]), ([-5], [5]), ([], []), ([5, 5], [5]), ([5], [math.nan]), ([5], [math.inf])]
)
def test_a_pair_without_two_times_is_refused(bar, candidate):
    with pytest.raises(ValueError, match=r"positive|no samples|stand against"):
        stats.log_ratios(bar, candidate)


def test_one_empty_cell_voids_the_geometric_mean():
    with pytest.raises(ValueError, match="voids"):
        stats.intervals({"a": [[0.1]], "b": []}, "seed")
    with pytest.raises(ValueError, match="voids"):
        stats.intervals({"a": [[0.1], []]}, "seed")


def test_median_is_the_middle():
    assert stats.median([9, 1, 5]) == 5
    assert stats.median([9, 1, 5, 6]) == 5.5


def test_geometric_mean_of_a_gain_and_its_loss_is_one():
    assert stats.geometric_mean([4.0, 0.25]) == pytest.approx(1)


@settings(max_examples=20, deadline=None)
@given(ROUNDS, st.integers(min_value=2, max_value=1000))
def test_scaling_both_sides_changes_nothing(rounds, factor):
    scaled = [[(bar * factor, mine * factor) for bar, mine in one] for one in rounds]
    plain, _ = stats.intervals({"cell": logs(rounds)}, "seed")
    other, _ = stats.intervals({"cell": logs(scaled)}, "seed")
    assert other["cell"].low == pytest.approx(plain["cell"].low)
    assert other["cell"].high == pytest.approx(plain["cell"].high)


@settings(max_examples=20, deadline=None)
@given(ROUNDS, st.integers(min_value=2, max_value=9))
def test_a_slower_bar_raises_ratio_and_bounds_alike(rounds, factor):
    _, plain = stats.intervals({"cell": logs(rounds)}, "seed")
    _, raised = stats.intervals({"cell": logs(rounds, factor)}, "seed")
    assert raised.mid == pytest.approx(factor * plain.mid)
    assert raised.low == pytest.approx(factor * plain.low)


@settings(max_examples=20, deadline=None)
@given(ROUNDS, st.randoms(use_true_random=False))
def test_the_order_of_pairs_inside_a_round_does_not_move_the_estimate(rounds, rng):
    shuffled = [rng.sample(one, len(one)) for one in rounds]
    _, plain = stats.intervals({"cell": logs(rounds)}, "seed")
    _, other = stats.intervals({"cell": logs(shuffled)}, "seed")
    assert other.mid == plain.mid
    assert other.samples == plain.samples == sum(map(len, rounds))


@settings(max_examples=20, deadline=None)
@given(st.dictionaries(st.text(max_size=4), ROUNDS, min_size=1, max_size=4))
def test_every_interval_holds_its_estimate_and_cell_order_does_not_count(cells):
    data = {name: logs(rounds) for name, rounds in cells.items()}
    each, mean = stats.intervals(data, "seed")
    assert all(0 < one.low <= one.mid <= one.high < math.inf for one in [*each.values(), mean])
    assert mean.mid == pytest.approx(stats.geometric_mean([one.mid for one in each.values()]))
    assert stats.intervals(dict(reversed(data.items())), "seed")[1] == mean


@given(st.lists(st.lists(st.floats(1, 1e9), min_size=1, max_size=4), max_size=5), st.floats(0.001, 1000))
def test_the_floor_ignores_the_scale_of_each_cell(medians, factor):
    assume(all(one * factor > 1e-3 for cell in medians for one in cell))
    floor = stats.aa_floor(medians)
    scaled = stats.aa_floor([[factor * one for one in cell] for cell in medians])
    assert (floor is None) == (scaled is None) == all(len(cell) < 2 for cell in medians)
    if floor is not None:
        assert scaled == pytest.approx(floor, rel=1e-6, abs=1e-9)


def test_the_floor_is_the_largest_gap_between_workers_of_the_same_kernel():
    assert stats.aa_floor([[100.0, 101.0], [50.0, 52.0, 51.0]]) == pytest.approx(0.04)


def test_the_same_data_and_seed_give_the_same_digits_and_another_seed_others():
    rng = random.Random(7)  # noqa: S311 - repeatable
    data = {"cell": [[rng.gauss(0.3, 0.05) for _ in range(10)] for _ in range(2)]}
    assert stats.intervals(data, "a") == stats.intervals(data, "a")
    assert stats.intervals(data, "a") != stats.intervals(data, "b")


def test_one_outlier_among_the_calls_does_not_carry_the_median():
    calm = [[math.log(1.5)] * 10, [math.log(1.5)] * 10]
    lucky = [[math.log(1.5)] * 9 + [math.log(1e6)], [math.log(1.5)] * 10]
    assert stats.intervals({"cell": lucky}, "s")[1].mid == pytest.approx(stats.intervals({"cell": calm}, "s")[1].mid)


def test_workers_that_disagree_widen_the_interval_more_than_calls_that_do():
    workers = {"cell": [[0.0] * 10, [0.1] * 10]}
    calls = {"cell": [[0.0, 0.1] * 5, [0.0, 0.1] * 5]}
    assert stats.intervals(workers, "s")[1].high > 1.1
    assert stats.intervals(workers, "s")[1].low == 1.0
    assert stats.intervals(workers, "s")[1].high >= stats.intervals(calls, "s")[1].high


def test_the_spread_between_workers_is_not_understated_with_two_rounds():
    # Nine cells whose two workers differ by 0.1: the mean's error is 0.1 / 2 / sqrt(9). Drawing all rounds, instead of
    # one fewer, gives 0.7 of it.
    mean = stats.intervals({str(cell): [[0.0] * 5, [0.1] * 5] for cell in range(9)}, "s")[1]
    width = math.log(mean.high / mean.low)
    assert width == pytest.approx(2 * 1.96 * 0.1 / 2 / 3, rel=0.15)


def test_nine_cells_of_twenty_pairs_take_less_than_a_second():
    rng = random.Random(1)  # noqa: S311 - repeatable
    data = {str(cell): [[rng.gauss(0.3, 0.05) for _ in range(10)] for _ in range(2)] for cell in range(9)}
    started = time.process_time()
    stats.intervals(data, "seed")
    assert time.process_time() - started < 1


def test_the_floor_of_the_mean_averages_cells_and_keeps_what_rounds_share():
    noisy = [[100.0, 130.0], [130.0, 100.0]]
    assert stats.aa_floor_of_mean(noisy) == pytest.approx(0.0, abs=1e-12)
    shared = [[100.0, 105.0], [50.0, 52.5]]
    assert stats.aa_floor_of_mean(shared) == pytest.approx(0.05)
    assert stats.aa_floor_of_mean([[100.0]]) is None
    assert stats.aa_floor_of_mean([]) is None
    with pytest.raises(ValueError, match="same number"):
        stats.aa_floor_of_mean([[1.0, 2.0], [1.0]])


def exact(ratio: float = 1.5, width: float = 0.0) -> stats.Interval:
    return stats.Interval(low=ratio * math.exp(-width), mid=ratio, high=ratio * math.exp(width), samples=10)


@pytest.mark.parametrize(("rounds", "quantile"), [(2, 3.182), (3, 2.776), (9, 2.228), (31, 2.037)])
def test_how_far_a_speedup_repeats_is_students_quantile_of_its_deviation(rounds, quantile):
    # With the same variance from inside the rounds and between them the weights do not matter.
    values = [0.4 + 0.01 * (-1) ** i for i in range(rounds)]
    mean = math.fsum(values) / rounds
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (rounds - 1) / rounds)
    found = stats.repeatability(exact(width=1.96 * deviation), values)
    assert found == pytest.approx(math.expm1(quantile * math.sqrt(2) * deviation), rel=0.01)


def test_a_gap_that_is_small_by_luck_does_not_make_a_speedup_exact():
    found = stats.repeatability(exact(width=0.02), [0.4, 0.4])
    assert found is not None
    assert found > 0.02


def test_what_rounds_share_counts_though_no_interval_shows_it():
    still = stats.repeatability(exact(), [0.4, 0.4])
    moved = stats.repeatability(exact(), [0.4, 0.5])
    assert still == 0
    assert moved is not None
    assert moved > 0.1


def test_the_bars_own_spread_counts_as_far_as_its_time_alone_does():
    def found(clean: float) -> float:
        made = stats.repeatability(exact(), [0.4, 0.41], [1.0, 1.1], clean)
        assert made is not None
        return made

    assert found(0.0) == stats.repeatability(exact(), [0.4, 0.41])
    assert found(0.0) < found(0.5) < found(1.0)


@pytest.mark.parametrize("rounds", [[], [0.4]])
def test_one_round_has_no_spread(rounds):
    assert stats.repeatability(exact(), rounds) is None


def test_means_of_rounds_keep_what_all_cells_of_a_round_share():
    assert stats.means_of_rounds([[[1.0, 9.0, 2.0], [3.0]], [[4.0], [5.0, 5.0], [7.0]]]) == [3.0, 4.0]
    assert stats.means_of_rounds([]) == []
