"""From what workers wrote to records: both regimes, what they are against, and what is flagged."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from statistics import fmean
from typing import Any

import pytest
from fakes import CPU, GPU, TINIER, TINY, tokens
from sample_events import BLOCK_AFTER_S, ERRORS, READY, REFERENCE, checked, collected, failed, parsed, readings, timed

from fluxbench.bench import recording, samples, timings
from fluxbench.bench.collected import Collected
from fluxbench.bench.recording import Context
from fluxbench.device.model import Device
from fluxbench.environments.cell import Cell
from fluxbench.operations.workload import Workload
from fluxbench.records.line import parse
from fluxbench.records.method import METHOD_VERSION
from fluxbench.records.schema import BURST, SUSTAINED, Cupti, Flag, Memory, Record, Telemetry, Timing
from fluxbench.records.status import FlagKind, Status
from fluxbench.stats.intervals import mean_ratios, means, medians, quotients
from fluxbench.timing.telemetry import Reading

CELL = Cell(notebook="flux", id="sdpa", study="flux", packages=("torch==2.13.0",), source_sha256="0" * 64)
H200 = dataclasses.replace(GPU, name="NVIDIA H200", sm_clock_max_mhz=1980, memory_clock_max_mhz=3201)
PROCESS_S = 1000.0  # from the begin of one process to that of the next
CUPTI = {"tiny": (0.79, 0.8)}
NO_ENERGY = Flag(kind=FlagKind.NO_ENERGY, regime=SUSTAINED)


def of_process(process: int, **fields: Any) -> list[dict[str, Any]]:
    """Return the trials of a process: the reference, a variant 20% faster in burst and 10% sustained, and it again."""
    begin = PROCESS_S * process
    own = {"burst_ms": (0.8,) * 4, "block_ms": (9.0, 9.0, *[1.35] * 8), "cupti": None if process else CUPTI}
    return [
        timed(REFERENCE, process, began=begin, cupti=None if process else {"tiny": (1.0, 1.0)}),
        timed("torch_math", process, began=begin + 10, **{**own, **fields}),
        timed(REFERENCE, process, began=begin + 20, burst_ms=None),
    ]


def reported(**fields: Any) -> list[Reading]:
    """Return what the device reports in three processes: everything but its energy."""
    return [r for p in range(3) for r in readings(PROCESS_S * p, PROCESS_S * p + 25, step_s=0.05, **fields)]


def seen(
    trials: Iterable[dict[str, Any]] | None = None, device_reports: list[Reading] | None = None, **fields: Any
) -> Collected:
    """Return what is collected of three processes; `fields` change the trials of the variant."""
    right = [checked(variant, workload) for variant in (REFERENCE, "torch_math") for workload in ("tiny", "tinier")]
    written: list[dict[str, Any]] = []
    for event in [t for p in range(3) for t in of_process(p, **fields)] if trials is None else trials:
        if not written or written[-1].get("process") != event["process"]:
            written.append(READY)
        written.append(event)
    return collected([*right, *written], reported() if device_reports is None else device_reports)


def record(
    of: Collected,
    variant: str = "torch_math",
    *,
    workload: Workload = TINY,
    device: Device = GPU,
    processes: int = 3,
    powers: dict[str, tuple[float, float]] | None = None,
) -> Record:
    context = Context(
        cell=CELL, device=device, processes=processes, fingerprint={"a": "b"}, measured_at="2026-01-31T12:00:00Z",
        powers=powers or {},
    )  # fmt: skip
    [made] = recording.of_cell(of, [variant], [workload], context)
    return made


def regimes(made: Record) -> tuple[Timing, Timing]:
    """Return the timings of burst and sustained."""
    assert made.burst is not None
    assert made.sustained is not None
    return made.burst, made.sustained


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


def test_variants_of_one_cell_may_have_been_measured_by_unequally_many_processes() -> None:
    trials = [
        event
        for process in range(4)
        for event in (
            timed(REFERENCE, process, began=PROCESS_S * process, block_ms=(1.0 + 0.001 * process,) * 10),
            *([timed("torch_math", process, began=PROCESS_S * process + 10)] if process < 3 else []),
        )
    ]
    of = seen(trials)
    math, reference = record(of), record(of, REFERENCE)
    assert [regimes(one)[1].processes for one in (math, reference)] == [3, 4]
    assert regimes(math)[1].ci95_ms[1] > regimes(math)[1].median_ms  # what the reference's processes differ by
    short = record(of, processes=4)
    assert (short.status, short.reason) == (
        Status.ERROR,
        "timed in 3 of 4 processes; the reference variant failed in the others",
    )


def test_how_well_sustained_means_are_known_can_be_asked_while_a_cell_is_measured() -> None:
    of = seen([t for p in range(2) for t in of_process(p, block_ms=(1.35 + 0.05 * p,) * 10)])
    first = timings.widths(of)
    for event in (READY, *of_process(2, block_ms=(1.375,) * 10)):
        of.add(parsed(event))
    assert first.keys() == {REFERENCE, "torch_math"}
    then = timings.widths(of)["torch_math"]["tiny"]
    assert first["torch_math"]["tiny"].half > 1.5 * then.half > 0
    made = regimes(record(of))[1]
    assert then.half == pytest.approx((made.ci95_ms[1] - made.ci95_ms[0]) / 2 / made.median_ms)
    assert (then.enough, made.converged) == (False, False)
    assert [timings.sustained_within(ratio) for ratio in (0.5, 1.05, 1.06)] == [0.005, 0.005, 0.015]


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
    assert (made.method_version, made.fingerprint) == (METHOD_VERSION, {"a": "b"})
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
    made = record(seen(), powers={"torch_math": (400.0, 10.0)})
    assert made.energy_mj == pytest.approx(400.0 * 1.35)
    assert made.energy_ci95_mj == pytest.approx((390.0 * 1.35, 410.0 * 1.35))
    assert (made.telemetry[SUSTAINED].power_w, made.telemetry[BURST].power_w) == (400.0, 300.0)
    assert made.flags == ()
    vague = record(seen(), powers={"torch_math": (400.0, 500.0)}).energy_ci95_mj
    assert vague == pytest.approx((0.0, 900.0 * 1.35))
    assert record(seen(), powers={REFERENCE: (400.0, 10.0)}).energy_mj is None


def test_what_a_variant_took_of_the_device_holds_the_rests_and_its_share_of_the_reference() -> None:
    own, anchor = 2.0, 1.6
    assert record(seen()).device_s == pytest.approx(3 * (own + 2 * anchor))
    assert record(seen(), REFERENCE).device_s == pytest.approx(3 * anchor)
    shared = [
        timed(name, began=began, workloads=("tiny", "tinier"))
        for began, name in ((0.0, REFERENCE), (10.0, "torch_math"), (20.0, "torch_native"))
    ]
    assert record(seen(shared), processes=1).device_s == pytest.approx((1.6 + 1.6 / 2) / 2)


def flag(made: Record, kind: FlagKind) -> tuple[object, ...]:
    """Return what the only flag of a kind holds; nothing where there is none."""
    flags = [each for each in made.flags if each.kind is kind]
    assert len(flags) <= 1
    return (flags[0].regime, flags[0].value, flags[0].detail) if flags else ()


@pytest.mark.parametrize(("ahead_ms", "flagged"), [(0.2, True), (1.3, True), (1.4, False)])
def test_a_block_in_which_the_device_waited_for_the_host_is_launch_bound(ahead_ms: float, flagged: bool) -> None:
    trials = [t for p in range(3) for t in of_process(p, ahead_ms=ahead_ms if p else 50.0)]  # a call takes 1.35 ms
    assert flag(record(seen(trials)), FlagKind.LAUNCH_BOUND) == ((SUSTAINED, 2, None) if flagged else ())
    assert flag(record(seen(trials), device=CPU), FlagKind.LAUNCH_BOUND) == ()


def test_the_launched_time_of_calls_in_rows_and_why_others_have_no_row_are_flagged() -> None:
    def in_rows(process: int, **fields: Any) -> list[dict[str, Any]]:
        events = of_process(process, block_ms=None)[:2]
        events[0]["block"] = None
        events[1]["burst"] |= fields
        return events

    rows = [t for p, ms in enumerate((0.9, 1.0, 1.1)) for t in in_rows(p, calls={"tiny": 7}, launched_ms={"tiny": ms})]
    of = seen(rows)
    made = record(of)
    assert flag(made, FlagKind.REPLAYED) == (BURST, 1.0, None)
    assert made.burst is not None
    assert made.burst.median_ms == 0.8
    series = json.loads(samples.to_json(of))["series"]
    assert [one["calls_per_sample"] for one in series if "launched_ms" in one] == [7, 7, 7]
    refused = record(seen([t for p in range(3) for t in in_rows(p, refused={"tiny": "it waits"} if p else {})]))
    assert flag(refused, FlagKind.NOT_REPLAYED) == (BURST, 2, "it waits")
    assert flag(refused, FlagKind.REPLAYED) == ()


def test_what_the_profiler_was_not_asked_for_is_no_flag() -> None:
    def trials(**fields: Any) -> list[dict[str, Any]]:
        return [{**t, **fields} for p in range(3) for t in of_process(p, cupti=None)]

    assert flag(record(seen(trials())), FlagKind.NO_CUPTI) == (BURST, None, None)
    assert flag(record(seen(trials(unprofiled=["tiny"]))), FlagKind.NO_CUPTI) == ()
    assert flag(record(seen(trials(unprofiled=["tinier"]))), FlagKind.NO_CUPTI) == (BURST, None, None)


def test_what_did_not_settle_and_a_machine_that_slept_or_was_shared_are_flagged_and_kept() -> None:
    of = seen([t for p in range(3) for t in of_process(p, settled=p == 1)])
    of.others = ["trainer (pid 7)", "desktop (pid 9)"]
    made = record(of)
    assert made.status is Status.PASSED
    assert flag(made, FlagKind.NOT_SETTLED) == (SUSTAINED, 2, None)
    assert flag(made, FlagKind.SHARED_DEVICE) == (None, None, "trainer (pid 7); desktop (pid 9)")
    for slept_s, flagged in ((30.54, (None, 30.5, None)), (0.05, ())):
        made = record(seen([t for p in range(3) for t in of_process(p, slept_s=slept_s * (p == 2))]))
        assert flag(made, FlagKind.SLEPT) == flagged
    trials = [t for p in range(3) for t in of_process(p)]
    trials[-1] |= {"slept_s": 7.0, "block": {**trials[-1]["block"], "settled": False}}  # of the reference
    made = record(seen(trials), REFERENCE)
    assert flag(made, FlagKind.NOT_SETTLED) == (SUSTAINED, 1, None)
    assert flag(made, FlagKind.SLEPT) == (None, 7.0, None)
    assert flag(record(seen(trials)), FlagKind.SLEPT) == ()


@pytest.mark.parametrize("silent", [[], reported(clock_mhz=None, power_w=None)])
def test_where_nvml_is_denied_what_is_unknown_is_flagged_and_nothing_is_made_up(silent: list[Reading]) -> None:
    made = record(seen(device_reports=silent))
    state = made.telemetry[SUSTAINED]
    assert (made.status, state.sm_clock_mhz, state.power_w, made.energy_mj) == (Status.PASSED, None, None, None)
    assert made.flags == (Flag(kind=FlagKind.NO_TELEMETRY), NO_ENERGY)
    assert flag(record(seen(device_reports=silent), device=CPU), FlagKind.NO_TELEMETRY) == ()


def test_events_that_differ_from_the_profiler_by_more_than_a_percent_are_flagged() -> None:
    for kernels_ms, span_ms, value in (
        *((0.79, 0.8, None), (0.79, 0.793, None), (0.5, 1.0, None)),  # within what it saw, or by 0.9%
        *((0.76, 0.76, 0.0526), (1.0, 1.0, -0.2)),
    ):
        trials = [t for p in range(3) for t in of_process(p, cupti=None if p else {"tiny": (kernels_ms, span_ms)})]
        assert flag(record(seen(trials)), FlagKind.CUPTI_DIFFERS) == ((BURST, value, None) if value else ())
    made = record(seen(cupti=None))
    assert (made.cupti, flag(made, FlagKind.NO_CUPTI)) == (None, (BURST, None, None))


def test_samples_out_of_the_regime_are_discarded_unless_few_are_in_it() -> None:
    def reasons(time_s: float) -> tuple[str, ...]:
        return ("hw_thermal_slowdown",) if 10.09 < time_s < 10.11 else ()  # in the second round of the first process

    made = record(seen(device_reports=reported(reasons=reasons)))
    burst, _ = regimes(made)
    assert ([len(part) for part in burst.samples_ms], burst.discarded) == ([3, 4, 4], 1)
    assert flag(made, FlagKind.DISCARDED) == (BURST, 0.25, "hw_thermal_slowdown")
    assert flag(made, FlagKind.KEPT_OUT_OF_REGIME) == ()
    made = record(seen(device_reports=reported(reasons=lambda time_s: ("sw_thermal_slowdown",))))
    assert [len(part) for part in regimes(made)[1].samples_ms] == [4, 4, 4]
    assert [(each.regime, each.value) for each in made.flags if each.kind is FlagKind.KEPT_OUT_OF_REGIME] == [
        (BURST, 1.0),
        (SUSTAINED, 0.8),  # of ten windows, two are warm-up
    ]
    assert flag(made, FlagKind.DISCARDED) == ()


def test_a_cpu_is_not_flagged_for_what_it_never_reports() -> None:
    right = checked("torch_math", clocks=[0.805, 0.8])
    of = collected([right, READY, *(t for t in of_process(0))])
    made = record(of, device=CPU, processes=1)
    assert (made.flags, made.launch_ms, "driver" in made.versions) == ((), None, False)
    assert made.cupti == Cupti(events_ms=0.805, kernels_ms=0.8, span_ms=0.8)


# What cannot be, and what is missing.

REAL = tokens("tiny", 4608, heads=24, head_dim_qk=128, head_dim_v=128)


def test_a_time_faster_than_the_device_can_be_is_an_error_with_the_arithmetic() -> None:
    fast: list[tuple[dict[str, Any], str, float]] = [
        ({"burst_ms": (0.2,) * 4}, BURST, 0.2),
        ({"block_ms": (0.1,) * 6}, SUSTAINED, 0.1),
    ]
    for fields, regime, ms in fast:
        made = record(seen(**fields), device=H200, workload=REAL, powers={"torch_math": (400.0, 10.0)})
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
