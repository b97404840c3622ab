"""Upper limits of rates: the values of Clopper and Pearson."""

from __future__ import annotations

import pytest

from fluxbench.stats.proportions import upper_bound


@pytest.mark.parametrize(
    ("count", "of", "limit"),
    [
        (0, 3, 0.6316),
        (0, 18, 0.1533),
        (0, 54, 0.0540),
        (0, 59, 0.0495),
        (1, 20, 0.2161),
        (4, 4, 1.0),
        (0, 0, 1.0),
        (180, 5000, 0.0406),
    ],
)
def test_a_rate_is_below_its_limit_with_95_percent(count: int, of: int, limit: float) -> None:
    assert upper_bound(count, of) == pytest.approx(limit, abs=1e-4)


def test_a_count_beyond_the_cases_is_refused() -> None:
    with pytest.raises(ValueError, match="a count must be between 0 and 3, got 4"):
        upper_bound(4, 3)
