"""Which samples are ranked: what is set aside, what is kept although it should not be, and what a stretch makes."""

from __future__ import annotations

import json

import pytest
from fakes import TINIER, TINY
from sample_turns import readings, timed, turn

from fluxbench.bench import series as samples
from fluxbench.bench.series import Turn
from fluxbench.timing.telemetry import Log

SILENT = Log([])
TIMES_MS = (1.0, 2.0, 3.0, 4.0)


def of_rounds(clocks: tuple[float, ...]) -> Log:
    """Return what a device said that ran at one of these clocks in each round of `timed`."""
    found = []
    for index in range(len(clocks)):
        found += readings(0.1 * index, 0.1 * index + 0.04, clock_mhz=lambda time_s: clocks[int(10 * time_s + 1e-6)])
    return Log(found)


def of_windows(*hot: int) -> Log:
    """Return what a device said that was too hot in some windows of the block of `timed`."""
    return Log(
        readings(
            1.001,
            2.0,
            reasons=lambda time_s: ("sw_thermal_slowdown",) if int(10 * (time_s - 1)) in hot else ("sw_power_cap",),
        )
    )


# Burst.


def test_samples_of_a_device_that_rested_are_all_ranked() -> None:
    found = samples.burst(turn("flex", burst_ms=TIMES_MS), "tiny", of_rounds((1980.0, 1975.0, 1980.0, 1960.0)))
    assert (found.ranked(), found.off_regime, found.kept_off) == ([1.0, 2.0, 3.0, 4.0], 0, False)


def test_a_sample_below_98_percent_of_the_full_clock_is_set_aside() -> None:
    found = samples.burst(turn("flex", burst_ms=TIMES_MS), "tiny", of_rounds((1980.0, 1930.0, 1980.0, 1980.0)))
    assert (found.ranked(), found.off_regime, found.kept_off) == ([1.0, 3.0, 4.0], 1, False)
    assert found.reasons == {"an SM clock under 98% of 1,980 MHz"}


def test_a_sample_of_a_device_that_was_slowed_is_set_aside_and_the_reason_named() -> None:
    log = Log(readings(0.0, 0.5, reasons=lambda time_s: ("hw_slowdown",) if time_s < 0.09 else ()))
    found = samples.burst(turn("flex", burst_ms=TIMES_MS), "tiny", log)
    assert (found.ranked(), set(found.reasons)) == ([2.0, 3.0, 4.0], {"hw_slowdown"})


def test_the_power_limit_is_no_reason_to_set_a_sample_aside() -> None:
    log = Log(readings(0.0, 0.5, reasons=lambda time_s: ("sw_power_cap",)))
    assert samples.burst(turn("flex", burst_ms=TIMES_MS), "tiny", log).ranked() == [1.0, 2.0, 3.0, 4.0]


def test_where_half_or_more_are_out_of_the_regime_all_are_kept() -> None:
    found = samples.burst(turn("flex", burst_ms=TIMES_MS), "tiny", of_rounds((1980.0, 1500.0, 1500.0, 1980.0)))
    assert (found.ranked(), found.off_regime, found.kept_off) == ([1.0, 2.0, 3.0, 4.0], 2, True)


def test_the_reference_loses_the_samples_of_the_same_rounds() -> None:
    found = samples.burst(turn("flex", burst_ms=TIMES_MS), "tiny", of_rounds((1980.0, 1930.0, 1980.0, 1980.0)))
    assert found.ranked([5.0, 6.0, 7.0, 8.0]) == [5.0, 7.0, 8.0]


@pytest.mark.parametrize("log", [SILENT, Log(readings(0.0, 0.5, clock_mhz=None, power_w=None))])
def test_without_clocks_every_sample_is_ranked(log: Log) -> None:
    found = samples.burst(turn("flex", burst_ms=TIMES_MS), "tiny", log)
    assert (found.ranked(), found.off_regime) == ([1.0, 2.0, 3.0, 4.0], 0)


def test_a_round_between_two_readings_has_the_state_of_the_nearest_one() -> None:
    log = Log([*readings(0.07, 0.09, clock_mhz=lambda _: 1200.0), *readings(0.2, 0.5)])
    states = samples.burst(turn("flex", burst_ms=TIMES_MS), "tiny", log).states
    assert [state and state.sm_clock_mhz for state in states] == [1200.0, 1200.0, 1980.0, 1980.0]


def test_a_reading_of_another_time_says_nothing_of_a_round() -> None:
    assert samples.burst(turn("flex", burst_ms=TIMES_MS), "tiny", Log(readings(5.0, 6.0))).states == [None] * 4


# Sustained.


def test_the_lead_is_set_aside_and_stretches_are_averaged() -> None:
    found = samples.sustained([turn("flex", block_ms=(9.0, 8.0, 1.0, 2.0, 3.0, 4.0))], "tiny", SILENT)
    assert (found.ranked(), found.lead, found.off_regime) == ([1.5, 3.5], 2, 0)


def test_what_is_left_over_joins_the_last_stretch() -> None:
    found = samples.sustained([turn("flex", block_ms=(9.0, 1.0, 2.0, 3.0, 4.0, 5.0), lead=1)], "tiny", SILENT)
    assert found.ranked() == [1.5, 4.0]


def test_a_block_shorter_than_a_stretch_is_one_sample() -> None:
    found = samples.sustained([turn("flex", block_ms=(9.0, 1.0, 2.0), lead=1, stretch=5)], "tiny", SILENT)
    assert found.ranked() == [1.5]


def test_a_window_of_a_device_that_was_too_hot_is_set_aside() -> None:
    block_ms = (9.0, 8.0, 1.0, 50.0, 3.0, 4.0)
    found = samples.sustained([turn("flex", block_ms=block_ms, stretch=1)], "tiny", of_windows(3))
    assert (found.ranked(), found.off_regime) == ([1.0, 3.0, 4.0], 1)
    assert found.reasons == {"sw_thermal_slowdown"}


def test_heat_in_the_lead_is_no_sample_out_of_the_regime() -> None:
    found = samples.sustained([turn("flex", block_ms=(9.0, 8.0, 1.0, 2.0, 3.0, 4.0))], "tiny", of_windows(0, 1))
    assert (found.off_regime, found.ranked()) == (0, [1.5, 3.5])


def test_where_half_of_the_windows_or_more_are_hot_all_count() -> None:
    found = samples.sustained([turn("flex", block_ms=(9.0, 8.0, 1.0, 2.0, 3.0, 4.0))], "tiny", of_windows(2, 3))
    assert (found.ranked(), found.off_regime, found.kept_off) == ([1.5, 3.5], 2, True)


def test_the_leads_of_several_blocks_are_all_set_aside() -> None:
    turns = [
        turn("torch_flash", block_ms=(9.0, 1.0, 2.0), lead=1),
        turn("torch_flash", began=5.0, burst_ms=None, block_ms=(8.0, 7.0, 3.0, 4.0)),
    ]
    found = samples.sustained(turns, "tiny", SILENT)
    assert (found.lead, found.ranked()) == (3, [1.5, 3.5])


@pytest.mark.parametrize("settled", [(True, True), (False, True), (True, False)])
def test_several_blocks_have_settled_if_each_has(settled: tuple[bool, bool]) -> None:
    turns = [turn("torch_flash", began=5.0 * index, settled=each) for index, each in enumerate(settled)]
    assert samples.sustained(turns, "tiny", SILENT).settled == all(settled)


def test_what_the_device_did_in_the_lead_is_left_out_of_what_it_did() -> None:
    log = Log(readings(0.0, 2.0, clock_mhz=lambda time_s: 1980.0 if time_s < 1.2 else 1500.0))
    series = samples.sustained([turn("flex")], "tiny", log)
    assert {reading.sm_clock_mhz for reading in series.readings(log) if reading.time_s > 1.21} == {1500.0}
    assert min(reading.time_s for reading in series.readings(log)) >= 1.19


# The turns of the reference.

ORDER = [
    turn("torch_flash", began=0.0),
    turn("flex", began=10.0),
    turn("torch_math", began=20.0),
    turn("torch_flash", began=30.0, burst_ms=None),
    turn("torch_cudnn", began=40.0),
]


@pytest.mark.parametrize(("index", "expected"), [(1, [0, 3]), (2, [0, 3]), (4, [3]), (0, [0, 3]), (3, [0, 3])])
def test_beside_a_turn_are_those_of_the_reference_before_and_after(index: int, expected: list[int]) -> None:
    assert samples.beside(ORDER, ORDER[index], TINY.name) == [ORDER[i] for i in expected]


def test_a_turn_of_another_reference_is_not_beside() -> None:
    turns = [turn("torch_math", reference="torch_math"), *ORDER]
    assert samples.beside(turns, ORDER[1], TINY.name) == [ORDER[0], ORDER[3]]


# As JSON.


def test_every_sample_is_written_ranked_or_not() -> None:
    workloads = {TINY.name: 1.0, TINIER.name: 0.5}
    event = timed("flex", 2, burst_ms=TIMES_MS, beside_ms=2.0, workloads=workloads, sentinel_ms=(0.4,) * 4)
    found = list(samples.every(Turn.of(json.loads(json.dumps(event))), of_rounds((1980.0, 1930.0, 1980.0, 1980.0))))
    assert [(each.get("workload"), each["regime"], each["variant"]) for each in found] == [
        ("tiny", "burst", "flex"),
        ("tiny", "sustained", "flex"),
        ("tinier", "burst", "flex"),
        ("tinier", "sustained", "flex"),
        (None, "burst", "sentinel"),
    ]
    burst, block = found[2], found[3]
    assert (burst["samples_ms"], burst["ranked"]) == ([0.5, 1.0, 1.5, 2.0], [1, 0, 1, 1])
    assert (burst["process"], burst["reference_ms"], burst["place_in_round"]) == (2, [1.0] * 4, [0] * 4)
    assert burst["sm_clock_mhz"] == [1980.0, 1930.0, 1980.0, 1980.0]
    assert (block["ranked"], block["ranked_over"], block["calls_per_sample"]) == ([0, 0, 1, 1, 1, 1], 2, 5)
    assert (found[4]["beside"], found[4]["samples_ms"]) == ("flex", [0.4] * 4)
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_without_readings_the_state_of_every_sample_is_unknown() -> None:
    [burst, block] = samples.every(turn("flex"), SILENT)
    for each in (burst, block):
        count = len(each["samples_ms"])
        assert each["sm_clock_mhz"] == each["power_w"] == each["throttle_reasons"] == [None] * count


def test_a_later_turn_of_the_reference_has_its_block_alone() -> None:
    assert [each["regime"] for each in samples.every(ORDER[3], SILENT)] == ["sustained"]


def test_a_device_is_busy_for_the_sum_of_what_was_timed() -> None:
    event = timed("flex", burst_ms=TIMES_MS, beside_ms=2.0, sentinel_ms=(0.5,) * 4, block_ms=(1.0,) * 6, calls=5)
    assert Turn.of(event).busy_s == pytest.approx((10.0 + 8.0 + 2.0 + 30.0) / 1e3)


def test_what_the_reference_takes_beside_itself_is_counted_once() -> None:
    assert turn("torch_flash", burst_ms=TIMES_MS, block_ms=None).busy_s == pytest.approx(0.01)
