"""Numbers as text: an interval is never told as if it were symmetric where it is not."""

from __future__ import annotations

import pytest

from fluxbench.core.formatting import plus_minus


@pytest.mark.parametrize(
    ("value", "ends", "text"),
    [
        (0.4, (0.398, 0.402), "0.400 ±0.002"),
        (0.375, (0.183, 0.767), "0.375 [0.183, 0.767]"),  # wide and skew
        (1.0, (0.94, 1.06), "1.00 [0.94, 1.06]"),  # wide alone
        (1.0, (0.999, 1.004), "1.000 [0.999, 1.004]"),  # skew alone
        (1.0, (0.9995, 1.0005), "1.0000 ±0.0005"),
        (1.0, (0.9979, 1.0022), "1.000 ±0.002"),  # skew by less than is shown
        (0.0, (0.0, 0.0), "0.00 ±0.00"),
        (250.0, (247.0, 253.0), "250 ±3"),
    ],
)
def test_plus_minus_stands_only_where_it_tells_where_the_interval_lies(
    value: float, ends: tuple[float, float], text: str
) -> None:
    assert plus_minus(value, ends) == text
