"""How numbers are written."""

import pytest

from bot.report import figures
from bot.stats import Interval
from tests.report.builders import counterexample


@pytest.mark.parametrize(
    ("ns", "written"),
    [(412_345, "0.412"), (12_345_678, "12.3"), (1_234_567_890, "1235"), (999, "0.000999"), (0, "0"), (None, "–")],
)
def test_milliseconds_have_three_significant_digits_and_no_exponent(ns, written):
    assert figures.milliseconds(ns) == written


@pytest.mark.parametrize(
    ("ends", "written"),
    [
        ((1.39, 1.42, 1.45), "1.42x (1.39–1.45, n=2,700)"),
        ((1.4451, 1.4489, 1.4522), "1.449x (1.445–1.452, n=2,700)"),
        ((0.5, 4.0, 31.0), "4.00x (0.500–31.0, n=2,700)"),
        ((2.0, 2.0, 2.0), "2.00x (2.00–2.00, n=2,700)"),
    ],
)
def test_an_estimate_comes_with_interval_and_count_and_as_many_digits_as_it_deserves(ends, written):
    low, mid, high = ends
    assert figures.interval(Interval(low=low, mid=mid, high=high, samples=2700)) == written


def test_octaves_are_drawn_against_the_limit_and_never_overflow():
    assert figures.octaves([0.0, 0.9, 1.8, 99.0], limit=1.8) == "0 → 99 ▁▅██"
    assert figures.octaves([], limit=1.8) == "–"


def test_a_counterexample_of_another_class_has_no_distance():
    assert figures.miss(counterexample(statistic="class", error_units=None)) == "another class of value (class)"
    assert figures.miss(counterexample()) == "58 units, maximum limit 16"


@pytest.mark.parametrize(
    ("statistic", "other", "written"),
    [
        ("median", "oracle", "58 units, median limit 16"),
        ("bar", "bar", "58 units from the bar, limit 16"),
        ("leak", "itself before", "58 units from itself before, limit 16"),
        ("relation", "itself asked otherwise", "58 units from itself asked otherwise, limit 16"),
        ("set", "the cut", "58 units from the cut, limit 16"),
    ],
)
def test_what_an_element_was_compared_with_is_called_by_its_name(statistic, other, written):
    found = counterexample(statistic=statistic)
    assert (figures.other(found), figures.miss(found)) == (other, written)


def test_a_comparison_without_limit_states_none():
    assert figures.miss(counterexample(statistic="leak", limit_units=None)) == "58 units from itself before"


def test_a_place_names_element_draw_and_sizes():
    assert figures.place(counterexample()) == "out[3, 0, 17] (H=0) in probe scaled_queries with H=1, lengths=[16]"


@pytest.mark.parametrize(("value", "written"), [(1e13, "1.00e+13"), (float("inf"), "inf"), (-0.01234, "-0.0123")])
def test_odd_numbers_are_still_written(value, written):
    assert figures.significant(value) == written


@pytest.mark.parametrize(("value", "written"), [(-0.006, "−0.60 %"), (0.051, "+5.1 %"), (-2e-16, "+0 %"), (None, "–")])
def test_a_distance_has_its_sign(value, written):
    assert figures.signed(value) == written


@pytest.mark.parametrize(("value", "written"), [(0.006, "±0.60 %"), (0.8, "a factor of 1.8"), (None, "–")])
def test_a_noise_of_more_than_half_is_a_factor(value, written):
    assert figures.within(value) == written
