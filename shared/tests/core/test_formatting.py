"""Numbers as text: how many digits, and intervals that show where they lie."""

from __future__ import annotations

import pytest

from fluxbench.core import formatting


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.4, 3, "0.400"), (12.3456, 3, "12.3"), (1234.4, 3, "1,234"), (0.00123456, 3, "0.00123"), (999.6, 3, "1,000"),
        (0.0, 3, "0.00"), (-0.4, 2, "-0.40"), (1234567.0, 3, "1,234,567"),
    ],
)  # fmt: skip
def test_a_number_has_so_many_significant_digits_and_no_power_of_ten(value: float, digits: int, text: str) -> None:
    assert formatting.number(value, digits) == text


@pytest.mark.parametrize(
    ("value", "ends", "text"),
    [
        (0.4, (0.398, 0.402), "0.400 ±0.002"),
        (0.375, (0.183, 0.767), "0.375 [0.183, 0.767]"),  # wide and skew
        (1.0, (0.94, 1.06), "1.00 [0.94, 1.06]"),  # wide alone
        (1.0, (0.96, 1.04), "1.00 ±0.04"),
        (1.0, (0.999, 1.004), "1.000 [0.999, 1.004]"),  # skew alone
        (1.0, (0.9995, 1.0005), "1.0000 ±0.0005"),
        (1.0, (0.999999, 1.000001), "1.0000 ±0.0000"),  # two more decimals at most
        (1.0, (0.9979, 1.0022), "1.000 ±0.002"),  # skew by less than is shown
        (0.0, (0.0, 0.0), "0.00 ±0.00"),
        (250.0, (247.0, 253.0), "250 ±3"),
        (1250.0, (1247.0, 1253.0), "1,250 ±3"),
    ],
)
def test_plus_minus_stands_where_it_shows_the_interval(value: float, ends: tuple[float, float], text: str) -> None:
    assert formatting.plus_minus(value, ends) == text


def test_an_interval_has_its_unit_after_the_number() -> None:
    assert formatting.interval(0.4, (0.398, 0.402), unit=" ms") == "0.400 ms [0.398, 0.402]"


def test_an_interval_that_says_nothing_has_no_ends() -> None:
    assert formatting.interval(1.48, (1.5e-34, 1.5e34), unit="×") == "1.48× [unknown]"
    assert formatting.plus_minus(0.0287, (0.0002, 5.2925)) == "0.0287 [unknown]"
    assert formatting.interval(1.0, (0.2, 5.0)) == "1.00 [0.20, 5.00]"
    assert formatting.interval(0.01, (-0.2, 0.22)) == "0.0100 [-0.2000, 0.2200]", "of a difference"


def test_more_names_than_a_line_has_room_for_are_counted() -> None:
    assert [formatting.first("abcd"[:most], 2) for most in (0, 2, 4)] == ["", "a, b", "a, b and 2 more"]
    assert formatting.first(["a", "b"], 1, "; ") == "a and 1 more"


@pytest.mark.parametrize(("share", "text"), [(0.003, "0.3%"), (-0.012, "-1.2%"), (-0.0001, "0.0%"), (1.5, "150.0%")])
def test_a_share_is_in_percent_with_no_sign_on_a_zero(share: float, text: str) -> None:
    assert formatting.percent(share) == text
    assert formatting.percent(0.12345, places=2) == "12.35%"


def test_times_and_reasons_fit_on_a_line() -> None:
    assert formatting.utc("2026-11-21T13:01:11+00:00") == "2026-11-21 13:01:11 UTC"
    assert formatting.reason("out\n  of memory") == "out of memory"
    assert formatting.reason("RuntimeError: ") == "RuntimeError (no message)"
    assert formatting.reason(None) == ""


def test_an_interval_without_an_end_is_shown_as_such() -> None:
    assert formatting.interval(2.0, (0.5, float("inf")), unit="×") == "2.00× [0.50, inf]"
