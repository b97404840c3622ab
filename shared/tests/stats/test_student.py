"""Student's t distribution, against published tables."""

from __future__ import annotations

import math

import pytest

from fluxbench.stats.student import chance, critical


@pytest.mark.parametrize(
    ("level", "df", "t"),
    # Abramowitz and Stegun, table 26.10.
    [
        *((0.05, 1, 12.706), (0.05, 2, 4.303), (0.05, 3, 3.182), (0.05, 4, 2.776), (0.01, 4, 4.604), (0.001, 4, 8.610)),
        *((0.05, 5, 2.571), (0.01, 7, 3.499), (0.05, 10, 2.228), (0.001, 1, 636.619), (0.05, 120, 1.980)),
        (0.05, 1e9, 1.960),
    ],
)
def test_critical_values_are_those_of_the_published_table(level: float, df: float, t: float) -> None:
    assert critical(level, df) == pytest.approx(t, abs=6e-4)


def test_a_critical_value_is_interpolated_in_the_reciprocals() -> None:
    low, high = critical(0.05, 2), critical(0.05, 3)
    assert critical(0.05, 2.5) == pytest.approx(high + (1 / 2.5 - 1 / 3) / (1 / 2 - 1 / 3) * (low - high))
    assert critical(0.05, 0.5) == pytest.approx(12.706 + (2 - 1) / (1 - 1 / 2) * (12.706 - 4.303), rel=1e-3)
    for df in (1, 2, 5, 24):  # a chance is that of the critical value to both sides
        assert chance(critical(0.01, df), df) == chance(-critical(0.01, df), df) == pytest.approx(0.01)
        assert chance(0.0, df) == pytest.approx(1.0)
        assert chance(math.inf, df) == 0
