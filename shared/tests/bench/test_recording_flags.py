"""What a record flags: a device that waited, slept, throttled or was shared, and what nobody could read."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import CPU
from recorded import NO_ENERGY, flag, of_process, record, regimes, reported, seen
from sample_events import READY, REFERENCE, checked, collected

from fluxbench.records.schema import BURST, SUSTAINED, Cupti, Flag
from fluxbench.records.status import FlagKind, Status
from fluxbench.timing.telemetry import Reading


@pytest.mark.parametrize(("ahead_ms", "flagged"), [(0.2, True), (1.3, True), (1.4, False)])
def test_a_block_in_which_the_device_waited_for_the_host_is_launch_bound(ahead_ms: float, flagged: bool) -> None:
    trials = [t for p in range(3) for t in of_process(p, ahead_ms=ahead_ms if p else 50.0)]  # a call takes 1.35 ms
    assert flag(record(seen(trials)), FlagKind.LAUNCH_BOUND) == ((SUSTAINED, 2, None) if flagged else ())
    assert flag(record(seen(trials), device=CPU), FlagKind.LAUNCH_BOUND) == ()
    filled = [t for p in range(3) for t in of_process(p, ahead_ms=0.2, cupti=None if p else {"tiny": (1.33, 1.34)})]
    assert flag(record(seen(filled)), FlagKind.LAUNCH_BOUND) == ()  # a call that waits for the device, as for a copy


def test_a_record_of_cuda_graphs_has_the_launched_time_of_the_processes_that_took_it() -> None:
    def replayed(process: int, launched_ms: float | None) -> list[dict[str, Any]]:
        trials = of_process(process)
        for one in trials:
            launched = {} if launched_ms is None else dict.fromkeys(one["blocks"][0]["samples_ms"], launched_ms)
            one["blocks"][0] |= {"replayed": True, "launched_ms": launched}
        return trials

    for known, value in (((1.5, None, None), 1.5), ((1.5, 1.6, 1.7), 1.6), ((None, None, None), None)):
        made = record(seen([t for p, ms in enumerate(known) for t in replayed(p, ms)]))
        assert flag(made, FlagKind.REPLAYED) == (SUSTAINED, value, None)
        assert flag(made, FlagKind.NOT_REPLAYED) == ()
    trials = [t for p in range(3) for t in of_process(p)]
    trials[1]["blocks"][0] |= {"refused": "no graph here"}  # the others do as the first process
    made = record(seen(trials))
    assert flag(made, FlagKind.NOT_REPLAYED) == (SUSTAINED, 3, "no graph here")
    assert flag(made, FlagKind.REPLAYED) == ()


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
    trials[-1] |= {"slept_s": 7.0, "blocks": [{**trials[-1]["blocks"][0], "settled": False}]}  # of the reference
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
