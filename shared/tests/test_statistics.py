"""Medians, intervals and ratios: that an interval holds the truth as often as it says, and what a ratio leaves out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluxbench import statistics
from fluxbench.statistics import Change, Effect, Verdict, changes, effect, judge, levels, mean_effect

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
        (3, 10, 0.0, 1.0),
        (3, 10, 0.3, 1.0),
        (12, 10, 1.0, 1.0),
    ],
)
def test_the_interval_holds_the_true_median_in_about_95_of_100_cases(
    processes: int, samples: int, between_ms: float, within_ms: float
) -> None:
    assert 0.91 <= coverage(processes, samples, between_ms, within_ms) <= 0.99


def test_three_processes_that_differ_as_much_as_their_samples_cover_four_cases_in_five() -> None:
    # Three draws say little of how much processes differ: the known limit of a bootstrap over few clusters.
    assert 0.75 <= coverage(3, 10, 1.0, 1.0) <= 0.91


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
    assert 1.0 <= found.low < found.value == 3.0 < found.high <= 5.0


def test_one_sample_is_its_own_interval() -> None:
    found = statistics.median([[1.5]])
    assert (found.low, found.value, found.high) == (1.5, 1.5, 1.5)


def test_the_same_seed_gives_the_same_interval() -> None:
    samples = synthetic(0, 3, 10, 1.0, 1.0)
    assert statistics.median(samples, seed=1) == statistics.median(samples, seed=1)


def test_processes_with_unequal_numbers_of_samples_are_taken_as_they_are() -> None:
    found = statistics.median([[1.0], [2.0] * 30, [3.0] * 2])
    assert (found.value, found.low >= 1.0, found.high <= 3.0) == (2.0, True, True)


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
    assert 0.91 <= hits / TRIALS <= 1.0


# What cannot be.


@pytest.mark.parametrize("samples", [[], [[]], [[1.0], []]])
def test_a_process_without_samples_is_refused(samples: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="at least one process, and at least one from each"):
        statistics.median(samples)


def test_sides_with_unequal_numbers_of_processes_are_refused() -> None:
    with pytest.raises(ValueError, match="the same processes on both sides, got 1 and 2"):
        statistics.ratio([[1.0]], [[1.0], [1.0]])


# Properties.

TIMES_MS = st.lists(st.lists(st.floats(0.01, 1000.0), min_size=1, max_size=6), min_size=1, max_size=4)


@settings(max_examples=40, deadline=None)
@given(TIMES_MS)
def test_an_interval_holds_its_estimate_and_lies_within_the_samples(samples: list[list[float]]) -> None:
    found = statistics.median(samples)
    everything = [x for part in samples for x in part]
    assert min(everything) <= found.low <= found.value <= found.high <= max(everything)


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


# Changes between two measurements.

PROCESS_SD, SAMPLE_SD = 0.0012, 0.005  # of an H200, as shares: between processes, and within one
PROCESSES, SAMPLES, ROWS, CHANGED = 3, 60, 48, 6  # six workloads of one variant are slowed down


def measured(rng: np.random.Generator, rows: int, samples: int = SAMPLES) -> list[list[list[float]]]:
    """Return made-up samples of rows, each of `PROCESSES` processes, with a median of 1 ms."""
    process = rng.normal(0, PROCESS_SD, (rows, PROCESSES, 1))
    found: list[list[list[float]]] = np.exp(process + rng.normal(0, SAMPLE_SD, (rows, PROCESSES, samples))).tolist()
    return found


def slowed(trial: int, factor: float) -> list[Change]:
    """Return the changes of a table in which the first `CHANGED` rows take `factor` times as long after."""
    rng = np.random.default_rng(trial)
    before, after = measured(rng, ROWS), measured(rng, ROWS)
    after[:CHANGED] = [[[factor * x for x in part] for part in row] for row in after[:CHANGED]]
    return changes(list(zip(before, after, strict=True)))


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
    ],
)
def test_the_critical_values_are_those_of_the_published_table(level: float, df: int, t: float) -> None:
    assert statistics.critical(level, df) == pytest.approx(t, abs=6e-4)


def test_the_interval_of_a_change_is_that_of_a_t_test() -> None:
    # Logarithms 0, 0.01, 0.02 before and 0.04, 0.05, 0.06 after: a difference of 0.04, a pooled deviation of 0.01.
    before, after = ([[math.exp(x)] for x in side] for side in ((0.0, 0.01, 0.02), (0.04, 0.05, 0.06)))
    [found] = changes([(before, after)])
    half = 2.7764451 * 0.01 * math.sqrt(2 / 3)
    assert found.ratio == pytest.approx(math.exp(0.04))
    assert (found.low, found.high) == pytest.approx((math.exp(0.04 - half), math.exp(0.04 + half)))
    assert found.verdict is Verdict.SLOWER
    assert found.resolution == pytest.approx(math.expm1(half))


def test_the_way_back_is_the_same_change_turned_round() -> None:
    rng = np.random.default_rng(3)
    [before], [after] = measured(rng, 1), measured(rng, 1)
    [there], [back] = changes([(before, after)]), changes([(after, before)])
    assert (back.ratio, back.low, back.high) == pytest.approx((1 / there.ratio, 1 / there.high, 1 / there.low))
    assert back.resolution == pytest.approx(there.resolution)


def test_with_nothing_changed_the_interval_holds_1_in_about_95_of_100_cases() -> None:
    rng = np.random.default_rng(0)
    trials = 2000  # of which 93.5% to 96.5% hold it in 998 of 1,000 such runs
    before, after = measured(rng, trials, samples=5), measured(rng, trials, samples=5)
    found = changes(list(zip(before, after, strict=True)))
    assert 0.935 <= sum(change.low <= 1 <= change.high for change in found) / trials <= 0.965


def test_with_nothing_changed_few_tables_call_anything() -> None:
    rng = np.random.default_rng(1)
    tables = 400
    false = 0
    for _ in range(tables):
        sides = np.split(rng.normal(0, PROCESS_SD, (ROWS, 2 * PROCESSES)), 2, axis=1)
        found = judge([effect(before, after) for before, after in zip(*(side.tolist() for side in sides), strict=True)])
        false += any(change.called for change in found)
    assert 0.02 <= false / tables <= 0.08


@pytest.mark.parametrize(
    ("factor", "rows_at_least", "tables_at_least"),
    # Of a single row in a long run 94.1% are called at 1% (and 60% where no other row moves with it).
    [(1.05, 1.0, 20), (1.02, 1.0, 20), (1.01, 0.9, 19)],
)
def test_a_slowdown_of_a_variant_is_called_and_its_intervals_hold_it(
    factor: float, rows_at_least: float, tables_at_least: int
) -> None:
    tables = [slowed(trial, factor)[:CHANGED] for trial in range(20)]
    slower = [[change.verdict is Verdict.SLOWER for change in table] for table in tables]
    assert sum(map(sum, slower)) / (20 * CHANGED) >= rows_at_least
    assert sum(sum(rows) > CHANGED / 2 for rows in slower) >= tables_at_least
    covered = [change.low <= factor <= change.high for table in tables for change in table]
    assert 0.9 <= sum(covered) / len(covered) <= 0.99


def test_of_the_rows_beside_a_slowdown_few_are_called() -> None:
    beside = [change for trial in range(20) for change in slowed(trial, 1.02)[CHANGED:]]
    assert sum(change.called for change in beside) / len(beside) <= 0.02


def test_a_speedup_is_faster() -> None:
    assert {change.verdict for change in slowed(0, 1 / 1.05)[:CHANGED]} == {Verdict.FASTER}


def test_what_is_steady_is_the_same_and_what_is_noisy_is_undecided() -> None:
    rng = np.random.default_rng(5)
    [steady], [again] = measured(rng, 1), measured(rng, 1)
    noisy = [[1.0], [1.1], [0.9]], [[1.02], [0.93], [1.12]]
    assert [change.verdict for change in changes([(steady, again), noisy])] == [Verdict.SAME, Verdict.UNDECIDED]


def test_a_change_just_under_the_resolution_is_not_called_and_one_just_over_it_is() -> None:
    rng = np.random.default_rng(6)
    before, after = measured(rng, ROWS), measured(rng, ROWS)
    before[0] = [[1.0 + 0.001 * i] for i in range(3)]
    after[0] = before[0]
    resolution = changes(list(zip(before, after, strict=True)))[0].resolution
    assert resolution is not None
    for share, called in ((0.99, False), (1.01, True)):
        after[0] = [[x * (1 + share * resolution) for x in part] for part in before[0]]
        assert changes(list(zip(before, after, strict=True)))[0].called is called


def test_a_larger_family_sees_less() -> None:
    rng = np.random.default_rng(7)
    before, after = measured(rng, ROWS), measured(rng, ROWS)
    pairs = list(zip(before, after, strict=True))
    alone, among = changes(pairs[:1])[0].resolution, changes(pairs)[0].resolution
    assert alone is not None
    assert among is not None
    assert alone < among


def test_without_any_spread_every_difference_is_called_and_equal_times_are_the_same() -> None:
    equal, other = changes([([[2.0]] * 3, [[2.0]] * 5), ([[2.0]] * 3, [[2.001]] * 3)])
    assert (equal.ratio, equal.low, equal.high, equal.resolution) == (1.0, 1.0, 1.0, 0.0)
    assert equal.verdict is Verdict.SAME
    assert other.verdict is Verdict.SLOWER
    assert (other.low, other.high) == pytest.approx((other.ratio, other.ratio))


def test_two_processes_have_a_ratio_and_nothing_else() -> None:
    [found] = changes([([[1.0, 1.0]], [[2.0, 2.0]])])
    assert found.ratio == pytest.approx(2.0)
    assert (found.low, found.high, found.verdict, found.resolution) == (0.0, math.inf, Verdict.UNDECIDED, None)


def test_two_processes_leave_what_is_judged_beside_them_as_it_is() -> None:
    rng = np.random.default_rng(8)
    [before], [after] = measured(rng, 1), measured(rng, 1)
    assert changes([(before, after), ([[1.0]], [[2.0]])])[0] == changes([(before, after)])[0]


def test_three_processes_are_enough_for_an_interval() -> None:
    [found] = changes([([[1.0]], [[1.0], [1.001]])])
    assert 0 < found.low < found.ratio < found.high < math.inf


def test_an_absurd_spread_has_no_resolution_and_no_end() -> None:
    [found] = judge([Effect(0.1, 100.0, 1)])
    assert (found.high, found.verdict, found.resolution) == (math.inf, Verdict.UNDECIDED, None)


def test_no_changes_are_no_changes() -> None:
    assert changes([]) == []


@pytest.mark.parametrize(("before", "after"), [([], [[1.0]]), ([[1.0]], []), ([[1.0], []], [[1.0]]), ([[1.0]], [[]])])
def test_a_side_without_samples_is_refused(before: list[list[float]], after: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="at least one process, and at least one from each"):
        changes([(before, after)])


def test_times_that_are_not_positive_are_refused() -> None:
    with pytest.raises(ValueError, match="times must be positive, got a median of 0"):
        levels([[0.0], [1.0]])


def test_a_level_is_the_mean_of_the_log_medians_of_a_process() -> None:
    assert levels([[1.0, 2.0, 9.0], [4.0]], [[8.0], [16.0]]) == pytest.approx([math.log(4), math.log(8)])


def test_parts_of_different_processes_have_no_common_levels() -> None:
    with pytest.raises(ValueError, match="the same processes, got 1, 2"):
        levels([[1.0]], [[1.0], [2.0]])


def test_the_mean_of_effects_leaves_out_what_each_has_for_itself() -> None:
    # The second cell is ten times as slow as the first on both sides: a difference of cells, not of time.
    one, ten = effect([0.0, 0.01], [0.03, 0.04]), effect([2.30, 2.31], [2.33, 2.34])
    found = mean_effect([one, ten])
    assert found.log_ratio == pytest.approx(0.03)
    assert found.se == pytest.approx(one.se / math.sqrt(2))
    assert found.df == one.df + ten.df


def test_a_mean_with_an_effect_that_nothing_is_known_of_is_as_unknown() -> None:
    [found] = judge([mean_effect([effect([0.0], [0.1]), effect([0.0, 0.0], [0.1, 0.1])])])
    assert (found.verdict, found.resolution) == (Verdict.UNDECIDED, None)


def test_there_is_no_mean_of_nothing_and_no_effect_of_one_side() -> None:
    with pytest.raises(ValueError, match="at least one effect"):
        mean_effect([])
    with pytest.raises(ValueError, match="both sides must have a process, got 0 before and 1 after"):
        effect([], [0.0])
