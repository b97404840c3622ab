"""How the attempt to measure ended. Without msgspec, which workers do not have."""

from __future__ import annotations

import enum


class Status(enum.StrEnum):
    """How the attempt to measure ended. Only `PASSED` holds timings."""

    PASSED = "PASSED"
    INCORRECT = "INCORRECT"  # it ran and was wrong
    UNSUPPORTED = "UNSUPPORTED"  # this device or shape cannot
    UNAVAILABLE = "UNAVAILABLE"  # the package cannot be had here
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    TIMEOUT = "TIMEOUT"
    CRASHED = "CRASHED"
    ERROR = "ERROR"


class FlagKind(enum.StrEnum):
    """What was not as it should be, or could not be known, of a measurement; `report.flags` words it."""

    NOT_SETTLED = "not_settled"  # value: processes in which the speed had not settled
    DISCARDED = "discarded"  # value: share of samples that were taken out of the regime; detail: why
    KEPT_OUT_OF_REGIME = "kept_out_of_regime"  # the same where half or more of a process were, so that they count
    CUPTI_DIFFERS = "cupti_differs"  # value: by which share the events lie outside of what the profiler saw
    NO_CUPTI = "no_cupti"  # the profiler recorded no kernels
    NOT_PROFILED = "not_profiled"  # value: processes of which it is not known which kernels ran
    LAUNCH_BOUND = "launch_bound"  # value: processes in which the device waited for the host
    REPLAYED = "replayed"  # CUDA graphs were timed; value: ms of a call that the host launches, a mean of processes
    NOT_REPLAYED = "not_replayed"  # value: processes in which the host launched calls; detail: why no CUDA graph
    OTHER_REFERENCE = "other_reference"  # value: processes that the ratio leaves out: another variant was the reference
    SLEPT = "slept"  # value: seconds
    NO_TELEMETRY = "no_telemetry"  # the driver reports no clock, power or temperature
    NO_ENERGY = "no_energy"  # the driver counts no energy, or too coarsely
    EARLY = "early"  # one process, before all was checked: of a build that goes on, never of a result
    SHARED_DEVICE = "shared_device"  # detail: the other processes
    FASTER_THAN_ROOFLINE = "faster_than_roofline"  # value: ms; the record is an ERROR
    SKIPS_WORK = "skips_work"  # value: time on repeated inputs over that on new ones; the record is an ERROR
    WORKS_ASIDE = "works_aside"  # value: how long outside of calls, over the time in them; the record is an ERROR
