"""Every sample of a cell, ranked or not, and the control kernel's times beside its variants."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakes import GPU, TINIER, TINY
from sample_events import READY, collected, readings, timed
from sample_records import record

from fluxbench.analysis.verification.beside import of_cell
from fluxbench.analysis.verification.cell import Cell, Sampled
from fluxbench.analysis.verification.problem import Finding, Kind
from fluxbench.bench import samples
from fluxbench.bench.collected import Collected
from fluxbench.bench.events import Lacked
from fluxbench.records.files import ControlTimes

TIMES_MS = (1.0, 2.0, 3.0, 4.0)


def slow_second_round(time_s: float) -> float:
    return 1500.0 if 0.09 < time_s < 0.17 else 1980.0


def test_every_sample_is_written_ranked_or_not() -> None:
    trial = timed(
        "flex", 2, burst_ms=TIMES_MS, beside_ms=2.0, workloads={TINY.name: 1.0, TINIER.name: 0.5},
        control_ms=(0.4,) * 4, calls=5,
    )  # fmt: skip
    trial["repeated_over_new"] = {"tinier": 0.9}
    kept = json.loads(samples.to_json(collected([trial], readings(0.0, 0.4, clock_mhz=slow_second_round))))
    assert kept["schema"] == 2
    written = kept["series"]
    assert [(each.get("workload"), each["regime"], each["variant"]) for each in written] == [
        ("tiny", "burst", "flex"),
        ("tiny", "sustained", "flex"),
        ("tinier", "burst", "flex"),
        ("tinier", "sustained", "flex"),
        (None, "burst", "control_kernel"),
    ]
    burst, block = written[2], written[3]
    assert (burst["samples_ms"], burst["ranked"], burst["process"]) == ([0.5, 1.0, 1.5, 2.0], [1, 0, 1, 1], 2)
    assert (burst["reference_ms"], burst["place_in_round"], burst["repeated_over_new"]) == (
        [1.0] * 4,
        [0, 1, 2, 3],
        0.9,
    )
    assert (burst["sm_clock_mhz"], burst["power_w"]) == ([1980.0, 1500.0, 1980.0, 1980.0], [300.0] * 4)
    assert burst["began_s"] == pytest.approx([0.0, 0.1, 0.2, 0.3])
    assert (block["ranked"], block["ranked_over"], block["calls_per_sample"]) == ([0, 0, 1, 1, 1, 1], 2, 5)
    assert block["sm_clock_mhz"] == block["power_w"] == block["throttle_reasons"] == [None] * 6
    assert (written[4]["beside"], written[4]["samples_ms"]) == ("flex", [0.4] * 4)
    trials = [timed("torch_flash"), timed("flex", began=10.0), timed("torch_flash", began=20.0, burst_ms=None)]
    kept = json.loads(samples.to_json(collected(trials)))
    assert kept["memory_lacked"] == []
    assert [(each["variant"], each["regime"]) for each in kept["series"]] == [
        ("torch_flash", "burst"),
        ("torch_flash", "sustained"),
        ("flex", "burst"),
        ("flex", "sustained"),
        ("torch_flash", "sustained"),  # a later trial of the reference has its block alone
    ]
    assert (kept["measuring_s"], kept["busy_s"]) == pytest.approx((3 * 1.6, (4 + 8 + 3 * 603) / 1e3))


# The control kernel.

SAMPLES = ((1.0, 1.23456789), (), (1.5,))  # in the second process its output was wrong
KNOWN = {"event": "control_kernel", "description": "made up"}
WITHOUT = {"event": "control_kernel", "reason": "out of memory"}


def beside(*controls: dict[str, str], more: tuple[dict[str, Any], ...] = ()) -> Collected:
    """Return what processes wrote of their control kernels, and its times beside a variant."""
    trials = [
        timed("flex", process, began=100.0 * process, burst_ms=(9.0,) * max(1, len(times)), control_ms=times)
        for process, times in enumerate(SAMPLES)
    ]
    return collected([READY, *controls, *trials, *more])


def test_its_times_are_those_beside_each_variant_of_every_process_in_order() -> None:
    reference = [timed("torch_flash", process, burst_ms=(9.0,), control_ms=(2.0 + process,)) for process in (1, 0)]
    later = timed("torch_flash", 1, began=30.0, burst_ms=None)
    assert samples.control_times(beside(KNOWN, more=(*reference, later))) == ControlTimes(
        kernel="made up", samples_ms={"flex": ((1.0, 1.234568), (), (1.5,)), "torch_flash": ((2.0,), (3.0,))}
    )
    of = collected([KNOWN, timed("flex", burst_ms=(9.0,) * 3, control_ms=(1.0, 2.0, 3.0))])
    of.readings = readings(0.0, 0.3, clock_mhz=slow_second_round)
    times = samples.control_times(of)
    assert times is not None
    assert times.samples_ms == {"flex": ((1.0, 3.0),)}


def test_its_times_are_those_of_the_rounds_of_the_first_workload() -> None:
    taken = timed("flex", burst_ms=(9.0,) * 3, control_ms=(1.0, 2.0, 3.0))
    taken["burst"] |= {"samples_ms": {"tiny": [9.0, 9.0]}, "rounds": {"tiny": [0, 2]}}
    taken["burst"] |= {"reference_ms": {"tiny": [9.0, 9.0]}, "places": {"tiny": [0, 1]}}
    of = collected([KNOWN, taken])
    times = samples.control_times(of)
    assert times is not None
    assert times.samples_ms == {"flex": ((1.0, 3.0),)}
    own, control = json.loads(samples.to_json(of))["series"][::2]
    assert [control["samples_ms"], own["began_s"]] == [[1.0, 3.0], [0.0, 0.2]]


def findings(times: ControlTimes, series: list[Sampled]) -> list[Finding]:
    """Return in what a published cell's control times are not those of its samples."""
    found = of_cell(
        Cell(
            path=Path("models.jsonl"),
            records=[record("flex", fingerprint={"device": msgspec.to_builtins(GPU)})],
            samples=series,
            control=times,
        )
    )
    return [one for one in found if one.kind is Kind.CONTROL]


def test_where_rounds_have_parts_its_times_are_those_of_the_workload_in_the_first_part() -> None:
    taken = timed("flex", burst_ms=(9.0,) * 3, control_ms=(1.0, 2.0, 3.0), workloads=("long", "short"))
    taken["burst"]["spans"] = {
        "short": [[0.1 * index, 0.1 * index + 0.02] for index in range(3)],
        "long": [[0.1 * index + 0.03, 0.1 * index + 0.05] for index in range(3)],
    }
    of = collected([KNOWN, taken])
    # The second round is slow in its first part alone, where the control kernel is; the third in its second part.
    of.readings = readings(
        0.0, 0.3, clock_mhz=lambda time_s: 1500.0 if 0.1 <= time_s < 0.12 or time_s > 0.225 else 1980.0
    )
    times = samples.control_times(of)
    assert times is not None
    assert times.samples_ms == {"flex": ((1.0, 3.0),)}
    # Who reads the file finds the same: without the second of three.
    series = msgspec.convert(json.loads(samples.to_json(of))["series"], list[Sampled])
    assert not findings(times, series)
    other = ControlTimes(kernel="made up", samples_ms={"flex": ((1.0, 2.0),)})
    assert len(findings(other, series)) == 1


def test_its_times_in_all_parts_of_the_workloads_that_a_process_holds_are_kept() -> None:
    parts = [
        timed("flex", workloads=(name,), began=began, burst_ms=(9.0,), control_ms=(began,))
        for name, began in (("one", 1.0), ("two", 2.0), ("two", 3.0))  # the second part was measured again
    ]
    times = samples.control_times(collected([READY, KNOWN, *parts]))
    assert times is not None
    assert times.samples_ms == {"flex": ((1.0, 3.0),)}


def test_a_process_without_one_costs_its_own_times_alone() -> None:
    for controls in ((WITHOUT, KNOWN, KNOWN), (KNOWN, KNOWN, WITHOUT)):
        times = samples.control_times(beside(*controls))
        assert times is not None
        assert (times.kernel, times.samples_ms["flex"][0]) == ("made up", (1.0, 1.234568))
    assert samples.control_times(beside(WITHOUT)) is samples.control_times(beside()) is None


def test_what_lacked_memory_before_it_was_tried_again_is_written() -> None:
    lack = {"variant": "flex", "workload": "tiny", "reason": "asked for 1.50 GiB with 1.18 of 79.18 GiB free"}
    first, second = collected([timed("flex")]), Collected()
    second.add(Lacked(**lack))
    first.join(second)
    assert json.loads(samples.to_json(first))["memory_lacked"] == [lack]
