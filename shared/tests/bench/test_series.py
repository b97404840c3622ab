"""Which samples are ranked: what is discarded, what is kept although it should not be, and what a sample is made of."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest
from fakes import TINY
from sample_events import REFERENCE, collected, readings, timed, trial

from fluxbench.bench import series
from fluxbench.timing.telemetry import Log

SILENT = Log([])
TIMES_MS = (1.0, 2.0, 3.0, 4.0)
FULL = (1980.0,) * 4


def of_rounds(*clocks: float) -> Log:
    """Return what a device reported that ran at one of these clocks in each round of `timed`."""
    found = []
    for index, clock_mhz in enumerate(clocks):
        found += readings(0.1 * index, 0.1 * index + 0.04, clock_mhz=lambda _, mhz=clock_mhz: mhz)  # type: ignore[misc]
    return Log(found)


def burst(log: Log) -> series.Series:
    return series.burst(trial("flex", burst_ms=TIMES_MS), "tiny", log)


def test_a_round_below_98_percent_of_the_clock_is_discarded() -> None:
    every = [1.0, 2.0, 3.0, 4.0]
    for second_mhz, ranked in ((1975.0, every), (1940.4, every), (1940.0, [1.0, 3.0, 4.0])):
        taken = burst(of_rounds(1980.0, second_mhz, 1980.0, 1960.0))
        assert (taken.ranked(), taken.off_regime, taken.kept_off) == (ranked, 4 - len(ranked), False)
        assert taken.reasons == ({"an SM clock under 98% of 1,980 MHz"} if len(ranked) < 4 else set())
        # The samples of the reference are those of the same rounds.
        assert taken.ranked([5.0, 6.0, 7.0, 8.0]) == [sample + 4 for sample in ranked]


def test_a_workload_that_took_part_in_some_rounds_has_their_states() -> None:
    one = trial("flex", burst_ms=TIMES_MS)
    rounds = msgspec.structs.replace(one.rounds, samples_ms={"tiny": [1.0, 3.0, 4.0]}, rounds={"tiny": [0, 2, 3]})
    few = dataclasses.replace(one, timed=msgspec.structs.replace(one.timed, burst=rounds))
    for slow, ranked in ((1, [1.0, 3.0, 4.0]), (2, [1.0, 4.0])):
        taken = series.burst(few, "tiny", of_rounds(*(1500.0 if index == slow else 1980.0 for index in range(4))))
        assert (taken.ranked(), taken.spans) == (ranked, [rounds.times[index] for index in (0, 2, 3)])


def test_a_sample_of_a_part_of_a_round_has_the_state_of_that_part() -> None:
    """A card at its power limit is slow while long calls run, and not in the short calls before them."""
    one = trial("flex", burst_ms=TIMES_MS, workloads=("short", "long"))
    spans = {
        "short": [(0.1 * index, 0.1 * index + 0.02) for index in range(4)],
        "long": [(0.1 * index + 0.03, 0.1 * index + 0.05) for index in range(4)],
    }
    rounds = msgspec.structs.replace(one.rounds, spans=spans)
    of_parts = dataclasses.replace(one, timed=msgspec.structs.replace(one.timed, burst=rounds))
    log = Log(readings(0.0, 0.4, clock_mhz=lambda time_s: 1980.0 if time_s % 0.1 < 0.025 else 1500.0))
    assert not series.burst(of_parts, "short", log).off_regime
    assert series.burst(of_parts, "short", log).spans == spans["short"]
    long = series.burst(of_parts, "long", log)
    assert (long.off_regime, long.kept_off) == (4, True)


@pytest.mark.parametrize(
    ("reason", "ranked"),
    [
        *((reason, [2.0, 3.0, 4.0]) for reason in ("hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown")),
        ("hw_power_brake_slowdown", [2.0, 3.0, 4.0]),
        ("sw_power_cap", [1.0, 2.0, 3.0, 4.0]),  # what sustained is about
    ],
)
def test_a_round_of_a_device_that_was_slowed_is_discarded(reason: str, ranked: list[float]) -> None:
    taken = burst(Log(readings(0.0, 0.5, reasons=lambda time_s: (reason,) if time_s < 0.09 else ())))
    assert (taken.ranked(), set(taken.reasons)) == (ranked, {reason} if len(ranked) < 4 else set())


@pytest.mark.parametrize(("slow", "kept"), [(1, False), (2, True), (3, True)])
def test_where_half_or_more_are_out_of_the_regime_all_are_kept(slow: int, kept: bool) -> None:
    taken = burst(of_rounds(1980.0, *[1500.0] * slow, *FULL[slow + 1 :]))
    assert (taken.off_regime, taken.kept_off, len(taken.ranked())) == (slow, kept, 4 if kept else 4 - slow)


def test_a_round_between_two_readings_has_the_state_of_the_nearest_one_within_a_tenth_of_a_second() -> None:
    near = [*readings(0.07, 0.09, clock_mhz=lambda _: 1200.0), *readings(0.2, 0.5)]
    assert [state and state.sm_clock_mhz for state in burst(Log(near)).states] == [1200.0, 1200.0, 1980.0, 1980.0]
    assert burst(Log(readings(5.0, 6.0))).states == [None] * 4
    for log in (SILENT, Log(readings(0.0, 0.5, clock_mhz=None, power_w=None))):  # without clocks, all are ranked
        assert (burst(log).ranked(), burst(log).off_regime) == ([1.0, 2.0, 3.0, 4.0], 0)


def of_windows(*hot: int) -> Log:
    """Return what a device reported that was too hot in some windows of the block of `timed`."""

    def reasons(time_s: float) -> tuple[str, ...]:
        return ("sw_thermal_slowdown",) if int(10 * (time_s - 1)) in hot else ("sw_power_cap",)

    return Log(readings(1.001, 2.0, reasons=reasons))


@pytest.mark.parametrize(
    ("block_ms", "fields", "ranked"),
    [
        ((9.0, 8.0, 1.0, 2.0, 3.0, 4.0), {}, [1.5, 3.5]),
        ((9.0, 1.0, 2.0, 3.0, 4.0, 5.0), {"warm_up": 1}, [1.5, 4.0]),  # what is left over joins the last sample
        ((9.0, 1.0, 2.0), {"warm_up": 1, "windows_a_sample": 5}, [1.5]),  # shorter than a sample
        ((9.0, 8.0, 1.0, 2.0), {"windows_a_sample": 1}, [1.0, 2.0]),
    ],
)
def test_a_sample_is_a_mean_of_windows(
    block_ms: tuple[float, ...], fields: dict[str, int], ranked: list[float]
) -> None:
    taken = series.sustained([trial("flex", block_ms=block_ms, **fields)], "tiny", SILENT)
    assert (taken.ranked(), taken.warm_up, taken.off_regime) == (ranked, fields.get("warm_up", 2), 0)


@pytest.mark.parametrize(
    ("hot", "ranked", "off", "kept"),
    [
        ((3,), [1.0, 3.0, 4.0], 1, False),
        ((0, 1), [1.0, 50.0, 3.0, 4.0], 0, False),  # heat in the warm-up is no sample out of the regime
        ((2, 3), [1.0, 50.0, 3.0, 4.0], 2, True),
    ],
)
def test_hot_windows_are_discarded_unless_half_are(
    hot: tuple[int, ...], ranked: list[float], off: int, kept: bool
) -> None:
    one = trial("flex", block_ms=(9.0, 8.0, 1.0, 50.0, 3.0, 4.0), windows_a_sample=1)
    taken = series.sustained([one], "tiny", of_windows(*hot))
    assert (taken.ranked(), taken.off_regime, taken.kept_off) == (ranked, off, kept)
    assert ("sw_thermal_slowdown" in taken.reasons) == bool(hot)


def test_windows_in_which_the_host_was_late_are_discarded_at_their_workload() -> None:
    fields: dict[str, Any] = {"block_ms": (9.0, 8.0, 1.0, 50.0, 3.0, 4.0), "windows_a_sample": 1}
    one = trial("flex", workloads=("tiny", "tinier"), stalled={"tiny": [0, 3]}, **fields)
    taken, other = (series.sustained([one, one], name, SILENT) for name in ("tiny", "tinier"))
    assert (taken.ranked(), taken.off_regime) == ([1.0, 3.0, 4.0] * 2, 2)
    assert taken.reasons == {series.HOST_LATE}
    assert (other.ranked(), other.off_regime) == ([1.0, 50.0, 3.0, 4.0] * 2, 0)


def test_burst_calls_with_which_the_host_was_late_are_discarded_unless_half_are() -> None:
    def taken(*late: int) -> series.Series:
        return series.burst(trial("flex", burst_ms=(1.0, 9.0, 2.0, 3.0), late={"tiny": list(late)}), "tiny", SILENT)

    assert (taken(1).ranked(), taken(1).off_regime, taken(1).reasons) == (
        [1.0, 2.0, 3.0],
        1,
        frozenset({series.HOST_LATE}),
    )
    assert (taken(1, 2).ranked(), taken(1, 2).kept_off) == ([1.0, 9.0, 2.0, 3.0], True)
    assert (taken().ranked(), taken().off_regime) == ([1.0, 9.0, 2.0, 3.0], 0)


@pytest.mark.parametrize("settled", [(True, True), (False, True), (True, False)])
def test_several_blocks_are_one_series_that_has_settled_if_each_has(settled: tuple[bool, bool]) -> None:
    """Their warm-ups come first, so that windows of one block are not averaged with those of another's warm-up."""
    trials = [
        trial(REFERENCE, block_ms=(9.0, 1.0, 2.0), warm_up=1, settled=settled[0], calls=5),
        trial(REFERENCE, began=5.0, burst_ms=None, block_ms=(8.0, 7.0, 3.0, 4.0), settled=settled[1], calls=5),
    ]
    taken = series.sustained(trials, "tiny", SILENT)
    assert (taken.warm_up, taken.ranked(), taken.settled) == (3, [1.5, 3.5], all(settled))
    assert (taken.calls, taken.windows) == (5, 2)


# The trials of the reference.

TRIALS = [
    timed(REFERENCE, began=0.0),
    timed("flex", began=10.0),
    timed("torch_math", began=20.0),
    timed(REFERENCE, began=30.0, burst_ms=None),
    timed("torch_cudnn", began=40.0),
]
READY = {"event": "ready", "versions": {}}


@pytest.mark.parametrize(("index", "beside"), [(1, [0, 3]), (2, [0, 3]), (4, [3]), (0, [0, 3]), (3, [0, 3])])
def test_beside_a_trial_are_those_of_the_reference_before_and_after(index: int, beside: list[int]) -> None:
    seen = collected([READY, timed("torch_math", reference="torch_math"), *TRIALS])
    trials = seen.trials[1:]
    assert seen.beside(trials[index], TINY.name) == [trials[i] for i in beside]


@pytest.mark.parametrize(
    "other",
    [
        [timed(REFERENCE, began=5.0, workloads=("other",))],  # it was wrong at this workload
        [timed(REFERENCE, began=5.0, block_ms=None)],
        [READY, timed(REFERENCE, began=5.0)],  # of another worker
    ],
)
def test_only_trials_of_the_same_worker_with_a_block_at_the_workload_are_beside(other: list[dict[str, object]]) -> None:
    seen = collected([READY, *TRIALS[:2], *other])
    assert seen.beside(seen.trials[1], TINY.name) == [seen.trials[0]]


def test_the_last_trial_of_a_process_counts_and_the_reference_holds_all_of_its_blocks() -> None:
    seen = collected(
        [
            timed("flex", 2, began=1.0),
            timed("flex", 0, began=2.0),
            timed("flex", 0, began=3.0),
            timed("flex", 0, began=4.0, burst_ms=None),
            timed("flex", 1, began=5.0, workloads=("other",)),
            timed("torch_math", 1, began=6.0),
        ]
    )
    taken = seen.taken("flex", TINY.name)
    assert [(trial.timed.process, trial.timed.began) for trial in taken] == [(0, 3.0), (2, 1.0)]
    seen = collected([READY, *TRIALS])
    [flex] = series.of(seen, "flex", TINY.name)
    [reference] = series.of(seen, REFERENCE, TINY.name)
    assert flex.sustained is not None
    assert flex.anchor is not None
    assert reference.sustained is not None
    assert [len(each.samples_ms) for each in (flex.sustained, flex.anchor, reference.sustained)] == [6, 12, 12]
    assert (len(flex.own), len(reference.own)) == (1, 2)
    [alone] = series.of(collected([READY, timed("flex")]), "flex", TINY.name)
    assert alone.anchor is None
    [burst_alone] = series.of(collected([timed(REFERENCE, block_ms=None)]), REFERENCE, TINY.name)
    assert (burst_alone.sustained, burst_alone.anchor, len(burst_alone.own)) == (None, None, 1)
