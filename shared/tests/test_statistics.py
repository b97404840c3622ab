"""Medians, intervals and ratios: that an interval holds the truth as often as it says, and what a ratio leaves out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluxbench.stats import intervals as statistics

TRUE_MS = 100.0
TRIALS = 300  # at a true rate of 95%, the observed one lies within 91.2% and 98.8% in 997 of 1,000 such runs


def synthetic(seed: int, processes: int, samples: int, between_ms: float, within_ms: float) -> list[list[float]]:
    """Return samples whose median is `TRUE_MS`: normal within a process, and normal between processes."""
    rng = np.random.default_rng(seed)
    levels = TRUE_MS + rng.normal(0, between_ms, (processes, 1))
    found: list[list[float]] = (levels + rng.normal(0, within_ms, (processes, samples))).tolist()
    return found


def coverage(processes: int, samples: int, between_ms: float, within_ms: float) -> float:
    """Return the share of trials whose interval holds the true median."""
    hits = 0
    for seed in range(TRIALS):
        found = statistics.median(synthetic(seed, processes, samples, between_ms, within_ms), seed=seed)
        hits += found.low <= TRUE_MS <= found.high
    return hits / TRIALS


@pytest.mark.parametrize(
    ("processes", "samples", "between_ms", "within_ms"),
    [
        (3, 20, 0.0, 1.0),  # processes do not differ
        (3, 20, 0.5, 1.0),  # medians of processes differ twice as much as their samples account for
        (3, 20, 1.0, 0.05),  # nothing but processes differ
        (12, 10, 1.0, 1.0),
    ],
)
def test_the_interval_holds_the_true_median_in_about_95_of_100_cases(
    processes: int, samples: int, between_ms: float, within_ms: float
) -> None:
    assert 0.92 <= coverage(processes, samples, between_ms, within_ms) <= 0.99


def test_the_interval_of_few_processes_that_differ_is_that_of_students_t() -> None:
    # Samples of a process that are all the same leave the bootstrap of processes, which shows 2 / 3 of the variance.
    found = statistics.ratio([[1.0] * 5, [1.01] * 5, [1.02] * 5], [[1.0] * 5] * 3)
    spread = math.sqrt(14 / 27) * 0.01  # of the median of three draws from these
    half = math.log(found.high / found.low) / 2
    assert half == pytest.approx(4.303 * spread * math.sqrt(3 / 2), rel=0.05)


def test_more_processes_narrow_the_interval_where_processes_differ() -> None:
    few = statistics.median(synthetic(0, 3, 10, 1.0, 0.1))
    many = statistics.median(synthetic(0, 30, 10, 1.0, 0.1))
    assert many.high - many.low < few.high - few.low


def test_the_median_is_that_of_all_samples() -> None:
    assert statistics.median([[1.0, 2.0], [3.0, 4.0, 5.0]]).value == 3.0


def test_samples_that_are_all_the_same_have_no_width() -> None:
    found = statistics.median([[2.0] * 4] * 3)
    assert (found.low, found.value, found.high) == (2.0, 2.0, 2.0)


def test_one_process_has_an_interval_of_its_own_samples() -> None:
    found = statistics.median([[1.0, 2.0, 3.0, 4.0, 5.0]])
    assert 0.8 < found.low < found.value == 3.0 < found.high < 12.0


def test_one_sample_is_its_own_interval() -> None:
    found = statistics.median([[1.5]])
    assert (found.low, found.value, found.high) == (1.5, 1.5, 1.5)


def test_the_same_seed_gives_the_same_interval() -> None:
    samples = synthetic(0, 3, 10, 1.0, 1.0)
    assert statistics.median(samples, seed=1) == statistics.median(samples, seed=1)


def test_processes_with_unequal_numbers_of_samples_are_taken_as_they_are() -> None:
    found = statistics.median([[1.0], [2.0] * 30, [3.0] * 2])
    assert (found.value, found.low > 0.3, found.high < 12.0) == (2.0, True, True)


# Ratios.


def test_a_process_that_slows_both_sides_leaves_the_ratio() -> None:
    slowdowns = (1.0, 1.4, 0.7)
    reference = [[level * x for x in (1.0, 1.001, 0.999)] for level in slowdowns]
    twice = [[2 * x for x in part] for part in reference]
    found = statistics.ratio(twice, reference)
    assert found.value == pytest.approx(2.0)
    assert found.high - found.low < 0.02


def test_the_same_slowdown_widens_the_interval_of_the_median() -> None:
    reference = [[level * x for x in (1.0, 1.001, 0.999)] for level in (1.0, 1.4, 0.7)]
    found = statistics.median(reference)
    assert found.high - found.low > 0.4


def test_processes_that_are_not_paired_widen_the_ratio() -> None:
    reference = [[1.0] * 3, [1.4] * 3, [0.7] * 3]
    shuffled = [[2.8] * 3, [1.4] * 3, [2.0] * 3]
    found = statistics.ratio(shuffled, reference)
    assert found.high - found.low > 0.4


def test_sides_with_unequal_numbers_of_samples_are_compared() -> None:
    found = statistics.ratio([[2.0, 2.0]] * 3, [[1.0] * 7] * 3)
    assert (found.low, found.value, found.high) == (2.0, 2.0, 2.0)


def test_the_interval_of_a_ratio_holds_the_truth_in_about_95_of_100_cases() -> None:
    hits = 0
    for seed in range(TRIALS):
        rng = np.random.default_rng(seed)
        levels = rng.normal(1.0, 0.2, (3, 1))  # of a process, on both sides
        both = [(levels * rng.normal(middle, 0.02, (3, 12))).tolist() for middle in (0.8, 1.0)]
        found = statistics.ratio(both[0], both[1], seed=seed)
        hits += found.low <= 0.8 <= found.high
    assert 0.92 <= hits / TRIALS <= 1.0


def test_one_process_has_the_interval_of_its_own_ratio() -> None:
    rng = np.random.default_rng(0)
    found = statistics.ratio([(2 * rng.normal(1, 0.01, 20)).tolist()], [rng.normal(1, 0.01, 20).tolist()])
    assert 1.97 <= found.low < 2 < found.high <= 2.03


# Several workloads of one variant.


def test_one_workload_by_itself_is_as_ever() -> None:
    samples, reference = synthetic(0, 3, 10, 1.0, 1.0), synthetic(1, 3, 10, 1.0, 1.0)
    assert statistics.medians([samples]) == [statistics.median(samples)]
    assert statistics.ratios([(samples, reference)]) == [statistics.ratio(samples, reference)]


def test_each_of_several_workloads_keeps_its_own_value() -> None:
    several = [[[scale * x for x in part] for part in synthetic(scale, 3, 10, 1.0, 1.0)] for scale in (1, 2, 7)]
    found = statistics.medians(several)
    assert [each.value for each in found] == [statistics.median(samples).value for samples in several]
    assert all(each.low <= each.value <= each.high for each in found)


def test_several_workloads_share_how_far_processes_differ() -> None:
    several = [synthetic(seed, 3, 10, 1.0, 0.01) for seed in range(6)]
    widths = [math.log(each.high / each.low) for each in statistics.medians(several)]
    alone = [math.log(each.high / each.low) for each in map(statistics.median, several)]
    assert max(widths) == pytest.approx(min(widths), rel=0.05)
    assert max(alone) > 2 * min(alone)


@pytest.mark.parametrize("common", [0.0, 0.7, 1.0])
def test_the_intervals_of_several_workloads_hold_the_truth_in_95_of_100_cases_or_more(common: float) -> None:
    """However much of what a process has of its own it has at all workloads."""
    hits = 0
    for seed in range(TRIALS):
        rng = np.random.default_rng(seed)
        level = rng.normal(0, math.sqrt(common), (1, 3, 1)) + rng.normal(0, math.sqrt(1 - common), (4, 3, 1))
        several = (TRUE_MS + 0.5 * level + rng.normal(0, 0.5, (4, 3, 10))).tolist()
        hits += sum(found.low <= TRUE_MS <= found.high for found in statistics.medians(several, seed=seed))
    assert hits / (4 * TRIALS) >= 0.93


def test_the_ratios_of_several_workloads_are_each_against_their_own_reference() -> None:
    pairs = [([[1.0, 1.1, 1.2]] * 3, [[2.0, 2.2, 2.4]] * 3), ([[3.0, 3.3, 3.6]] * 3, [[1.0, 1.1, 1.2]] * 3)]
    assert [found.value for found in statistics.ratios(pairs)] == pytest.approx([0.5, 3.0])


def test_workloads_with_other_numbers_of_processes_share_nothing() -> None:
    three, two = synthetic(0, 3, 10, 1.0, 0.1), synthetic(1, 2, 10, 1.0, 0.1)
    assert statistics.medians([three, two]) == [statistics.median(three), statistics.median(two)]


def test_no_workload_has_no_interval() -> None:
    assert statistics.medians([]) == statistics.ratios([]) == []


# What cannot be.


@pytest.mark.parametrize("samples", [[], [[]], [[1.0], []]])
def test_a_process_without_samples_is_refused(samples: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="at least one process, and at least one from each"):
        statistics.median(samples)


def test_times_that_are_not_positive_are_refused() -> None:
    with pytest.raises(ValueError, match="samples must be positive, got 0"):
        statistics.median([[1.0, 0.0]])


def test_sides_with_unequal_numbers_of_processes_are_refused() -> None:
    with pytest.raises(ValueError, match="the same processes on both sides, got 1 and 2"):
        statistics.ratio([[1.0]], [[1.0], [1.0]])


# Properties.

TIMES_MS = st.lists(st.lists(st.floats(0.01, 1000.0), min_size=1, max_size=6), min_size=1, max_size=4)


@settings(max_examples=40, deadline=None)
@given(TIMES_MS)
def test_an_interval_holds_its_estimate_which_lies_within_the_samples(samples: list[list[float]]) -> None:
    found = statistics.median(samples)
    everything = [x for part in samples for x in part]
    assert min(everything) <= found.value <= max(everything)
    assert 0 < found.low <= found.value <= found.high < math.inf


@settings(max_examples=40, deadline=None)
@given(TIMES_MS, st.sampled_from([0.001, 0.5, 2.0, 1024.0]))
def test_another_unit_scales_the_estimate_and_nothing_else(samples: list[list[float]], factor: float) -> None:
    plain, scaled = statistics.median(samples), statistics.median([[factor * x for x in part] for part in samples])
    assert (scaled.value, scaled.low, scaled.high) == pytest.approx(
        (factor * plain.value, factor * plain.low, factor * plain.high)
    )


@settings(max_examples=40, deadline=None)
@given(TIMES_MS, st.sampled_from([0.001, 0.5, 2.0, 1024.0]))
def test_another_unit_leaves_a_ratio(samples: list[list[float]], factor: float) -> None:
    slower = [[x + 1.0 for x in part] for part in samples]
    plain = statistics.ratio(slower, samples)
    scaled = statistics.ratio(*([[factor * x for x in part] for part in side] for side in (slower, samples)))
    assert (scaled.value, scaled.low, scaled.high) == pytest.approx((plain.value, plain.low, plain.high))


# Student's t.


@pytest.mark.parametrize(
    ("level", "df", "t"),
    # Student's t: Abramowitz and Stegun, table 26.10.
    [
        (0.05, 1, 12.706),
        (0.05, 2, 4.303),
        (0.05, 3, 3.182),
        (0.05, 4, 2.776),
        (0.01, 4, 4.604),
        (0.001, 4, 8.610),
        (0.05, 5, 2.571),
        (0.01, 7, 3.499),
        (0.05, 10, 2.228),
        (0.001, 1, 636.619),
        (0.05, 120, 1.980),
        (0.05, 1e9, 1.960),
    ],
)
def test_the_critical_values_are_those_of_the_published_table(level: float, df: float, t: float) -> None:
    assert statistics.critical(level, df) == pytest.approx(t, abs=6e-4)


@pytest.mark.parametrize(("df", "t"), [(2.5, 3.5747), (4.5, 2.6589), (200, 1.9719), (500, 1.9647)])
def test_between_whole_degrees_of_freedom_the_critical_value_is_a_little_too_large(df: float, t: float) -> None:
    # By numerical integration of Student's density.
    assert t - 1e-4 <= statistics.critical(0.05, df) <= 1.02 * t


@pytest.mark.parametrize("df", [1, 2, 5, 24])
def test_a_chance_is_that_of_the_critical_value(df: int) -> None:
    assert statistics.chance(-statistics.critical(0.01, df), df) == pytest.approx(0.01)
    assert statistics.chance(math.inf, df) == 0
