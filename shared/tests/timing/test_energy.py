"""Powers from a counter that moves in steps: of variants whose power is known, and when nothing is known of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import pytest

from fluxbench.timing.energy import Span, powers
from fluxbench.timing.telemetry import Reading

IDLE_W = 80.0
STEP_S = 0.1  # of an H200's counter
WATTS = {"flex": 300.0, "torch_flash": 600.0}


def alternating(times: int) -> dict[str, list[Span]]:
    """Return blocks of the two variants in turn, with rests so that they begin anywhere within a step."""
    begins = [0.53 + 1.17 * index for index in range(times)]
    spans = [(begin, begin + 0.8) for begin in begins]
    return {"flex": spans[::2], "torch_flash": spans[1::2]}


def readings(until_s: float, energy_mj: Callable[[float], float | None]) -> list[Reading]:
    """Return a reading every 20 ms."""
    times = [0.02 * index for index in range(round(until_s / 0.02) + 1)]
    return [
        Reading(time_s=time_s, sm_clock_mhz=None, power_w=None, temperature_c=None, energy_mj=energy_mj(time_s))
        for time_s in times
    ]


def counted(blocks: Mapping[str, Sequence[Span]], first_s: float = 0.0) -> list[Reading]:
    """Return the readings of a device that draws `WATTS` in blocks and idles elsewhere; the counter lags and steps."""

    def energy_mj(time_s: float) -> float:
        counted_s = first_s + STEP_S * math.floor((time_s - first_s) / STEP_S + 1e-9)
        busy_s = {
            name: sum(max(0.0, min(end, counted_s) - begin) for begin, end in spans) for name, spans in blocks.items()
        }
        return 5e6 + 1e3 * (IDLE_W * counted_s + sum((WATTS[name] - IDLE_W) * s for name, s in busy_s.items()))

    return readings(max(end for spans in blocks.values() for _, end in spans) + 1.0, energy_mj)


@pytest.mark.parametrize("times", [6, 12])
def test_the_powers_of_two_variants_and_their_errors(times: int) -> None:
    blocks = alternating(times)
    within = []
    for first_s in (0.001 * index for index in range(0, 100, 4)):
        measured = powers(counted(blocks, first_s), blocks)
        assert set(measured) == set(WATTS)
        for name, (power_w, error_w) in measured.items():
            assert power_w == pytest.approx(WATTS[name], rel=0.02)
            assert 0 <= error_w < 0.05 * power_w
            within.append(abs(power_w - WATTS[name]) <= 3 * error_w)
    assert sum(within) / len(within) > 0.95


def test_of_a_counter_without_noise_the_error_is_that_of_the_regression() -> None:
    energies = {0.0: 0.0, 0.1: 100.0, 0.2: 220.0, 0.3: 300.0}
    exact = [
        Reading(time_s=time_s, sm_clock_mhz=None, power_w=None, temperature_c=None, energy_mj=energy)
        for time_s, energy in ((-0.1, -50.0), *energies.items())
    ]
    power_w, error_w = powers(exact, {"flex": [(0.0, 0.3)]})["flex"]
    assert power_w == pytest.approx(1.02)  # the slope of the least squares line through the four points
    assert error_w == pytest.approx(4.302653 * math.sqrt(280.0 / 2 / 0.05) / 1e3)
    assert set(powers(exact, {"three points": [(0.0, 0.2)], "two points": [(0.0, 0.1)]})) == {"three points"}


def test_without_a_counter_that_moves_nothing_is_known() -> None:
    blocks = alternating(12)
    for silent in ([], readings(20.0, lambda _: None), readings(20.0, lambda _: 5e6)):
        assert powers(silent, blocks) == {}
    seldom = counted(blocks)[::50]  # once a second
    assert powers(seldom, blocks) == {}
    assert powers(counted(blocks), {"flex": [(0.53, 0.7)], "none": []}) == {}


def test_a_variant_that_ran_too_shortly_has_none_and_the_other_has() -> None:
    blocks = alternating(12)
    device = counted(blocks)
    blocks["flex"] = [(begin, begin + 0.02) for begin, _ in blocks["flex"]]
    measured = powers(device, blocks)
    assert set(measured) == {"torch_flash"}
    assert measured["torch_flash"][0] == pytest.approx(600.0, rel=0.02)


def test_a_counter_that_falls_gives_no_power() -> None:
    assert powers(readings(5.0, lambda time_s: -1e3 * round(10 * time_s)), {"flex": [(1.0, 4.0)]}) == {}
