"""A spread that workloads of one variant share: exact values, and tables whose spreads are not shared."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from fluxbench.stats.pooling import pool
from fluxbench.stats.significance import Change, Effect, effect, judge

SPREAD = 0.0015  # between processes, the largest share that was seen of a burst time normalized to control
VARIANTS, WORKLOADS, PROCESSES = 8, 6, 3


def tables(count: int, factor: float = 1.0, apart: Sequence[float] = (1,) * WORKLOADS) -> list[list[Change]]:
    """Return the verdicts on tables in which the first variant takes `factor` times as long after.

    The spread of each workload is `SPREAD` times its factor in `apart`.
    """
    rng = np.random.default_rng(0)
    scale = SPREAD * np.tile(apart, VARIANTS)[:, None]
    found = []
    for _ in range(count):
        before, after = scale * rng.normal(0, 1, (2, VARIANTS * WORKLOADS, PROCESSES))
        after[:WORKLOADS] += math.log(factor)
        effects = [effect(*pair) for pair in zip(before.tolist(), after.tolist(), strict=True)]
        groups = pool([effects[start : start + WORKLOADS] for start in range(0, len(effects), WORKLOADS)])
        found.append(judge([one for group in groups for one in group]))
    return found


def test_a_group_shares_its_spread_and_its_degrees_of_freedom() -> None:
    [[one, other], [alone]] = pool([[Effect(0.1, 0.03, 4), Effect(-0.1, 0.04, 4)], [Effect(0.0, 0.01, 4)]])
    assert one.se == other.se == pytest.approx(math.sqrt((0.03**2 + 0.04**2) / 2))
    assert (one.log_ratio, other.log_ratio, one.df, other.df) == (0.1, -0.1, 8, 8)
    assert alone == Effect(0.0, 0.01, 4)
    group = [Effect(0.1, 0.03, 4), Effect(0.1, 0.09, 3), *[Effect(0.1, math.inf, 0)] * 2]
    assert pool([group, []]) == [group, []]
    [[one, *_]] = pool([[Effect(0.1, 0.0, 4), Effect(0.1, 0.03, 4), Effect(0.1, 0.03, 4)]])
    assert one.se == pytest.approx(0.03 * math.sqrt(2 / 3))
    assert one.df == 12
    assert pool([[Effect(0.1, 0.0, 4)] * 2]) == [[Effect(0.1, 0.0, 4)] * 2]


def test_errors_that_differ_beyond_chance_keep_part_of_their_own() -> None:
    errors = [0.0001, 0.0001, 0.001, 0.001, 0.01, 0.01]
    [found] = pool([[Effect(0.0, error, 24) for error in errors]])
    # Smyth's moderated variances: prior degrees of freedom by the trigamma function, the mean variance for the prior.
    prior, mean = 0.5049934, sum(error**2 for error in errors) / 6
    assert {one.df for one in found} == {24}
    assert [one.se for one in found] == pytest.approx(
        [math.sqrt((prior * mean + 24 * error**2) / (prior + 24)) for error in errors], rel=1e-5
    )


@pytest.mark.parametrize(
    ("apart", "most"),
    [((1,) * 6, 0.06), ((0.5, 0.5, 1, 1, 2, 2), 0.12), ((1, 1, 1, 1, 1, 3), 0.12)],  # pooled outright: 0.35 to 0.5
)
def test_unchanged_tables_have_few_false_positives(apart: tuple[float, ...], most: float) -> None:
    found = tables(150, apart=apart)
    assert sum(any(one.significant for one in table) for table in found) / 150 <= most
