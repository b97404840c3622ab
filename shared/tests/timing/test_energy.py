"""Powers from a counter that moves in steps: by regression within the spans of a variant, where there are steps."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from fluxbench.timing.energy import powers
from fluxbench.timing.telemetry import Reading


def reading(time_s: float, energy_mj: float | None) -> Reading:
    return Reading(time_s=time_s, sm_clock_mhz=None, power_w=None, temperature_c=None, energy_mj=energy_mj)


def counted(energy_mj: Callable[[float], float | None], step_s: float = 0.1, every_s: float = 0.02) -> list[Reading]:
    """Return 20 s of readings of a counter that counts on at each step."""
    times = [every_s * index for index in range(round(20 / every_s))]
    return [reading(time_s, energy_mj(step_s * math.floor(time_s / step_s + 1e-9))) for time_s in times]


def drawn_mj(time_s: float) -> float:
    """Return what a device has drawn that takes 600 W in one second and 200 W in the next."""
    whole, rest = divmod(time_s, 2.0)
    return 1e3 * (800 * whole + 600 * min(rest, 1.0) + 200 * max(0.0, rest - 1.0))


def test_the_powers_of_two_variants_in_turn_are_those_of_their_spans() -> None:
    blocks = {name: [(2 * i + at + 0.05, 2 * i + at + 0.93) for i in range(6)] for name, at in (("a", 0), ("b", 1))}
    measured = powers(counted(drawn_mj), blocks)
    assert {name: power_w for name, (power_w, _) in measured.items()} == pytest.approx({"a": 600, "b": 200}, rel=0.01)
    assert all(0 <= error_w < 0.01 * power_w for power_w, error_w in measured.values())
    short = powers(counted(drawn_mj), blocks | {"a": [(begin, begin + 0.02) for begin, _ in blocks["a"]]})
    assert short == {"b": measured["b"]}
    energies = {-0.1: -50.0, 0.0: 0.0, 0.1: 100.0, 0.2: 220.0, 0.3: 300.0}
    exact = [reading(time_s, energy_mj) for time_s, energy_mj in energies.items()]
    power_w, error_w = powers(exact, {"flex": [(0.0, 0.3)]})["flex"]
    assert power_w == pytest.approx(1.02)  # the slope of the least squares line through the four points
    assert error_w == pytest.approx(4.302653 * math.sqrt(280.0 / 2 / 0.05) / 1e3)
    assert set(powers(exact, {"three points": [(0.0, 0.2)], "two points": [(0.0, 0.1)]})) == {"three points"}


@pytest.mark.parametrize(
    "silent",
    [[], counted(lambda _: None), counted(lambda _: 5e6), counted(drawn_mj, every_s=1.0), counted(lambda s: -1e3 * s)],
    ids=["no readings", "no counter", "it stands still", "it is seldom read", "it falls"],
)
def test_without_a_counter_that_moves_nothing_is_known(silent: list[Reading]) -> None:
    assert powers(silent, {"flex": [(1.05, 1.93), (3.05, 3.93)], "none": []}) == {}
