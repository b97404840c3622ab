"""Sentences that tables and figures share: conditions, method, names of groups, and the order from rest."""

from __future__ import annotations

import msgspec
from sample_records import LAUNCH_BOUND, TELEMETRY, changed, record

from fluxbench.analysis.groups import Group, groups
from fluxbench.analysis.ranking import ranked
from fluxbench.operations import sets
from fluxbench.records.schema import BURST, SUSTAINED, Flag, Record
from fluxbench.records.status import FlagKind, Status
from fluxbench.report import sentences

LENGTHS = sets.sets()["flux1-1024px"]


def group(*records: Record) -> Group:
    [found] = groups(records)
    return found


def order(*records: Record) -> str:
    found = group(*records)
    return sentences.burst_order(ranked(found, found.longest, "exact"))


def test_where_something_holds_is_said_by_x() -> None:
    found = group(*(record(workload=workload) for workload in LENGTHS[:3]))
    assert sentences.where(found, LENGTHS[:3]) == "everywhere"
    assert sentences.where(found, LENGTHS[1:3]) == "at 256, 320 text tokens"


def test_conditions_are_samples_processes_clock_and_power_of_a_regime() -> None:
    more = msgspec.structs.replace(record().timings[SUSTAINED], samples_ms=((1.0,) * 500,) * 3)
    other = changed(record("a"), timings={SUSTAINED: more, BURST: record().timings[BURST]})
    assert sentences.conditions([record(), other]) == (
        "10 to 1,500 samples from 3 to 5 fresh processes, SM clock 1,755 MHz, power 640 W"
    )
    assert sentences.conditions([record(), other], BURST) == (
        "10 samples from 5 fresh processes, SM clock 1,980 MHz, power 150 W"
    )
    assert sentences.conditions([record(regimes=[BURST])]) == sentences.conditions([record()], BURST)
    assert sentences.conditions([record(regimes=[BURST])], SUSTAINED) == ""
    assert sentences.conditions([record(status=Status.CRASHED)]) == ""


def test_a_clock_that_is_not_reported_is_unknown() -> None:
    silent = {SUSTAINED: msgspec.structs.replace(TELEMETRY[SUSTAINED], sm_clock_mhz=None, power_w=None)}
    for telemetry in (silent, {}):
        text = sentences.conditions([record(telemetry=telemetry)])
        assert text == "10 samples from 5 fresh processes, SM clock unknown"


def test_the_method_is_regimes_intervals_day_and_versions() -> None:
    later = record("a", measured_at="2026-02-02T00:00:00+00:00", versions={"torch": "2.10.0", "fa": "3"})
    sustained, burst, intervals, when = sentences.method([record(), later, record("b", status=Status.CRASHED)])
    assert sustained.startswith("Sustained, which ranks: ")
    assert sustained.endswith(" SM clock 1,755 MHz, power 640 W.")
    assert burst.startswith("Burst: ")
    assert burst.endswith(" SM clock 1,980 MHz, power 150 W.")
    assert "Ratios are over torch_flash's time, so under 1 is faster" in intervals
    assert when == (
        "Measured 2026-01-31 to 2026-02-02 (UTC); versions: driver 580.10, cuda 13.0, cudnn 9.12, torch 2.10.0 and "
        "2.9.0, fa 3."
    )


def test_the_method_counts_the_rows_for_which_its_regimes_do_not_hold() -> None:
    unsettled = record("a", flags=[Flag(kind=FlagKind.NOT_SETTLED, regime=SUSTAINED, value=1.0)])
    busy = [record(name, flags=[Flag(kind=FlagKind.KEPT_OUT_OF_REGIME, regime=BURST, value=0.6)]) for name in "bc"]
    sustained, burst, *_ = sentences.method([record(), unsettled, *busy])
    assert sustained.endswith(" In 1 of 4 rows the speed did not settle in some process.")
    assert burst.endswith(
        " In 2 of 4 rows half or more of a process's samples are of a device that was not at rest before, such as at a "
        "lower clock, and are kept."
    )


def test_records_of_an_older_fluxbench_are_told_apart() -> None:
    old = record("a", regimes=[SUSTAINED])
    _, _, of_old, *_ = sentences.method([record(), old])
    assert of_old.startswith("Measured by an older fluxbench (1 of 2 records): ")
    assert sentences.method([old])[0].startswith("Measured by an older fluxbench: ")


def test_times_of_a_gpu_that_was_profiled_before_are_said_to_be_longer() -> None:
    before = record("a", method_version=11)
    texts = {len(some): sentences.method(some) for some in ([before], [before, record()])}
    found = {count: [text for text in several if "profiler" in text] for count, several in texts.items()}
    assert [len(several) for several in found.values()] == [1, 1]
    assert found[1][0].startswith("Before method version 12: torch's profiler had run in each process before")
    assert found[2][0].startswith("Before method version 12 (1 of 2 records): ")
    on_cpu = record("a", method_version=10, fingerprint={"device": "EPYC", "device_kind": "cpu"})
    assert not any("profiler" in text for some in ([record()], [on_cpu]) for text in sentences.method(some))


def test_nothing_passed_is_said() -> None:
    assert sentences.method([record(status=Status.CRASHED)]) == ["Nothing passed: there are no times among 1 records."]
    assert sentences.method([]) == ["Nothing passed: there are no times among 0 records."]


def test_another_order_from_rest_is_said() -> None:
    times = {"a": (0.5, 0.45), "b": (0.502, 0.4), "c": (0.7, 0.35)}
    assert order(record(), *(record(name, sustained_ms=ms, burst_ms=burst) for name, (ms, burst) in times.items())) == (
        "From rest (burst), b (0.4000 ±0.0004 ms) would come before a (0.4500 ±0.0004 ms); c (0.3500 ±0.0003 ms) would "
        "come before a (0.4500 ±0.0004 ms) and b (0.4000 ±0.0004 ms)."
    )


def test_a_cpu_has_no_sm_clock() -> None:
    on_cpu = changed(record(telemetry={}), fingerprint={"device_kind": "cpu"})
    assert sentences.conditions([on_cpu]).endswith(" fresh processes")


def test_a_launch_bound_form_has_no_order_from_rest() -> None:
    late = record("a", sustained_ms=0.5, burst_ms=0.45, flags=[LAUNCH_BOUND])
    assert order(late, record("b", sustained_ms=0.6, burst_ms=0.4)) == ""


def test_the_same_order_from_rest_and_one_within_the_intervals_are_not_said() -> None:
    first = record("a", sustained_ms=0.5, burst_ms=0.45)
    for burst_ms in (0.45, 0.4496):
        assert order(first, record("b", sustained_ms=0.502, burst_ms=burst_ms)) == ""
    assert order(first, record("a_compile_d", sustained_ms=0.502, burst_ms=0.4)) == ""  # a form of the same kernel


def test_leaders_are_the_simplest_form_of_each_kernel() -> None:
    names = ("b_compile_ma", "a_compile_d", "a_copy", "b_compile_d", "c")
    found = group(*(record(name, sustained_ms=0.5 + index / 3000) for index, name in enumerate(names)), record())
    places = ranked(found, found.longest, "exact")
    assert [each.variant for each in sentences.leaders(places)] == ["b_compile_d", "a_copy", "c"]
