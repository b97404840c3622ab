"""Powers from a counter that moves in steps: what is found of variants whose power is known, and when nothing is."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from sample_turns import readings

from fluxbench.timing.energy import Span, powers
from fluxbench.timing.telemetry import Reading

IDLE_W = 80.0
STEP_S = 0.1  # of an H200's counter
BLOCK_S, REST_S = 0.8, 0.37  # so that blocks begin anywhere within a step
WATTS = {"flex": 300.0, "torch_flash": 600.0}


def alternating(times: int, block_s: float = BLOCK_S) -> dict[str, list[Span]]:
    """Return blocks of the two variants in turn, with rests between them."""
    found: dict[str, list[Span]] = {name: [] for name in WATTS}
    begin = 0.53
    for index in range(times):
        found[list(WATTS)[index % 2]].append((begin, begin + block_s))
        begin += block_s + REST_S
    return found


def counted(blocks: dict[str, list[Span]], *, counts: bool = True, first_s: float = 0.0) -> list[Reading]:
    """Return the readings of a device that draws `WATTS` in blocks and idles elsewhere; the counter lags and steps."""

    def energy_mj(time_s: float) -> float:
        at = first_s + STEP_S * math.floor((time_s - first_s) / STEP_S + 1e-9)
        return 5e6 + 1e3 * (IDLE_W * at + sum((WATTS[name] - IDLE_W) * busy(its, at) for name, its in blocks.items()))

    end = max(span[1] for its in blocks.values() for span in its) + 1.0
    return readings(0.0, end, energy_mj=energy_mj if counts else None)


def busy(spans: Sequence[Span], until: float) -> float:
    return sum(max(0.0, min(end, until) - begin) for begin, end in spans)


@pytest.mark.parametrize("first_s", [0.0, 0.004, 0.013, 0.05, 0.081])
@pytest.mark.parametrize("times", [6, 12, 30])
def test_the_powers_of_two_variants_are_found_within_2_percent(times: int, first_s: float) -> None:
    blocks = alternating(times)
    found = powers(counted(blocks, first_s=first_s), blocks)
    assert set(found) == set(WATTS)
    for name, (power_w, error_w) in found.items():
        assert power_w == pytest.approx(WATTS[name], rel=0.02)
        assert 0 <= error_w < 0.05 * power_w


def test_the_error_that_is_said_is_about_that_which_is_made() -> None:
    off = []
    for first_s in (0.001 * index for index in range(100)):
        blocks = alternating(6)
        for name, (power_w, error_w) in powers(counted(blocks, first_s=first_s), blocks).items():
            off.append(abs(power_w - WATTS[name]) <= 3 * error_w)
    assert sum(off) / len(off) > 0.95


def test_a_device_without_a_counter_has_no_powers() -> None:
    blocks = alternating(12)
    assert powers(counted(blocks, counts=False), blocks) == {}


def test_a_device_that_says_nothing_has_no_powers() -> None:
    assert powers([], alternating(12)) == {}


def test_a_counter_that_stands_still_is_none() -> None:
    blocks = alternating(12)
    assert powers(readings(0.0, 20.0, energy_mj=lambda time_s: 5e6), blocks) == {}


def test_nothing_is_said_of_a_variant_without_blocks() -> None:
    assert powers(counted(alternating(4)), {}) == {}


def test_nothing_is_said_of_a_variant_that_ran_too_shortly_and_the_other_is_found() -> None:
    blocks = alternating(12)
    blocks["flex"] = [(begin, begin + 0.02) for begin, _ in blocks["flex"]]
    found = powers(counted(blocks), blocks)
    assert set(found) == {"torch_flash"}
    assert found["torch_flash"][0] == pytest.approx(600.0, rel=0.02)


def test_one_short_block_is_too_little_to_say_anything() -> None:
    blocks = {"flex": [(0.53, 0.7)]}
    assert powers(counted(blocks), blocks) == {}


def test_a_counter_that_was_read_too_seldom_says_nothing() -> None:
    blocks = alternating(12)
    seldom = [reading for index, reading in enumerate(counted(blocks)) if index % 50 == 0]  # once a second
    assert powers(seldom, blocks) == {}
