"""What is called changed, and how often that is wrong: on made-up tables of a GPU's spread."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from fluxbench.stats import significance as verdicts
from fluxbench.stats.intervals import Samples
from fluxbench.stats.significance import (
    SYSTEMATIC,
    Change,
    Effect,
    Verdict,
    effect,
    judge,
    levels,
    levels_beside,
    mean_effect,
    pool,
)

PROCESS_SD, SAMPLE_SD = 0.0012, 0.005  # of an H200, as shares: between processes, and within one
PROCESSES, SAMPLES, ROWS, CHANGED = 3, 60, 48, 6  # six workloads of one variant are slowed down


def changes(pairs: Sequence[tuple[Samples, Samples]], floor: float = 0.0) -> list[Change]:
    """Return what became of each pair of samples, (before, after), judged as one family."""
    return judge([effect(levels(before), levels(after)) for before, after in pairs], floor=floor)


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
        found = judge(
            [effect(before, after) for before, after in zip(*(side.tolist() for side in sides), strict=True)], floor=0.0
        )
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


# A spread that rows share.

SPREAD = 0.0015  # between processes, the largest share that was seen of a burst time net of the sentinel's
TABLES = 400


def pooled_table(seed: int, factor: float = 1.0, apart: Sequence[float] = (1,) * CHANGED) -> list[Change]:
    """Return a table of eight variants at six workloads, of which the first takes `factor` times as long after.

    The spread of each workload is `SPREAD` by what it has in `apart`.
    """
    rng = np.random.default_rng(seed)
    scale = np.tile(apart, ROWS // CHANGED)[:, None]
    before, after = (SPREAD * scale * rng.normal(0, 1, (2, ROWS, PROCESSES))).tolist()
    slower = [[level + math.log(factor) * (row < CHANGED) for level in its] for row, its in enumerate(after)]
    effects = [effect(*pair) for pair in zip(before, slower, strict=True)]
    groups = pool([effects[start : start + CHANGED] for start in range(0, ROWS, CHANGED)])
    return judge([one for group in groups for one in group])


def test_a_group_shares_its_spread_and_its_degrees_of_freedom() -> None:
    [[one, other], [alone]] = pool([[Effect(0.1, 0.03, 4), Effect(-0.1, 0.04, 4)], [Effect(0.0, 0.01, 4)]])
    assert one.se == other.se == pytest.approx(math.sqrt((0.03**2 + 0.04**2) / 2))
    assert (one.log_ratio, other.log_ratio, one.df, other.df) == (0.1, -0.1, 8, 8)
    assert alone == Effect(0.0, 0.01, 4)


def test_what_has_other_degrees_of_freedom_or_none_is_not_pooled() -> None:
    group = [Effect(0.1, 0.03, 4), Effect(0.1, 0.09, 3), *[Effect(0.1, math.inf, 0)] * 2]
    assert pool([group, []]) == [group, []]


def test_what_has_no_spread_by_chance_gets_that_of_its_group() -> None:
    [[one, *_]] = pool([[Effect(0.1, 0.0, 4), Effect(0.1, 0.03, 4), Effect(0.1, 0.03, 4)]])
    assert one.df == 12
    assert one.se == pytest.approx(0.03 * math.sqrt(2 / 3))
    assert pool([[Effect(0.1, 0.0, 4)] * 2]) == [[Effect(0.1, 0.0, 4)] * 2]


def test_errors_that_differ_beyond_chance_are_kept_apart_in_part() -> None:
    errors = [0.0001, 0.0001, 0.001, 0.001, 0.01, 0.01]
    [found] = pool([[Effect(0.0, error, 24) for error in errors]])
    assert [one.se > error for one, error in zip(found, errors, strict=True)] == [True] * 4 + [False] * 2
    assert found[0].se < 0.3 * found[-1].se
    assert {one.df for one in found} == {found[0].df}
    assert 24 <= found[0].df < 48


def test_the_prior_is_that_of_published_moments() -> None:
    assert [verdicts._trigamma(x) for x in (0.5, 1, 2)] == pytest.approx(
        [math.pi**2 / 2, math.pi**2 / 6, math.pi**2 / 6 - 1]
    )


def test_with_a_shared_spread_a_variant_1_percent_slower_is_called_at_nearly_every_workload() -> None:
    slower = [change.verdict is Verdict.SLOWER for seed in range(100) for change in pooled_table(seed, 1.01)[:CHANGED]]
    assert sum(slower) / len(slower) >= 0.97


def test_with_a_shared_spread_a_variant_2_percent_slower_is_always_called() -> None:
    found = {change.verdict for seed in range(100) for change in pooled_table(seed, 1.02)[:CHANGED]}
    assert found == {Verdict.SLOWER}


def test_with_a_shared_spread_an_unchanged_table_calls_hardly_anything() -> None:
    tables = [[change.called for change in pooled_table(seed)] for seed in range(TABLES)]
    assert sum(map(any, tables)) / TABLES <= 0.06
    assert sum(map(sum, tables)) / (TABLES * ROWS) <= 0.002


@pytest.mark.parametrize("apart", [(0.5, 0.5, 1, 1, 2, 2), (1, 1, 1, 1, 1, 3)])
def test_spreads_that_are_not_shared_make_no_false_calls(apart: tuple[float, ...]) -> None:
    tables = [[change.called for change in pooled_table(seed, apart=apart)] for seed in range(200)]
    assert sum(map(any, tables)) / len(tables) <= 0.1  # pooled outright: 0.35 to 0.5


def test_beside_a_variant_that_slowed_down_few_rows_are_called() -> None:
    beside = [change.called for seed in range(100) for change in pooled_table(seed, 1.02)[CHANGED:]]
    assert sum(beside) / len(beside) <= 0.01


# The floor.


def test_what_two_runs_can_differ_by_is_not_called_however_sure() -> None:
    sure = [Effect(math.log(ratio), 1e-6, 24) for ratio in (1 + 0.9 * SYSTEMATIC, 1 / (1 + 0.9 * SYSTEMATIC))]
    assert {change.verdict for change in judge(sure)} == {Verdict.SAME}
    assert [change.verdict for change in judge(sure, floor=0.0)] == [Verdict.SLOWER, Verdict.FASTER]
    assert {change.resolution for change in judge(sure)} == {SYSTEMATIC}


def test_what_is_over_the_floor_and_sure_is_called() -> None:
    sure = [Effect(math.log(ratio), 1e-6, 24) for ratio in (1 + 1.1 * SYSTEMATIC, 1 / (1 + 1.1 * SYSTEMATIC))]
    assert [change.verdict for change in judge(sure)] == [Verdict.SLOWER, Verdict.FASTER]


def test_a_resolution_over_the_floor_stays() -> None:
    [with_floor], [without] = (judge([Effect(0.0, 0.01, 24)], floor=floor) for floor in (SYSTEMATIC, 0.0))
    assert with_floor.resolution == without.resolution


def test_a_clock_that_moves_from_round_to_round_leaves_levels_of_the_same_rounds() -> None:
    clock = [1.0, 1.01, 0.99, 1.02, 0.98, 1.005]
    beside = [[0.4 * each for each in clock], [0.4 * each for each in reversed(clock)]]
    own = [[0.8 * each for each in part] for part in beside]
    assert levels_beside(own, beside) == pytest.approx([math.log(0.8)] * 2)


def test_levels_of_other_rounds_are_those_of_the_medians() -> None:
    own, beside = [[2.0, 2.2, 2.1, 2.1]], [[1.0, 1.1, 0.9]]
    assert levels_beside(own, beside) == pytest.approx([math.log(2.1)])
