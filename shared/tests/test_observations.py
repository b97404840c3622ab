"""From what workers said to records: both regimes, what they are against, what is marked, and what is never made up."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import Any

import pytest
from fakes import CPU, GPU, TINIER, TINY
from sample_turns import BLOCK_AFTER_S, checked, readings, timed

from fluxbench.bench.observations import Observations, to_samples
from fluxbench.bench.recording import to_record
from fluxbench.device.detection import Device
from fluxbench.environments.cell import Cell
from fluxbench.operations.workloads import Workload
from fluxbench.records.schema import Record, SecondClock, Status, from_json
from fluxbench.timing.telemetry import Reading

CELL = Cell(notebook="flux", id="sdpa", packages=("torch==2.13.0",), source_sha256="0" * 64)
H200 = dataclasses.replace(GPU, name="NVIDIA H200", sm_clock_max_mhz=1980, memory_clock_max_mhz=3201)
PROCESS_S = 1000.0  # from the begin of one process to that of the next
CLOCKS = {"tiny": (0.79, 0.8)}


def of_process(process: int, **changes: Any) -> list[dict[str, Any]]:
    """Return the turns of a process: the reference, a variant 20% faster than it in burst and 10% sustained, and it."""
    begin = PROCESS_S * process
    own = {"burst_ms": (0.8,) * 4, "block_ms": (9.0, 9.0, *[1.35] * 8), "clocks": None if process else CLOCKS}
    return [
        timed("torch_flash", process, began=begin, clocks=None if process else {"tiny": (1.0, 1.0)}),
        timed("flex", process, began=begin + 10, **{**own, **changes}),
        timed("torch_flash", process, began=begin + 20, burst_ms=None),
    ]


def observed(
    turns: Iterable[dict[str, Any]] | None = None, said: Iterable[Reading] | None = None, **changes: Any
) -> Observations:
    """Return what was seen of three processes, and of a device that says everything but its energy."""
    found = Observations()
    found.add({"event": "ready", "versions": {"torch": "2.13.0"}})
    for variant in ("torch_flash", "flex"):
        for workload in ("tiny", "tinier"):
            found.add(checked(variant, workload))
    process = 0
    for event in [t for p in range(3) for t in of_process(p, **changes)] if turns is None else turns:
        if event["process"] != process:
            found.add({"event": "ready", "versions": {"torch": "2.13.0"}})
        process = event["process"]
        found.add(event)
    found.readings = list(spoken() if said is None else said)
    return found


def spoken(**changes: Any) -> list[Reading]:
    return [r for p in range(3) for r in readings(PROCESS_S * p, PROCESS_S * p + 25, step_s=0.05, **changes)]


def record(
    seen: Observations,
    variant: str = "flex",
    *,
    workload: Workload = TINY,
    device: Device = GPU,
    processes: int = 3,
) -> Record:
    return to_record(
        seen,
        CELL,
        variant,
        workload,
        fingerprint={},
        measured_at="2026-01-31T12:00:00Z",
        processes=processes,
        device=device,
    )


ENERGY = "energy is unknown: the driver counts none, or too coarsely"

# Two regimes.


def test_a_record_holds_both_regimes_with_the_ratio_of_each() -> None:
    found = record(observed())
    assert (found.status, found.reason) == (Status.PASSED, None)
    assert found.timing is not None
    assert found.burst is not None
    assert (found.timing.regime, found.burst.regime) == ("sustained", "burst")
    assert (found.timing.median_ms, found.timing.ratio) == pytest.approx((1.35, 0.9))
    assert (found.burst.median_ms, found.burst.ratio) == pytest.approx((0.8, 0.8))
    assert (found.timing.processes, found.timing.split, found.burst.split) == (3, (4, 4, 4), (4, 4, 4))
    assert (found.timing.set_aside, found.burst.set_aside) == (6, 0)  # two windows of each block's lead
    assert (found.timing.reference_variant, found.timing.precise, found.burst.precise) == ("torch_flash", True, True)
    assert from_json(found.to_json()) == found


def test_the_reference_is_one_and_holds_all_of_its_blocks() -> None:
    found = record(observed(), "torch_flash")
    assert found.timing is not None
    assert found.burst is not None
    assert (found.timing.ratio, found.timing.ratio_ci95, found.burst.ratio) == (1.0, (1.0, 1.0), 1.0)
    assert (found.timing.split, found.timing.median_ms) == ((4, 4, 4), 1.5)  # two samples of each of its two blocks


def test_a_sustained_ratio_is_against_the_reference_before_and_after() -> None:
    turns = [
        timed("torch_flash", began=0.0, block_ms=(1.0,) * 6),
        timed("flex", began=10.0, block_ms=(2.0,) * 6),
        timed("torch_flash", began=20.0, block_ms=(3.0,) * 6, burst_ms=None),
        timed("torch_math", began=30.0, block_ms=(4.0,) * 6),
        timed("torch_flash", began=40.0, block_ms=(5.0,) * 6, burst_ms=None),
    ]
    seen = observed(turns)
    seen.add(checked("torch_math"))
    timings = {name: record(seen, name, processes=1).timing for name in ("flex", "torch_math")}
    ratios = {name: timing.ratio for name, timing in timings.items() if timing}
    assert ratios == {"flex": pytest.approx(2 / 2), "torch_math": pytest.approx(4 / 4)}


def test_a_burst_ratio_is_that_of_the_same_round() -> None:
    clock = (1.0, 2.0, 3.0, 4.0)  # slows both alike from round to round
    seen = observed(burst_ms=[0.8 * slow for slow in clock], beside_ms=clock)
    burst = record(seen).burst
    assert burst is not None
    assert (burst.ratio, *burst.ratio_ci95) == pytest.approx((0.8, 0.8, 0.8))
    assert burst.ci95_ms[1] > 1.5 * burst.ci95_ms[0]
    assert burst.precise is False


def test_several_workloads_of_a_variant_each_have_their_own_times() -> None:
    turns = [
        event
        for process in range(3)
        for event in (
            timed("torch_flash", process, began=PROCESS_S * process, workloads={"tiny": 1.0, "tinier": 0.5}),
            timed("flex", process, began=PROCESS_S * process + 10, workloads={"tiny": 2.0, "tinier": 0.25}),
        )
    ]
    seen = observed(turns)
    for workload, ms in ((TINY, 2.0), (TINIER, 0.25)):
        found = record(seen, workload=workload)
        assert found.burst is not None
        assert found.timing is not None
        assert (found.burst.median_ms, found.timing.median_ms) == (ms, 1.5 * ms)


def test_without_blocks_the_time_is_that_of_burst() -> None:
    turns = [dict(each, block=None) for p in range(3) for each in of_process(p) if "burst" in each]
    found = record(observed(turns))
    assert found.timing == found.burst
    assert found.telemetry is not None
    assert found.telemetry.sm_clock_mhz == 1980.0
    assert (found.energy_mj, found.marks) == (None, ())


# What else a record says.


def test_telemetry_is_that_of_the_ranked_samples_of_each_regime() -> None:
    def clock_mhz(time_s: float) -> float:
        of_block = 10 + BLOCK_AFTER_S + 0.2  # after the lead
        return 1500.0 if of_block <= time_s % PROCESS_S < 13 else 1980.0

    found = record(observed(said=spoken(clock_mhz=clock_mhz)))
    assert found.telemetry is not None
    assert found.burst_telemetry is not None
    assert (found.telemetry.sm_clock_mhz, found.burst_telemetry.sm_clock_mhz) == (1500.0, 1980.0)
    assert (found.telemetry.power_w, found.telemetry.temperature_c) == (300.0, 50.0)


def test_the_energy_of_a_call_is_its_power_times_its_time() -> None:
    def energy_mj(time_s: float) -> float:  # 400 W in the blocks of the variant, 100 W elsewhere
        within = sum(max(0.0, min(time_s, b) - min(time_s, a)) for a, b in busy)
        return 1e3 * (100.0 * time_s + 300.0 * within)

    busy = [(PROCESS_S * p + 10 + BLOCK_AFTER_S, PROCESS_S * p + 10 + BLOCK_AFTER_S + 1.0) for p in range(3)]
    found = record(observed(said=spoken(energy_mj=energy_mj)))
    assert found.telemetry is not None
    assert found.telemetry.power_w == pytest.approx(400.0, rel=0.01)
    assert found.energy_mj is not None
    assert found.energy_ci95_mj is not None
    assert found.energy_mj == pytest.approx(400.0 * 1.35, rel=0.01)
    assert found.energy_ci95_mj[0] <= found.energy_mj <= found.energy_ci95_mj[1]
    assert ENERGY not in found.marks


def test_the_second_clock_is_beside_the_burst_time_of_the_first_process() -> None:
    found = record(observed())
    parts_ms = {"attention": 0.79}
    assert found.second_clock == SecondClock(events_ms=0.8, kernels_ms=0.79, span_ms=0.8, parts_ms=parts_ms)
    assert found.launch_ms == 0.05


def test_what_a_variant_took_of_the_device_holds_the_rests_and_the_reference() -> None:
    found = {name: record(observed(), name).device_s for name in ("torch_flash", "flex")}
    assert found["flex"] == pytest.approx(3 * (2.0 + 2 * 1.6))  # its own turn, and both of the reference for it alone
    assert found["torch_flash"] == pytest.approx(3 * 1.6)


# Marks.


@pytest.mark.parametrize(("ahead_ms", "marked"), [(0.2, True), (1.3, True), (1.4, False)])
def test_a_block_in_which_the_device_waited_for_the_host_is_marked(ahead_ms: float, marked: bool) -> None:
    found = record(observed(ahead_ms=ahead_ms)).marks  # a call takes 1.35 ms
    mark = "sustained: the host was hardly ahead of the device in all processes: launching is what was timed"
    assert (mark in found) == marked


def test_a_measurement_without_trouble_has_no_mark_but_of_the_counter() -> None:
    assert record(observed()).marks == (ENERGY,)


def test_a_device_that_never_settles_is_marked_and_its_times_are_kept() -> None:
    turns = [t for p in range(3) for t in of_process(p, settled=p == 1)]
    found = record(observed(turns))
    assert "its speed did not settle in 2 of 3 processes" in found.marks
    assert found.status is Status.PASSED


def test_a_laptop_that_slept_is_marked() -> None:
    turns = [t for p in range(3) for t in of_process(p, slept_s=30.5 * (p == 2))]
    assert "the machine slept for 30.5 s while it was measured" in record(observed(turns)).marks


def test_the_reference_is_marked_for_what_happened_in_each_of_its_turns() -> None:
    turns = [t for p in range(3) for t in of_process(p)]
    turns[-1] |= {"slept_s": 7.0, "block": {**turns[-1]["block"], "settled": False}}
    marks = record(observed(turns), "torch_flash").marks
    assert "its speed did not settle in 1 of 3 processes" in marks
    assert "the machine slept for 7.0 s while it was measured" in marks


def test_another_process_on_the_device_is_marked() -> None:
    seen = observed()
    seen.others = ["trainer (pid 7)", "desktop (pid 9)"]
    assert "another process used the device: trainer (pid 7); desktop (pid 9)" in record(seen).marks


@pytest.mark.parametrize("said", [[], spoken(clock_mhz=None, power_w=None)])
def test_without_the_right_to_ask_nvml_what_is_unknown_is_marked_and_nothing_is_made_up(said: list[Reading]) -> None:
    found = record(observed(said=said))
    assert found.telemetry is not None
    assert (found.status, found.telemetry.sm_clock_mhz, found.telemetry.power_w) == (Status.PASSED, None, None)
    assert (found.energy_mj, found.energy_ci95_mj) == (None, None)
    assert found.marks == ("clock, power and temperature are unknown: the driver does not tell them", ENERGY)


def test_without_a_counter_of_energy_the_power_is_that_which_was_read() -> None:
    found = record(observed())
    assert found.telemetry is not None
    assert (found.telemetry.power_w, found.energy_mj, found.energy_ci95_mj) == (300.0, None, None)
    assert ENERGY in found.marks


@pytest.mark.parametrize(
    ("span_ms", "kernels_ms", "mark"),
    [
        (0.8, 0.79, None),
        (0.793, 0.79, None),  # 0.9%
        (0.76, 0.76, "the two clocks differ by +5.3%"),
        (1.0, 1.0, "the two clocks differ by -20.0%"),
        (1.0, 0.5, None),  # within what the profiler saw
    ],
)
def test_clocks_that_differ_by_more_than_a_percent_are_marked(
    span_ms: float, kernels_ms: float, mark: str | None
) -> None:
    turns = [t for p in range(3) for t in of_process(p, clocks=None if p else {"tiny": (kernels_ms, span_ms)})]
    assert [each for each in record(observed(turns)).marks if "clocks" in each] == ([mark] if mark else [])


def test_where_the_profiler_saw_nothing_that_is_marked() -> None:
    found = record(observed(clocks=None))
    assert found.second_clock is None
    assert "no second clock: the profiler recorded no kernels" in found.marks


def test_samples_out_of_the_regime_are_counted_and_said_not_to_be_ranked() -> None:
    def reasons(time_s: float) -> tuple[str, ...]:
        return ("hw_thermal_slowdown",) if 10.09 < time_s < 10.11 else ()  # in the second round of the first process

    found = record(observed(said=spoken(reasons=reasons)))
    assert found.burst is not None
    assert (found.burst.split, found.burst.set_aside) == ((3, 4, 4), 1)
    assert (
        "burst: 1 of 4 samples of 1 of 3 processes were out of the regime (hw_thermal_slowdown), not ranked"
        in found.marks
    )


def test_where_few_samples_were_in_the_regime_all_are_kept_and_that_is_said() -> None:
    found = record(observed(said=spoken(reasons=lambda time_s: ("sw_thermal_slowdown",))))
    assert found.timing is not None
    assert found.timing.split == (4, 4, 4)
    whose = "24 of 30 samples of all processes"
    what = "were out of the regime (sw_thermal_slowdown), counted all the same, there were few others"
    assert f"sustained: {whose} {what}" in found.marks


def test_a_cpu_is_not_marked_for_what_it_never_says() -> None:
    seen = observed(said=[])
    seen.checked["flex", "tiny"]["clocks"] = [0.805, 0.8]
    found = record(seen, device=CPU)
    assert (found.marks, found.launch_ms) == ((), None)
    assert found.second_clock == SecondClock(events_ms=0.805, kernels_ms=0.8, span_ms=0.8)


# What cannot be, and what is missing.


def test_a_time_faster_than_the_device_can_be_is_an_error_with_the_arithmetic() -> None:
    workload = Workload(name="tiny", seq_len=4608, heads=24)
    found = record(observed(burst_ms=(0.2,) * 4), device=H200, workload=workload)
    assert (found.status, found.timing, found.burst, found.energy_mj) == (Status.ERROR, None, None, None)
    assert str(found.reason).startswith("burst: faster than the device can be: 0.2 ms measured, but 2.61e+11 FLOP / ")
    assert record(observed(), device=H200, workload=workload).status is Status.PASSED


def test_a_sustained_time_faster_than_the_device_can_be_is_an_error_too() -> None:
    workload = Workload(name="tiny", seq_len=4608, heads=24)
    found = record(observed(block_ms=(0.1,) * 6), device=H200, workload=workload)
    assert found.status is Status.ERROR
    assert str(found.reason).startswith("sustained: faster than the device can be: 0.1 ms measured")


def test_a_variant_that_was_timed_in_too_few_processes_is_an_error() -> None:
    found = record(observed([t for p in range(2) for t in of_process(p)]))
    assert (found.status, found.timing, found.marks) == (Status.ERROR, None, ())
    assert found.reason == "timed in 2 of 3 processes; the reference variant failed in the others"


def test_what_failed_has_no_times_whatever_was_timed() -> None:
    seen = observed()
    seen.add({"event": "failed", "variant": "flex", "workload": "tiny", "status": "INCORRECT", "reason": "it is wrong"})
    found = record(seen)
    assert (found.status, found.reason, found.timing, found.burst) == (Status.INCORRECT, "it is wrong", None, None)
    assert record(seen, "torch_flash").status is Status.PASSED


def test_a_process_with_another_reference_is_left_out_of_the_ratio_and_marked() -> None:
    turns = [t for p in range(2) for t in of_process(p)]
    begin = 2 * PROCESS_S
    turns += [
        timed("torch_math", 2, began=begin, reference="torch_math", burst_ms=(4.0,) * 4, beside_ms=4.0),
        timed("flex", 2, began=begin + 10, reference="torch_math", burst_ms=(0.8,) * 4, beside_ms=4.0),
    ]
    found = record(observed(turns))
    assert found.burst is not None
    assert found.burst.ratio == pytest.approx(0.8)
    assert found.burst.reference_variant == "torch_flash"
    assert (found.burst.median_ms, found.burst.processes) == (0.8, 3)
    assert "its ratio leaves out 1 of 3 processes, in which another variant was the reference" in found.marks


def test_of_a_process_that_was_started_again_the_later_turn_of_the_reference_counts() -> None:
    again = timed("torch_flash", 1, began=PROCESS_S + 30, burst_ms=(3.0,) * 4, beside_ms=3.0)
    seen = observed([*of_process(0), *of_process(1), again, *of_process(2)])
    burst = record(seen, "torch_flash").burst
    assert burst is not None
    assert burst.by_process == ((1.0,) * 4, (3.0,) * 4, (1.0,) * 4)
    flex = record(seen)
    assert flex.timing is not None
    assert flex.timing.ratio == pytest.approx(0.9)


# All samples.


def test_every_sample_is_kept_beside_the_records() -> None:
    kept = json.loads(to_samples(observed()))
    assert (kept["schema"], len(kept["series"])) == (1, 3 * (2 + 2 + 1))
    assert kept["measuring_s"] == pytest.approx(3 * (1.6 + 2.0 + 1.6))
    assert 0 < kept["busy_s"] < kept["measuring_s"]


def test_where_nothing_was_timed_the_samples_are_none() -> None:
    assert json.loads(to_samples(Observations())) == {"schema": 1, "busy_s": 0.0, "measuring_s": 0.0, "series": []}
