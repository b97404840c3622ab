"""A planted exponent is recovered with an interval that contains it, and contains no other where points are exact."""

from __future__ import annotations

import math
import random

import pytest

from fluxbench.stats import power

LENGTHS = (1024, 2048, 4096, 8192, 16_384)


def planted(exponent: float, scatter: float, rng: random.Random) -> list[float]:
    """Return c * length**exponent, each value off by a normal share."""
    return [3e-7 * length**exponent * math.exp(rng.gauss(0, scatter)) for length in LENGTHS]


@pytest.mark.parametrize("exponent", [0.0, 1.0, 1.7, 2.0])
@pytest.mark.parametrize("known", [(), (0.05**2,) * len(LENGTHS)], ids=["by scatter", "by intervals"])
def test_a_planted_exponent_is_recovered(exponent: float, known: tuple[float, ...]) -> None:
    rng = random.Random(20)
    found = [power.exponent(LENGTHS, planted(exponent, 0.05, rng), known) for _ in range(400)]
    covered = sum(one.low <= exponent <= one.high for one in found) / len(found)
    assert 0.93 <= covered <= (0.975 if not known else 1.0)
    assert math.isclose(sum(one.value for one in found) / len(found), exponent, abs_tol=0.005)
    halves = sorted((one.high - one.low) / 2 for one in found)
    assert halves[len(halves) // 2] < 0.1  # the slope's standard error is 0.023, with 3 degrees of freedom


def test_exact_points_have_no_width_and_another_exponent_is_not_in_an_interval() -> None:
    exact = power.exponent(LENGTHS, [5.0 * length**2 for length in LENGTHS])
    assert (exact.value, exact.low, exact.high) == pytest.approx((2.0, 2.0, 2.0))
    rng = random.Random(7)
    found = [power.exponent(LENGTHS, planted(2.0, 0.02, rng)) for _ in range(200)]
    assert sum(one.low <= 1.8 <= one.high for one in found) <= 10


def test_intervals_of_times_count_where_points_lie_on_a_line_by_chance() -> None:
    times = [5.0 * length**2 for length in LENGTHS]
    found = power.exponent(LENGTHS, times, [0.1**2] * len(LENGTHS))
    spread = sum((math.log(length) - math.log(4096)) ** 2 for length in LENGTHS)
    assert (found.high - found.low) / 2 == pytest.approx(3.182 * 0.1 / math.sqrt(spread), rel=1e-3)  # t of 3


@pytest.mark.parametrize(
    ("x", "y"), [((1, 2), (1, 4)), ((1, 2, 4), (1, 4)), ((2, 2, 2), (1, 4, 9)), ((1, 2, 3), (1, 0, 9))]
)
def test_too_few_points_are_refused(x: tuple[float, ...], y: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="an exponent needs 3 positive points at different x"):
        power.exponent(x, y)
