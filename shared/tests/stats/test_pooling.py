"""The effects of a page: spreads of all variants together, processes that are outlying, and what runs differ by."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fluxbench.device.targets import BetweenRuns
from fluxbench.stats.pooling import Levels, effects, moderated, widened
from fluxbench.stats.significance import Effect
from fluxbench.stats.variances import Variance

NOTHING = BetweenRuns(variant=0.0, workload=0.0, df=4, source="")
MEAN = np.array([-0.001, 0.0, 0.001])  # of processes: a variance of 1e-6
REST = np.array([[0.0005, 0.0, -0.0005], [-0.0005, 0.0, 0.0005]])  # at two workloads


def sides(before: Levels, after: Levels) -> tuple[Levels, Levels]:
    return MEAN + REST + before, MEAN + REST + after


def test_a_variant_alone_has_the_degrees_of_freedom_of_one_workload() -> None:
    [[found], outliers] = effects([sides(np.zeros((2, 1)), np.array([[0.01], [0.03]]))], [NOTHING])
    assert outliers == []
    assert [one.log_ratio for one in (found.mean, *found.departures, *found.rows)] == pytest.approx(
        [0.02, -0.01, 0.01, 0.01, 0.03]
    )
    assert (found.mean.se, found.mean.df) == pytest.approx((math.sqrt(1e-6 * 2 / 3), 4))  # not 8
    assert found.departures[0].se == pytest.approx(math.sqrt(5e-7 * 2 / 3 / 2))
    assert found.rows[0].se == pytest.approx(math.hypot(found.mean.se, found.departures[0].se))


def test_what_runs_differ_by_is_in_every_error() -> None:
    runs = BetweenRuns(variant=0.003, workload=0.004, df=7, source="")
    flat = np.zeros((2, 3))
    [[found], _] = effects([(flat + MEAN * 1e-6, flat + MEAN * 1e-6)], [runs])
    assert found.mean.se == pytest.approx(math.sqrt(2 * (0.003**2 + 0.004**2 / 2)), rel=1e-4)
    assert found.rows[0].se == pytest.approx(math.sqrt(2) * 0.005, rel=1e-4)
    assert found.mean.df == pytest.approx(7, rel=1e-3)
    wide = widened(Effect(0.1, 0.003 * math.sqrt(2), 7), runs)
    assert (wide.log_ratio, wide.se, wide.df) == pytest.approx((0.1, 0.006, 14))
    assert widened(Effect(0.1, math.inf, 0), runs) == Effect(0.1, math.inf, 0)


def test_variances_are_drawn_to_the_mean_of_all_but_the_largest_twentieth_and_not_from_far_beyond() -> None:
    values = [float(value) for value in np.random.default_rng(0).chisquare(4, 39) / 4]
    drawn = moderated([Variance(value, 4) for value in [*values, 400.0]], apart=True)
    weight = 4 / drawn[0].df
    assert [one.value for one in drawn[:39]] == pytest.approx(
        [weight * value + (1 - weight) * np.mean(sorted(values)[:38]) for value in values]
    )
    assert drawn[39] == Variance(400.0, 4)
    drawn = moderated([Variance(value, 4) for value in [*values, 400.0]])
    weight = 4 / drawn[0].df
    assert drawn[39].value == pytest.approx(weight * 400 + (1 - weight) * np.mean(sorted([*values, 400.0])[:38]))
    unknown = Variance(0.0, 0)
    assert moderated([unknown, Variance(1.0, 4)]) == [unknown, Variance(1.0, 4)]


def page(variants: int = 20) -> list[tuple[Levels, Levels]]:
    """Return unchanged variants at six workloads, with a spread of 0.1% between processes and 0.05% at each."""
    rng = np.random.default_rng(1)
    levels = 0.001 * rng.normal(size=(2, variants, 1, 3)) + 0.0005 * rng.normal(size=(2, variants, 6, 3))
    return list(zip(*levels, strict=True))


def test_an_outlying_process_is_named_and_left_out() -> None:
    variants = page()
    plain, none = effects(variants, [NOTHING] * 20)
    assert none == []
    variants[7][1][:, 2] += 0.02
    found, [outlier] = effects(variants, [NOTHING] * 20)
    assert (outlier.variant, outlier.side, outlier.process) == (7, 1, 2)
    assert outlier.log_ratio == pytest.approx(0.02, abs=0.004)
    assert abs(found[7].mean.log_ratio) < 3 * plain[7].mean.se
    assert found[7].mean.se == pytest.approx(
        math.hypot(plain[7].mean.se, 0.02 / 3), rel=0.1
    )  # a third of what it differs
    assert found[0].mean.se == pytest.approx(plain[0].mean.se, rel=0.1)


def test_a_variant_that_differs_much_by_nature_hides_no_outlying_process_of_another() -> None:
    rng = np.random.default_rng(5)
    named = 0
    for _ in range(10):
        spreads = [0.03, *[0.001] * 39]
        levels = [own * rng.normal(size=(2, 1, 3)) + 0.0007 * rng.normal(size=(2, 6, 3)) for own in spreads]
        variants = [(before, after) for before, after in levels]
        variants[7][1][:, 2] += 0.02
        _, outliers = effects(variants, [NOTHING] * 40)
        named += any((one.variant, one.side, one.process) == (7, 1, 2) for one in outliers)
    assert named >= 7


def test_of_two_processes_none_is_outlying_and_of_one_nothing_is_known() -> None:
    variants = [(before[:, :2], after[:, :2]) for before, after in page()]
    variants[3][0][:, 0] += 0.02
    assert effects(variants, [NOTHING] * 20)[1] == []
    [[single], _] = effects([(before[:, :1], after[:, :1]) for before, after in variants[:1]], [NOTHING])
    assert {(one.se, one.df) for one in (single.mean, *single.departures, *single.rows)} == {(math.inf, 0)}
    assert effects([], []) == ([], [])
