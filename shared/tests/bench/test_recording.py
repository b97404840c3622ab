"""From what workers wrote to records: both regimes, what they are against, and what has none."""

from __future__ import annotations

import dataclasses
from statistics import fmean
from typing import Any

import pytest
from fakes import GPU, TINIER, TINY, tokens
from recorded import CELL, NO_ENERGY, PROCESS_S, flag, of_process, record, regimes, reported, seen
from sample_events import BLOCK_AFTER_S, ERRORS, READY, REFERENCE, checked, collected, failed, timed

from fluxbench.bench import recording
from fluxbench.bench.recording import Context
from fluxbench.records.line import parse
from fluxbench.records.schema import BURST, SUSTAINED, Cupti, Flag, Memory, Telemetry
from fluxbench.records.status import FlagKind, Status
from fluxbench.stats.intervals import mean_ratios, means, medians, quotients

H200 = dataclasses.replace(GPU, name="NVIDIA H200", sm_clock_max_mhz=1980, memory_clock_max_mhz=3201)


def test_a_record_holds_both_regimes_with_the_ratio_of_each() -> None:
    made = record(seen())
    burst, sustained = regimes(made)
    assert (made.status, made.reason, made.timing) == (Status.PASSED, None, sustained)
    assert (sustained.median_ms, sustained.ratio) == pytest.approx((1.35, 0.9))
    assert (burst.median_ms, burst.ratio) == pytest.approx((0.8, 0.8))
    assert (burst.samples_ms, sustained.samples_ms) == (((0.8,) * 4,) * 3, ((1.35,) * 4,) * 3)
    assert (sustained.discarded, burst.discarded) == (6, 0)  # two windows of each block's warm-up
    assert (sustained.reference_variant, sustained.converged, burst.converged) == (REFERENCE, True, True)
    assert made.cupti == Cupti(events_ms=0.8, kernels_ms=0.79, span_ms=0.8, parts_ms={"attention": 0.79})
    assert (made.launch_ms, made.flags) == (0.05, (NO_ENERGY,))
    assert parse(made.to_json()) == made
    burst, sustained = regimes(record(seen(), REFERENCE))
    assert (sustained.ratio, sustained.ratio_ci95, burst.ratio, burst.ratio_ci95) == (1.0, (1.0, 1.0), 1.0, (1.0, 1.0))
    assert sustained.samples_ms == ((1.5,) * 4,) * 3  # two samples of each of the reference's two blocks


def test_sustained_times_are_means_and_all_of_a_timing_follows_from_samples_of_its_cell() -> None:
    blocks_ms = [(9.0, 9.0, *[1.0] * 4, 2.0, 3.0 + 0.1 * process) for process in range(3)]
    trials = (of_process(p, burst_ms=(1.0, 1.0, 4.0), block_ms=blocks_ms[p]) for p in range(3))
    burst, sustained = regimes(record(seen([trial for of_one in trials for trial in of_one])))
    assert (burst.statistic, burst.median_ms) == ("median", 1.0)
    assert (sustained.statistic, sustained.samples_ms[0]) == ("mean", (1.0, 1.0, 2.5))
    assert sustained.median_ms == pytest.approx(fmean([4.5 / 3, 4.55 / 3, 4.6 / 3]), abs=1e-3)
    own, _ = [one for [one] in means([[sustained.samples_ms], [sustained.reference_ms]])]
    [[ratio]] = mean_ratios([[sustained.samples_ms]], [[sustained.reference_ms]])
    assert own.high > 1.001 * own.low
    assert (sustained.ci95_ms, sustained.ratio, sustained.ratio_ci95) == (
        (own.low, own.high), ratio.value, (ratio.low, ratio.high),
    )  # fmt: skip
    [ratio] = medians([quotients(burst.samples_ms, burst.reference_ms)])
    assert (burst.ratio, burst.ratio_ci95) == (ratio.value, (ratio.low, ratio.high))


@pytest.mark.parametrize("apart", [False, True])
def test_processes_of_other_packages_have_no_time_together(apart: bool) -> None:
    events: list[Any] = [checked("flex")]
    for process in range(3):
        trials = timed(REFERENCE, process, began=100.0 * process), timed("flex", process, began=100.0 * process + 50)
        ready = READY | ({"versions": {"torch": "2.13.0", "triton": "3.6.0"}} if process == 2 else {})
        events += [ready, *trials]
    context = Context(cell=CELL, device=GPU, processes=3, fingerprint={}, measured_at="", powers={})
    of = collected(events)
    if apart:  # two batches of a cell
        of, last = collected(events[:-3]), collected(events[-3:])
        of.join(last)
    [made] = recording.of_cell(of, ["flex"], [TINY], context)
    said = "packages have changed while it was measured: triton none and 3.6.0"
    assert (made.status, made.reason, made.timings) == (Status.ERROR, said, {})


def test_a_record_names_what_it_is_of() -> None:
    memory = {"inputs_bytes": 9, "kept_bytes": 0, "allocated_bytes": 8, "reserved_bytes": 10, "call_bytes": 7}
    right = checked("torch_math_compile_d", memory=memory, compile_s=1.5, graph_breaks=2, detail="plan 7")
    trials = [timed(REFERENCE), timed("torch_math_compile_d", began=10)]
    made = record(collected([READY, right, *trials], reported()), "torch_math_compile_d", processes=1)
    assert (made.variant, made.kernel, made.form, made.precision_class) == (
        "torch_math_compile_d", "torch_math", "compile_d", "exact",
    )  # fmt: skip
    assert (made.notebook, made.cell, made.workload, made.measured_at) == ("flux", "sdpa", TINY, "2026-01-31T12:00:00Z")
    assert made.memory == Memory(**memory)
    assert (made.peak_memory_bytes, made.compile_s, made.graph_breaks, made.detail) == (7, 1.5, 2, "plan 7")
    assert made.fingerprint == {"a": "b"}
    assert made.versions == {"torch": "2.13.0", "driver": GPU.driver}
    assert made.errors["out"].rel_l2 == ERRORS["rel_l2"]


def test_a_ratio_is_against_the_reference_before_and_after_and_in_the_same_round() -> None:
    trials = [
        timed(REFERENCE, began=0.0, block_ms=(1.0,) * 6),
        timed("torch_math", began=10.0, block_ms=(2.0,) * 6),
        timed(REFERENCE, began=20.0, block_ms=(3.0,) * 6, burst_ms=None),
        timed("torch_native", began=30.0, block_ms=(6.0,) * 6),
        timed(REFERENCE, began=40.0, block_ms=(5.0,) * 6, burst_ms=None),
    ]
    of = seen(trials)
    of.checked["torch_native", "tiny"] = of.checked["torch_math", "tiny"]
    ratios = [regimes(record(of, name, processes=1))[1].ratio for name in ("torch_math", "torch_native")]
    assert ratios == pytest.approx([2 / 2, 6 / 4])
    clock = (1.0, 2.0, 3.0, 4.0)  # slows both alike from round to round
    burst, _ = regimes(record(seen(burst_ms=[0.8 * slow for slow in clock], beside_ms=clock)))
    assert (burst.ratio, *burst.ratio_ci95) == pytest.approx((0.8, 0.8, 0.8))
    assert burst.ci95_ms[1] > 1.5 * burst.ci95_ms[0]
    assert burst.converged is False


def test_a_time_has_converged_where_both_its_ratio_and_its_median_are_known_well_enough() -> None:
    """Of a burst that is noisy, of one whose reference is as noisy in the same rounds, and of one that is not."""
    noisy, calm = ([1 - s, 1 + s, 1 - s / 2, 1 + s / 2] * 6 for s in (0.02, 0.0005))
    for times, beside, converged in ((noisy, 1.0, False), (noisy, noisy, False), (calm, 1.0, True)):
        assert regimes(record(seen(burst_ms=times, beside_ms=beside)))[0].converged is converged


def test_each_workload_has_its_own_record_in_one_pass() -> None:
    trials = [
        event
        for process in range(3)
        for event in (
            timed(REFERENCE, process, began=PROCESS_S * process, workloads={"tiny": 1.0, "tinier": 0.5}),
            timed("torch_math", process, began=PROCESS_S * process + 10, workloads={"tiny": 2.0, "tinier": 0.25}),
        )
    ]
    context = Context(cell=CELL, device=GPU, processes=3, fingerprint={}, measured_at="", powers={})
    tiny, tinier, other = recording.of_cell(seen(trials), ["torch_math"], [TINY, TINIER, tokens("other", 8)], context)
    assert [timing.median_ms for timing in (*regimes(tiny), *regimes(tinier))] == [2.0, 3.0, 0.25, 0.375]
    assert [timing.ratio for timing in (*regimes(tiny), *regimes(tinier))] == pytest.approx([1.0, 2.0, 1.0, 0.5])
    assert (other.status, other.reason) == (
        Status.ERROR,
        "timed in 0 of 3 processes; the reference variant failed in the others",
    )


def test_telemetry_is_of_the_ranked_samples_and_energy_is_power_times_time() -> None:
    def clock_mhz(time_s: float) -> float:
        of_block = 10 + BLOCK_AFTER_S + 0.2  # after the warm-up
        return 1500.0 if of_block <= time_s % PROCESS_S < 13 else 1980.0

    made = record(seen(device_reports=reported(clock_mhz=clock_mhz)))
    assert made.telemetry == {
        BURST: Telemetry(sm_clock_mhz=1980.0, power_w=300.0, temperature_c=50.0),
        SUSTAINED: Telemetry(sm_clock_mhz=1500.0, power_w=300.0, temperature_c=50.0),
    }
    made = record(seen(), powers={("torch_math", TINY.name): (400.0, 10.0)})
    assert made.energy_mj == pytest.approx(400.0 * 1.35)
    assert made.energy_ci95_mj == pytest.approx((390.0 * 1.35, 410.0 * 1.35))
    assert (made.telemetry[SUSTAINED].power_w, made.telemetry[BURST].power_w) == (400.0, 300.0)
    assert made.flags == ()
    vague = record(seen(), powers={("torch_math", TINY.name): (400.0, 500.0)}).energy_ci95_mj
    assert vague == pytest.approx((0.0, 900.0 * 1.35))
    assert record(seen(), powers={(REFERENCE, TINY.name): (400.0, 10.0)}).energy_mj is None


def test_what_a_variant_took_of_the_device_holds_the_rests_and_its_share_of_the_reference() -> None:
    own, anchor = 2.0, 1.6
    assert record(seen()).device_s == pytest.approx(3 * (own + 2 * anchor))
    assert record(seen(), REFERENCE).device_s == pytest.approx(3 * anchor)
    shared = [
        timed(name, began=began, workloads=("tiny", "tinier"))
        for began, name in ((0.0, REFERENCE), (10.0, "torch_math"), (20.0, "torch_native"))
    ]
    assert record(seen(shared), processes=1).device_s == pytest.approx((1.6 + 1.6 / 2) / 2)


# What cannot be, and what is missing.

REAL = tokens("tiny", 4608, heads=24, head_dim_qk=128, head_dim_v=128)


def test_a_time_faster_than_the_device_can_be_is_an_error_with_the_arithmetic() -> None:
    fast: list[tuple[dict[str, Any], str, float]] = [
        ({"burst_ms": (0.2,) * 4}, BURST, 0.2),
        ({"block_ms": (0.1,) * 6}, SUSTAINED, 0.1),
    ]
    for fields, regime, ms in fast:
        made = record(seen(**fields), device=H200, workload=REAL, powers={("torch_math", TINY.name): (400.0, 10.0)})
        assert (made.status, made.timings, made.energy_mj) == (Status.ERROR, {}, None)
        said = f"{regime}: faster than the device can be: {ms} ms measured, but 2.61e+11 FLOP / "
        assert str(made.reason).startswith(said)
        assert made.flags == (Flag(kind=FlagKind.FASTER_THAN_ROOFLINE, regime=regime, value=ms),)
    assert record(seen(), device=H200, workload=REAL).status is Status.PASSED


def test_what_failed_has_no_times_whatever_was_timed_and_says_why() -> None:
    of = seen()
    off = {"out": {**ERRORS, "rel_l2": 0.5}}
    of.add(collected([failed("torch_math", errors=off)]).failed["torch_math", "tiny"])
    of.fail("torch_math", "tiny", Status.TIMEOUT, "later")  # the first failure stands
    made = record(of)
    assert (made.status, made.reason, made.timings, made.telemetry) == (Status.INCORRECT, "it is wrong", {}, {})
    assert made.errors["out"].rel_l2 == 0.5
    assert record(of, REFERENCE).status is Status.PASSED
    of = seen()
    of.fail("torch_math", "tiny", Status.ERROR, "it raised")  # without errors, those of its check are kept
    assert record(of).errors["out"].rel_l2 == ERRORS["rel_l2"]
    made = record(seen([t for p in range(2) for t in of_process(p)]))
    assert (made.status, made.timings, made.flags) == (Status.ERROR, {}, ())
    assert made.reason == "timed in 2 of 3 processes; the reference variant failed in the others"


def test_a_process_with_another_reference_is_left_out_of_the_ratio_and_flagged() -> None:
    trials = [t for p in range(2) for t in of_process(p)]
    begin, other = 2 * PROCESS_S, "torch_native"
    trials += [
        timed(other, 2, began=begin, reference=other, burst_ms=(4.0,) * 4, beside_ms=4.0, block_ms=(7.0,) * 6),
        timed("torch_math", 2, began=begin + 10, reference=other, burst_ms=(0.8,) * 4, beside_ms=4.0),
    ]
    made = record(seen(trials))
    burst, sustained = regimes(made)
    assert (burst.ratio, sustained.ratio) == pytest.approx((0.8, 0.9))
    assert (burst.reference_variant, burst.processes, sustained.processes) == (REFERENCE, 3, 3)
    assert flag(made, FlagKind.OTHER_REFERENCE) == (None, 1, None)
