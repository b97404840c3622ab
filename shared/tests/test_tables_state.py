"""The state table says what the device was doing, what is not known and why, and what was not as it should be."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from sample_records import make_record, of_old, rested

from fluxbench.operations.workloads import SETS
from fluxbench.records.schema import Record, SecondClock, Status, Telemetry, Timing
from fluxbench.report.tables import tables

LENGTHS = SETS["flux1-1024px"]
UNKNOWN = Telemetry(sm_clock_mhz=None, power_w=None, temperature_c=None)


def record(variant: str = "torch_flash", **other: Any) -> Record:
    return dataclasses.replace(make_record(variant), **other)


def timing(**other: Any) -> Timing:
    found = make_record().timing
    assert found
    return dataclasses.replace(found, **other)


def rows(text: str, variant: str) -> list[list[str]]:
    """Return the rows of a variant, that of the state first and that of the cost second."""
    return [line.split() for line in text.splitlines() if line.startswith(f"{variant} ")]


def said(*records: Record) -> str:
    """Return the table's text in one line."""
    return " ".join(tables.state_table(records).split())


def test_a_row_has_the_state_in_both_regimes() -> None:
    state, _ = rows(tables.state_table([record()]), "torch_flash")
    assert state == ["torch_flash", "1,755", "640", "61", "1,980", "150", "none"]


def test_a_row_has_energy_launch_second_clock_and_samples() -> None:
    counted = timing(set_aside=4, precise=True)
    _, cost = rows(tables.state_table([record(timing=counted)]), "torch_flash")
    assert " ".join(cost) == "torch_flash 250 ±3 60.0 0.0% 5 10 / 4 10 / 0 yes 1.1"


def test_it_is_said_that_a_launch_is_of_a_burst() -> None:
    assert "apart from the time on the device, in burst: back to back the host is faster." in said(record())


def test_throttle_reasons_name_their_regime() -> None:
    hot = Telemetry(sm_clock_mhz=1500.0, power_w=700.0, temperature_c=80.0, throttle_reasons=("sw_power_cap",))
    text = said(record(telemetry=hot), record("a", burst_telemetry=hot))
    assert text.count("sustained: sw_power_cap") == text.count("burst: sw_power_cap") == 1


@pytest.mark.parametrize(
    ("clock", "cell"),
    [
        (SecondClock(events_ms=1.0, kernels_ms=0.99, span_ms=1.0), "0.0%"),
        (SecondClock(events_ms=1.005, kernels_ms=0.99, span_ms=1.0), "0.5%"),
        (SecondClock(events_ms=1.023, kernels_ms=0.99, span_ms=1.0), "differ by 2.3%"),
        (SecondClock(events_ms=0.95, kernels_ms=1.0, span_ms=1.1), "differ by 5.0%"),
    ],
)
def test_clocks_agree_within_a_percent_or_the_row_says_that_they_do_not(clock: SecondClock, cell: str) -> None:
    _, cost = rows(tables.state_table([record(second_clock=clock)]), "torch_flash")
    assert f" {cell} 5 " in " ".join(cost)


@pytest.mark.parametrize(
    ("found", "cell"),
    [
        (record(timing=timing(precise=False)), "cap"),
        (rested(record(), 0.9, precise=False), "cap (burst)"),
        (rested(record(timing=timing(precise=False)), 0.9, precise=False), "cap (sustained, burst)"),
        (record(timing=timing(precise=True)), "yes"),
        (record(), "-"),
    ],
)
def test_a_row_that_hit_the_cap_says_so(found: Record, cell: str) -> None:
    _, cost = rows(tables.state_table([found]), "torch_flash")
    assert " ".join(cost).endswith(f"10 / 0 {cell} 1.1")


def test_the_cap_is_marked_at_every_length() -> None:
    short = dataclasses.replace(make_record(workload=LENGTHS[0]), timing=timing(precise=False))
    assert (
        "sustained: the caps of time and processes came before the precision that is asked for, "
        "at 128 text tokens: torch_flash" in said(short, make_record(workload=LENGTHS[-1]))
    )


def test_a_driver_that_does_not_tell_leaves_dashes_and_a_reason() -> None:
    silent: dict[str, Any] = {"telemetry": UNKNOWN, "burst_telemetry": UNKNOWN, "energy_mj": None}
    text = tables.state_table([record(**silent, fingerprint={"device_kind": "cuda"})])
    state, cost = rows(text, "torch_flash")
    assert [*state[1:], cost[1]] == ["-"] * 7
    assert "sustained mJ a call: the driver did not tell, or NVML may not be asked here." in " ".join(text.split())


def test_no_throttle_reason_is_only_said_where_the_device_spoke() -> None:
    state, _ = rows(tables.state_table([record(telemetry=None)]), "torch_flash")
    assert state[-1] == "-"


def test_a_cpu_has_no_sensor() -> None:
    silent: dict[str, Any] = {"telemetry": None, "burst_telemetry": None, "energy_mj": None}
    assert "no sensor of a CPU is read" in said(record(**silent, fingerprint={"device_kind": "cpu"}))


def test_a_call_on_a_cpu_is_not_launched() -> None:
    _, cost = rows(tables.state_table([record(fingerprint={"device_kind": "cpu"})]), "torch_flash")
    assert cost[3] == "-"


def test_what_an_older_fluxbench_did_not_ask_is_said() -> None:
    text = said(of_old(record(fingerprint={"device_kind": "cuda"})))
    reason = "device s: an older fluxbench measured this, and did not ask."
    assert reason in text
    assert "driver did not tell" not in text


def test_where_everything_is_known_no_dash_is_explained() -> None:
    text = tables.state_table([record(timing=timing(precise=True))])
    assert "not known" not in text


def test_marks_are_said_once_for_all_of_whom_they_hold() -> None:
    records = [
        dataclasses.replace(make_record(variant, workload), marks=("it did not settle in 1 of 3 processes",))
        for variant in ("flex", "triton_flash")
        for workload in LENGTHS[-2:]
    ]
    everywhere = [make_record("torch_flash", workload) for workload in LENGTHS]
    text = said(*everywhere, *records)
    assert "it did not settle in 1 of 3 processes, at 448, 512 text tokens: flex, triton_flash" in text
    assert text.count("did not settle") == 1


def test_clocks_that_differ_are_one_entry() -> None:
    differing = {LENGTHS[0]: "+1.2", LENGTHS[1]: "-0.9"}
    records = [
        dataclasses.replace(make_record("a", workload), marks=(f"the two clocks differ by {by}%",))
        for workload, by in differing.items()
    ]
    other = dataclasses.replace(make_record("b", LENGTHS[0]), marks=("the two clocks differ by +1.0%",))
    text = said(*records, other, make_record("b", LENGTHS[1]))
    assert "the two clocks differ by -0.9% to +1.2%, in 3 of 4 records: a (2), b" in text
    assert text.count("the two clocks differ") == 1


def test_a_mark_of_nearly_all_names_the_others() -> None:
    hot = [record(f"v{number}", marks=("too hot",)) for number in range(9)]
    assert "too hot, everywhere: all of the 10 that passed there but cool" in said(*hot, record("cool"))
    assert "too hot, everywhere: all of the 9 that passed there" in said(*hot)


def test_a_mark_everywhere_says_so() -> None:
    assert "too hot, everywhere: torch_flash" in said(record(marks=("too hot",)))


def test_no_marks_is_said() -> None:
    assert "Nothing is marked (flux1-1024px)." in said(record())


def test_what_did_not_pass_has_no_state() -> None:
    failed = make_record("flex", status=Status.CRASHED)
    assert rows(tables.state_table([record(), failed]), "flex") == []
    assert "Nothing passed" in tables.state_table([failed])


def test_the_fastest_sustained_stands_first() -> None:
    records = [make_record("a", median_ms=0.9), make_record("b", median_ms=0.4)]
    text = tables.state_table(records)
    assert text.index("\nb ") < text.index("\na ")
