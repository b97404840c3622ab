"""Levels, effects and verdicts: exact values of small cases, and how often a table of unchanged kernels is wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest

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
)
from fluxbench.stats.student import critical

PROCESS_SD, PROCESSES, ROWS, CHANGED = 0.0012, 3, 48, 6  # of an H200, a share; six workloads of one variant are slowed


def tables(count: int, factor: float = 1.0) -> list[list[Change]]:
    """Return the verdicts on made-up tables in which the first `CHANGED` rows take `factor` times as long after."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(count):
        before, after = rng.normal(0, PROCESS_SD, (2, ROWS, PROCESSES))
        after[:CHANGED] += math.log(factor)
        found.append(judge([effect(*pair) for pair in zip(before.tolist(), after.tolist(), strict=True)], least=0.0))
    return found


def change(before: tuple[float, ...], after: tuple[float, ...]) -> Change:
    """Return what became of the times of single-sample processes, judged alone and without a least change."""
    [found] = judge([effect(levels([[t] for t in before]), levels([[t] for t in after]))], least=0.0)
    return found


def test_a_level_is_the_mean_of_the_logarithms_of_a_process_medians() -> None:
    assert levels([[1.0, 2.0, 9.0], [4.0, 6.0]]) == pytest.approx([math.log(2), math.log(5)])
    assert levels([[1.0, 2.0, 9.0], [4.0]], [[8.0], [16.0]]) == pytest.approx([math.log(4), math.log(8)])
    clock = [1.0, 1.01, 0.99, 1.02, 0.98, 1.005]
    beside = [[0.4 * factor for factor in clock], [0.4 * factor for factor in reversed(clock)]]
    own = [[0.8 * sample for sample in part] for part in beside]
    assert levels_beside(own, beside) == pytest.approx([math.log(0.8)] * 2)
    assert levels_beside([[2.0, 3.0, 8.0]], [[1.0, 6.0, 2.0]]) == pytest.approx([math.log(2.0)])  # not 3 / 2
    assert levels_beside([[2.0, 2.2, 2.1, 2.1]], [[1.0, 1.1, 0.9]]) == pytest.approx([math.log(2.1)])


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ([], "at least one process"),
        ([[]], "at least one process"),
        ([[[1.0], []]], "at least one from each"),
        ([[[0.0], [1.0]]], "times must be positive, got a median of 0"),
        ([[[1.0]], [[1.0], [2.0]]], "the same processes, got 1, 2"),
    ],
)
def test_levels_of_what_is_missing_or_not_positive_are_refused(parts: list[list[list[float]]], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        levels(*parts)


def test_an_effect_is_the_difference_of_two_means_with_a_pooled_error() -> None:
    found = effect([0.0, 0.01, 0.02], [0.04, 0.05])
    assert found.log_ratio == pytest.approx(0.035)
    variance = (2 * 0.01**2 + 2 * 0.005**2) / 3
    assert found.se == pytest.approx(math.sqrt(variance * (1 / 3 + 1 / 2)))
    assert found.df == 3
    assert effect([0.5], [0.75]) == Effect(0.25, math.inf, 0)
    with pytest.raises(ValueError, match="both sides must have a process, got 0 before and 1 after"):
        effect([], [0.0])


def test_a_mean_of_effects_leaves_the_level_that_each_has_on_both_sides() -> None:
    one, ten = effect([0.0, 0.01], [0.03, 0.05]), effect([2.30, 2.31], [2.33, 2.34])
    found = mean_effect([one, ten])
    assert found.log_ratio == pytest.approx((one.log_ratio + ten.log_ratio) / 2)
    assert found.se == pytest.approx(math.hypot(one.se, ten.se) / 2)
    assert found.df == one.df + ten.df == 4
    assert mean_effect([one, effect([0.0], [0.1])]).df == 0
    with pytest.raises(ValueError, match="at least one effect"):
        mean_effect([])


def test_the_interval_of_a_change_is_that_of_a_t_test() -> None:
    before, after = (tuple(math.exp(x) for x in side) for side in ((0.0, 0.01, 0.02), (0.04, 0.05, 0.06)))
    found = change(before, after)
    half = 2.7764451 * 0.01 * math.sqrt(2 / 3)
    assert found.ratio == pytest.approx(math.exp(0.04))
    assert (found.verdict, found.significant) == (Verdict.SLOWER, True)
    assert (found.low, found.high) == pytest.approx((math.exp(0.04 - half), math.exp(0.04 + half)))
    assert found.minimum_detectable_change == pytest.approx(math.expm1(half))
    back = change(after, before)
    assert (back.ratio, back.low, back.high) == pytest.approx((1 / found.ratio, 1 / found.high, 1 / found.low))
    assert (back.verdict, back.significant) == (Verdict.FASTER, True)


def test_what_is_steady_is_the_same_and_what_is_noisy_is_undecided() -> None:
    steady = Effect(0.001, 0.0005, 4)
    noisy = Effect(0.001, 0.02, 4)
    assert [one.verdict for one in judge([steady, noisy])] == [Verdict.SAME, Verdict.UNDECIDED]
    assert not any(one.significant for one in judge([steady, noisy]))


@pytest.mark.parametrize(("se", "verdict"), [(0.0033, Verdict.SAME), (0.0034, Verdict.UNDECIDED)])
def test_same_means_that_the_whole_interval_lies_within_one_percent(se: float, verdict: Verdict) -> None:
    assert [one.verdict for one in judge([Effect(0.003, se, 24)])] == [verdict]
    assert [one.verdict for one in judge([Effect(-0.003, se, 24)])] == [verdict]


@pytest.mark.parametrize(
    ("chances", "significant"),
    [
        ((0.012, 0.024, 0.037, 0.5), (True, True, True, False)),  # each within its rank's share of 5%
        ((0.02, 0.024, 0.5, 0.5), (True, True, False, False)),  # the second carries the first
        ((0.013, 0.026, 0.038, 0.051), (False, False, False, False)),
    ],
)
def test_benjamini_and_hochbergs_procedure(chances: tuple[float, ...], significant: tuple[bool, ...]) -> None:
    family = [Effect(critical(p, 4) * 0.01, 0.01, 4) for p in chances]
    assert tuple(one.significant for one in judge(family, least=0.0)) == significant


def test_the_minimum_detectable_change_is_at_the_level_at_which_one_more_would_pass() -> None:
    sure, unsure = Effect(0.5, 0.01, 4), Effect(0.001, 0.01, 4)
    [alone] = judge([unsure], least=0.0)
    [_, beside, _] = judge([sure, unsure, unsure], least=0.0)
    assert alone.minimum_detectable_change == pytest.approx(math.expm1(2.7764 * 0.01), rel=1e-3)  # at 5%
    assert beside.minimum_detectable_change == pytest.approx(math.expm1(3.1863 * 0.01), rel=1e-3)  # at 2 / 3 of 5%


def test_however_sure_a_change_within_the_least_is_not_significant() -> None:
    for share, verdict in ((0.9, Verdict.SAME), (1.1, Verdict.SLOWER)):
        sure = [Effect(sign * math.log1p(share * SYSTEMATIC), 1e-6, 24) for sign in (1, -1)]
        slower, faster = judge(sure)
        assert slower.verdict is verdict
        assert faster.verdict is (Verdict.FASTER if share > 1 else Verdict.SAME)
        assert slower.minimum_detectable_change == faster.minimum_detectable_change == SYSTEMATIC == 0.003
    assert [one.verdict for one in judge(sure, least=0.0)] == [Verdict.SLOWER, Verdict.FASTER]


def test_without_any_spread_or_without_degrees_of_freedom() -> None:
    equal, other = change((2.0,) * 3, (2.0,) * 5), change((2.0,) * 3, (2.001,) * 3)
    assert equal == Change(1.0, 1.0, 1.0, Verdict.SAME, 0.0)
    assert other.verdict is Verdict.SLOWER
    assert (other.low, other.high) == pytest.approx((other.ratio, other.ratio))
    unknown = Effect(math.log(2), math.inf, 0)
    sure = Effect(0.02, 0.004, 4)
    [found, beside] = judge([unknown, sure])
    assert found == Change(math.exp(math.log(2)), 0.0, math.inf, Verdict.UNDECIDED, None)
    assert [beside] == judge([sure])
    assert judge([]) == []


def test_few_unchanged_tables_have_a_false_positive_and_intervals_hold_the_truth() -> None:
    found = tables(150)
    assert 0.01 <= sum(any(one.significant for one in table) for table in found) / 150 <= 0.1
    held = [one.low <= 1 <= one.high for table in found for one in table]
    assert 0.94 <= sum(held) / len(held) <= 0.96
