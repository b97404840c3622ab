"""The state says what the device was doing, what is unknown and why, and what was not as it should be."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from sample_records import CPU, H200, LAUNCH_BOUND, TELEMETRY, changed, record, results
from tabled import bullets, cells, rows_of, table_of, tables_of, words

from fluxbench.device.model import Device
from fluxbench.operations import sets
from fluxbench.operations.workload import Workload
from fluxbench.records.schema import BURST, SUSTAINED, Cupti, Flag, Record, Telemetry
from fluxbench.records.status import FlagKind, Status
from fluxbench.report.blocks import Fold
from fluxbench.report.flags import all_words
from fluxbench.report.tables.state import blocks

LENGTHS = sets.sets()["flux1-1024px"]
SILENT = {regime: Telemetry(sm_clock_mhz=None, power_w=None, temperature_c=None) for regime in (BURST, SUSTAINED)}
UNSETTLED = Flag(kind=FlagKind.NOT_SETTLED, regime=SUSTAINED, value=1)


def state(*records: Record, device: Device = H200) -> dict[str, str]:
    """Return the first record's row of both tables."""
    found = blocks(results(*records, device=device))
    name = records[0].variant
    return cells(table_of(found, "State of"), name) | cells(table_of(found, "Beside"), name)


def notes(*records: Record, device: Device = H200) -> list[str]:
    """Return what stands below the second table, less what its columns mean."""
    return list(table_of(blocks(results(*records, device=device)), "Beside").notes)[2:]


def flagged(*records: Record) -> list[tuple[str, str]]:
    return bullets(blocks(results(*records)), "")


def converged(sustained: bool | None, burst: bool | None) -> Record:
    return record(converged={SUSTAINED: sustained, BURST: burst})


def test_a_row_has_the_state_in_both_regimes_and_the_cost_of_a_call() -> None:
    sustained = msgspec.structs.replace(record().timings[SUSTAINED], discarded=1_004, converged=True)
    made = changed(record(), timings={**record().timings, SUSTAINED: sustained})
    assert state(made) == {
        **{"variant": "torch_flash", "sustained MHz": "1,755", "sustained W": "640", "sustained °C": "61"},
        **{"burst MHz": "1,980", "burst W": "150", "throttle reasons": "none", "sustained mJ a call": "250 ±3"},
        **{"burst host launch µs": "60.0", "CUPTI cross-check": "0.0%", "processes": "5", "converged": "yes"},
        **{"sustained samples kept / discarded": "10 / 1,004", "burst samples kept / discarded": "10 / 0"},
        "device s": "1.1",
    }
    assert notes(made) == []


def test_throttle_reasons_name_their_regime() -> None:
    hot = msgspec.structs.replace(TELEMETRY[BURST], throttle_reasons=("sw_power_cap", "hot"))
    both = state(record(telemetry={BURST: hot, SUSTAINED: hot}))["throttle reasons"]
    assert both == "sustained: sw_power_cap, hot; burst: sw_power_cap, hot"
    assert state(record(telemetry={**TELEMETRY, BURST: hot}))["throttle reasons"] == "burst: sw_power_cap, hot"
    assert state(record(telemetry={}))["throttle reasons"] == "-"
    assert state(record(telemetry=SILENT))["throttle reasons"] == "-"


@pytest.mark.parametrize(
    ("events_ms", "kernels_ms", "span_ms", "cell"),
    [
        (1.005, 0.99, 1.0, "0.5%"),
        (1.0099, 0.99, 1.0, "1.0%"),
        (1.023, 0.99, 1.0, "differs by 2.3%"),
        (0.995, 1.0, 1.1, "-0.5%"),
        (0.95, 1.0, 1.1, "differs by 5.0%"),
    ],
)
def test_the_cross_check_agrees_within_a_percent_or_says_that_it_does_not(
    events_ms: float, kernels_ms: float, span_ms: float, cell: str
) -> None:
    made = record(cupti=Cupti(events_ms=events_ms, kernels_ms=kernels_ms, span_ms=span_ms))
    assert state(made)["CUPTI cross-check"] == cell


@pytest.mark.parametrize(
    ("made", "cell"),
    [
        (converged(False, True), "no"),
        (converged(True, False), "no (burst)"),
        (converged(False, False), "no (sustained, burst)"),
        (converged(True, True), "yes"),
        (converged(None, True), "yes"),
        (converged(None, None), "-"),
    ],
)
def test_a_row_says_whether_it_converged(made: Record, cell: str) -> None:
    assert state(made)["converged"] == cell


def test_a_driver_that_does_not_report_leaves_dashes_and_a_reason() -> None:
    made = record(telemetry=SILENT, energy_mj=None, energy_ci95_mj=None, converged={SUSTAINED: True})
    row = state(made)
    unknown = ("sustained MHz", "sustained W", "sustained °C", "burst W", "sustained mJ a call")
    assert {row[head] for head in unknown} == {"-"}
    assert notes(made) == [
        "- is what is unknown. sustained MHz, sustained W, sustained °C, burst MHz, burst W, throttle reasons, "
        "sustained mJ a call: the driver does not report it, or NVML is not available."
    ]


def test_what_was_measured_in_burst_alone_is_not_blamed_on_the_driver() -> None:
    made = record(regimes=[BURST], telemetry={BURST: TELEMETRY[BURST]}, energy_mj=None, energy_ci95_mj=None)
    [note] = notes(made)
    assert note == (
        "- is what is unknown. sustained MHz, sustained W, sustained °C, sustained mJ a call, sustained samples kept / "
        "discarded: measured in burst alone. converged: not measured."
    )
    [silent] = notes(msgspec.structs.replace(made, telemetry={}))
    assert "burst MHz, burst W, throttle reasons: the driver does not report it, or NVML is not available" in silent


def test_a_cpu_has_no_sensor_and_launches_nothing() -> None:
    made = record(telemetry={}, energy_mj=None, energy_ci95_mj=None, launch_ms=None, converged={SUSTAINED: True})
    [note] = notes(made, device=CPU)
    assert note.endswith(
        "sustained mJ a call: no sensor of a CPU is read. burst host launch µs: on a CPU the call is the work itself."
    )


def test_what_an_older_fluxbench_did_not_ask_is_said() -> None:
    old: dict[str, Any] = dict.fromkeys(("energy_mj", "energy_ci95_mj", "launch_ms", "cupti", "device_s"))
    [note] = notes(record(regimes=[SUSTAINED], **old))
    assert note == (
        "- is what is unknown. burst MHz, burst W, sustained mJ a call, burst host launch µs, CUPTI cross-check, burst "
        "samples kept / discarded, converged, device s: measured by an older fluxbench, without this field."
    )


def test_one_variant_is_no_plural() -> None:
    assert "what a call costs, for 1 variant" in words(blocks(results(record())))
    assert "for 1 variants" not in words(blocks(results(record())))


def test_the_fastest_ratio_stands_first_and_what_did_not_pass_not_at_all() -> None:
    slow, fast = record("b", sustained_ms=0.9), record("a", sustained_ms=0.4)
    left_out = record("c", status=Status.CRASHED), record("short", LENGTHS[0])
    for table in tables_of(blocks(results(record(), slow, fast, *left_out))):
        assert [row[0] for row in rows_of(table)] == ["a", "b", "torch_flash"]


def test_flags_are_said_once_for_all_of_whom_they_hold() -> None:
    records = [record(name, w, flags=[UNSETTLED]) for name in ("flex", "triton_flash") for w in LENGTHS[-2:]]
    assert flagged(*(record(workload=workload) for workload in LENGTHS), *records) == [
        ("sustained: the speed did not settle in 1 of 5 processes, at 448, 512 text tokens:", "flex, triton_flash")
    ]


def test_what_did_not_converge_is_said_at_every_workload() -> None:
    short = record(workload=LENGTHS[0], converged={SUSTAINED: False})
    [(said, variant)] = flagged(short, record(workload=LENGTHS[5]))
    assert said.startswith("sustained: not converged, ")
    assert (said[-19:], variant) == ("at 128 text tokens:", "torch_flash")


def test_values_that_differ_are_one_item_with_how_many_records_have_them() -> None:
    differs = [Flag(kind=FlagKind.CUPTI_DIFFERS, regime=BURST, value=value) for value in (0.012, -0.009, 0.01)]
    records = [record("a", LENGTHS[0], flags=differs[:1]), record("a", LENGTHS[1], flags=differs[1:2])]
    assert flagged(*records, record("b", LENGTHS[0], flags=differs[2:]), record("b", LENGTHS[1])) == [
        ("burst: the CUPTI cross-check differs by -0.9% to +1.2%, in 3 of 4 records:", "a (2), b")
    ]


def test_flagged_rows_are_counted_with_those_that_did_not_converge() -> None:
    capped = record("a", converged={SUSTAINED: False})
    found = blocks(results(record(), record("flex", flags=[UNSETTLED]), capped, record("b", status=Status.CRASHED)))
    assert "2 of 3 rows are flagged, and why (flux1-1024px)" in words(found)
    assert "Nothing is flagged (flux1-1024px)." in words(blocks(results(record())))


def test_of_replayed_calls_those_are_named_that_take_longer_where_the_host_launches_them() -> None:
    def replayed(variant: str, workload: Workload, launched_ms: float | None, launch_ms: float = 0.6) -> Record:
        """Return a record of a call that takes 0.8 ms."""
        flag = Flag(kind=FlagKind.REPLAYED, regime=SUSTAINED, value=launched_ms)
        return record(variant, workload, sustained_ms=0.8, launch_ms=launch_ms, flags=[flag])

    hidden = [replayed("b", LENGTHS[0], 0.83), replayed("c", LENGTHS[0], None), replayed("d", LENGTHS[0], 1.2, 0.5)]
    slow = [replayed("a", LENGTHS[0], 1.2), replayed("a", LENGTHS[5], 0.9)]
    [(said, times)] = flagged(*slow, *hidden)
    assert said.startswith("sustained: timed as CUDA graphs")
    assert times == f"a 1.50 times, at {LENGTHS[0].x:,}"
    assert "2 of 5 rows are flagged" in words(blocks(results(*slow, *hidden)))
    assert "Nothing is flagged" in words(blocks(results(*hidden)))


def test_a_row_whose_kernels_fill_its_time_is_nowhere_said_to_wait_for_the_host() -> None:
    filled = record(flags=[LAUNCH_BOUND], cupti=Cupti(events_ms=0.9, kernels_ms=0.98, span_ms=0.98))
    assert "Nothing is flagged" in words(blocks(results(filled)))
    assert list(all_words(filled)) == []
    assert "1 of 1 rows are flagged" in words(blocks(results(record(flags=[LAUNCH_BOUND]))))


def test_a_flag_of_nearly_all_names_the_others() -> None:
    hot = [record(f"v{number}", flags=[UNSETTLED]) for number in range(9)]
    assert flagged(*hot, record("cool"))[0][1] == "all of the 10 that passed there but cool"
    assert flagged(*hot, *(record(name) for name in "abc"))[0][1] == "all of the 12 that passed there but a, b, c"
    assert flagged(*hot, *(record(name) for name in "abcd"))[0][1].startswith("v0, v1, ")
    assert flagged(*hot[:8])[0][1].startswith("v0, v1, ")
    assert flagged(*hot, record("short", LENGTHS[0]))[0][1] == "all of the 9 that passed there"


def test_rows_in_another_state_than_their_regime_are_counted() -> None:
    kept = Flag(kind=FlagKind.KEPT_OUT_OF_REGIME, regime=BURST, value=0.7, detail="a low clock")
    said = words(blocks(results(record(flags=[kept]), record("flex", flags=[kept, UNSETTLED]), record("a"))))
    of_burst = (
        "In 2 of 3 rows half or more of a process's burst samples were out of the regime (a low clock), and kept."
    )
    assert of_burst in said
    assert "In 1 of 3 rows the speed did not settle in a process or more." in said
    assert "half or more" not in words(blocks(results(record())))


def test_of_many_groups_those_after_the_first_ones_fold() -> None:
    names = [f"flux1-{size}px-t512" for size in (128, 256, 512, 768, 1024, 1536, 2048)]
    found = blocks(results(*(record(workload=name) for name in (*names, "flux2-1024px-t512"))))
    *_, last = found
    assert isinstance(last, Fold)
    assert last.title == "The same for 2 other groups of workloads"
    assert sum("State of the device" in each.title for each in found if isinstance(each, Fold)) == 6
    assert sum("State of the device" in each.title for each in last.blocks if isinstance(each, Fold)) == 2
