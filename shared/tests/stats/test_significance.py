"""Levels, effects and verdicts: exact values of small cases, and how often a table of unchanged kernels is wrong."""

from __future__ import annotations

import math

import pytest

from fluxbench.stats.significance import (
    Change,
    Effect,
    VariantEffects,
    Verdict,
    chance_over,
    effect,
    estimate,
    judge,
    levels,
    levels_beside,
    mean_effect,
)
from fluxbench.stats.student import critical


def verdicts(*effects: Effect, least: float = 0.0) -> list[Change]:
    """Return the changes of variants of one workload each, judged together."""
    return [row for [row] in judge([VariantEffects(mean=e, departures=(), rows=(e,)) for e in effects], least=least)]


def change(before: tuple[float, ...], after: tuple[float, ...]) -> Change:
    """Return what became of the times of single-sample processes, judged alone."""
    [found] = verdicts(effect(levels([[t] for t in before]), levels([[t] for t in after])))
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
    assert [one.verdict for one in verdicts(steady, noisy)] == [Verdict.SAME, Verdict.UNDECIDED]
    assert not any(one.significant for one in verdicts(steady, noisy))


@pytest.mark.parametrize(("se", "verdict"), [(0.0033, Verdict.SAME), (0.0034, Verdict.UNDECIDED)])
def test_same_means_that_the_whole_interval_lies_within_one_percent(se: float, verdict: Verdict) -> None:
    assert [one.verdict for one in verdicts(Effect(0.003, se, 24))] == [verdict]
    assert [one.verdict for one in verdicts(Effect(-0.003, se, 24))] == [verdict]


@pytest.mark.parametrize(
    ("chances", "significant"),
    [
        ((0.012, 0.016, 0.024, 0.04), (True, True, True, True)),  # each within 5% over those that are left
        ((0.012, 0.024, 0.026, 0.5), (True, False, False, False)),  # of Benjamini and Hochberg's procedure three
        ((0.013, 0.001, 0.5, 0.5), (True, True, False, False)),
        ((0.013, 0.014, 0.015, 0.016), (False, False, False, False)),
    ],
)
def test_holms_procedure(chances: tuple[float, ...], significant: tuple[bool, ...]) -> None:
    family = [Effect(critical(p, 4) * 0.01, 0.01, 4) for p in chances]
    assert tuple(one.significant for one in verdicts(*family)) == significant


def test_a_one_sided_chance_is_that_of_exceeding_the_least() -> None:
    t4 = critical(0.05, 4)  # two-sided, so each side has half of it
    assert chance_over(Effect(0.02 + t4 * 0.01, 0.01, 4), 0.02) == pytest.approx(0.025)
    assert chance_over(Effect(0.02 - t4 * 0.01, 0.01, 4), 0.02) == pytest.approx(0.975)
    assert chance_over(Effect(0.02, 0.01, 4), 0.02) == 0.5
    assert chance_over(Effect(9.0, math.inf, 0), 0.02) == 0.5  # nothing is known of it
    assert (chance_over(Effect(0.03, 0.0, 4), 0.02), chance_over(Effect(0.01, 0.0, 4), 0.02)) == (0, 1)


def test_the_estimate_of_an_effect_has_an_interval_of_its_own() -> None:
    found, half = estimate(Effect(0.1, 0.01, 4)), 2.7764451 * 0.01
    assert (found.low, found.value, found.high) == pytest.approx(
        (math.exp(0.1 - half), math.exp(0.1), math.exp(0.1 + half))
    )
    unknown = estimate(Effect(0.1, math.inf, 0))
    assert (unknown.low, unknown.high) == (0, math.inf)


def test_the_minimum_detectable_change_is_at_the_level_at_which_one_more_would_pass() -> None:
    sure, unsure = Effect(0.5, 0.01, 4), Effect(0.001, 0.01, 4)
    [alone] = verdicts(unsure)
    [_, beside, _] = verdicts(sure, unsure, unsure)
    assert alone.minimum_detectable_change == pytest.approx(math.expm1(2.7764 * 0.01), rel=1e-3)  # at 5%
    assert beside.minimum_detectable_change == pytest.approx(math.expm1(3.4954 * 0.01), rel=1e-3)  # at half of 5%


def variant(*log_ratios: float, se: float = 0.001) -> VariantEffects:
    """Return the effects of a variant whose mean and departures are known to a thousandth each."""
    mean = sum(log_ratios) / len(log_ratios)
    return VariantEffects(
        mean=Effect(mean, se, 30),
        departures=tuple(Effect(one - mean, se, 30) for one in log_ratios) if len(log_ratios) > 1 else (),
        rows=tuple(Effect(one, se * 2**0.5, 30) for one in log_ratios),
    )


def test_the_variants_of_a_page_are_one_family_and_a_row_needs_its_variant() -> None:
    slower, at_one, noise = variant(0.01, 0.01, 0.01), variant(0.0, 0.012, 0.0), variant(0.003, 0.0, 0.003)
    found = [[row.verdict for row in rows] for rows in judge([slower, at_one, *[noise] * 9])]
    assert found[0] == [Verdict.SLOWER] * 3
    assert found[1] == [Verdict.SAME, Verdict.SLOWER, Verdict.SAME]  # at one length alone
    assert {verdict for rows in found[2:] for verdict in rows} == {Verdict.SAME}
    [[alone, *_]] = judge([variant(0.003, 0.003, 0.003)])
    assert not alone.significant  # the variant is, each row by itself is not
    assert [[one.verdict for one in judge([variant(0.003)])[0]]] == [[Verdict.SLOWER]]


def test_the_minimum_detectable_change_of_a_row_is_one_of_the_whole_variant() -> None:
    [[row, *_], _] = judge([variant(0.0, 0.0), variant(0.0, 0.0)])
    of_mean = critical(0.8 * 0.05 / 2, 30) * 0.001
    of_row = critical(0.05 / 2, 30) * 0.001 * 2**0.5
    assert row.minimum_detectable_change == pytest.approx(math.expm1(max(of_mean, of_row)))


def test_however_sure_a_change_within_the_least_is_not_significant() -> None:
    for share, verdict in ((0.9, Verdict.SAME), (1.1, Verdict.SLOWER)):
        sure = [Effect(sign * math.log1p(share * 0.003), 1e-6, 24) for sign in (1, -1)]
        slower, faster = verdicts(*sure, least=0.003)
        assert slower.verdict is verdict
        assert faster.verdict is (Verdict.FASTER if share > 1 else Verdict.SAME)
        assert slower.minimum_detectable_change == faster.minimum_detectable_change == 0.003
    assert [one.verdict for one in verdicts(*sure)] == [Verdict.SLOWER, Verdict.FASTER]


def test_without_any_spread_or_without_degrees_of_freedom() -> None:
    equal, other = change((2.0,) * 3, (2.0,) * 5), change((2.0,) * 3, (2.001,) * 3)
    assert equal == Change(1.0, 1.0, 1.0, Verdict.SAME, 0.0)
    assert other.verdict is Verdict.SLOWER
    assert (other.low, other.high) == pytest.approx((other.ratio, other.ratio))
    unknown = Effect(math.log(2), math.inf, 0)
    sure = Effect(0.02, 0.004, 4)
    [found, beside] = verdicts(unknown, sure)
    assert found == Change(math.exp(math.log(2)), 0.0, math.inf, Verdict.UNDECIDED, None)
    assert [beside] == verdicts(sure)
    assert judge([]) == []
