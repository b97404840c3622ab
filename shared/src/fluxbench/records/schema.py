"""The record: what was measured of one variant at one workload. Schema 2.

One JSON object a line in `<cell>.jsonl`. Times are in milliseconds, memory in bytes, energy in millijoules; the unit
ends the name. msgspec refuses unknown fields, numbers that are not finite, and booleans for numbers. `records.line`
reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from fluxbench.operations.precision import CLASSES
from fluxbench.operations.workload import Workload
from fluxbench.records.status import FlagKind, Status

SCHEMA = 2
BURST, SUSTAINED = "burst", "sustained"
SHORT_MS = 0.5  # a call that takes less is not timed singly where others are in rows, which those of 1 ms need not be
CUPTI_AGREES_WITHIN = 0.01  # largest difference between events and the profiler, as a share, at which they agree
FILLED_FROM = 0.97  # of a sustained time, that profiled kernels of a rested device take: so it waits for no host
LONGEST_NAME = 256  # characters

Name = Annotated[str, Meta(max_length=LONGEST_NAME)]
Text = Annotated[str, Meta(max_length=1 << 16)]
Positive = Annotated[float, Meta(gt=0, le=1e15)]
NotNegative = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=0)]
Interval = tuple[Positive, Positive]  # ends of a 95% interval

_ENCODER = msgspec.json.Encoder()


class RecordError(ValueError):
    """A record breaks the schema; the message says which field, the rule and the value."""


class _Strict(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A value whose fields are checked when it is read."""


class Flag(_Strict, frozen=True, kw_only=True):
    """Something that was not as it should be, or could not be known. What value and detail are: see `FlagKind`."""

    kind: FlagKind
    regime: Name | None = None
    value: float | None = None
    detail: Text | None = None


class Errors(_Strict, frozen=True, kw_only=True):
    """Errors of one output against the float64 reference, on the kind of inputs where it takes most of its budget."""

    rel_l2: NotNegative | None  # ||out - ref|| / ||ref||; None where the output is not finite
    max_abs: NotNegative | None
    mean_abs: NotNegative | None
    mse: NotNegative | None
    cosine: float | None
    nan_count: Count  # elements that are NaN or infinite
    budget_rel_l2: NotNegative  # the largest rel_l2 that is accepted
    head_budget_share: NotNegative | None = None  # relative L2 error of the worst head, over what a head may err
    row_budget_share: NotNegative | None = None  # of the worst row, likewise
    rel_l2_by_inputs: dict[Name, NotNegative | None] = {}  # by kind of inputs; None where the output is not finite


class Timing(_Strict, frozen=True, kw_only=True):
    """Time of a call in one regime.

    A `burst` sample is a single call on a device that rested before. A `sustained` sample is the mean of calls over
    0.1 s, back to back, in the state that this very kernel brings the device to; on a CPU of those of a round, in which
    they alternate with the reference's. Times, ratios and intervals follow from the samples by `stats.intervals`: by
    `medians` or by `means`, as `statistic` says. Before method 7 sustained times were medians on a GPU too.
    """

    median_ms: Positive  # or the mean
    statistic: Literal["median", "mean"] = "median"
    ci95_ms: Interval
    samples_ms: tuple[tuple[Positive, ...], ...]  # those that are ranked, a sequence for each fresh process
    # Of the reference beside them, by the same processes: in the same rounds, or sustained on a GPU of its blocks. A
    # sequence is empty where a process had another reference; there is none in the reference's own record and before
    # method 7.
    reference_ms: tuple[tuple[Positive, ...], ...] = ()
    reference_variant: Name
    ratio: Positive  # over the reference's time: under 1 is faster
    ratio_ci95: Interval
    winsorized: bool = False  # of medians: the interval is by the estimator of 2026-11-29, `stats.intervals.medians`
    apart: bool = False  # of means: by the estimator of 2026-11-30, `stats.intervals.means` with `units`
    discarded: Count = 0  # samples that are not ranked: from the warm-up, or out of the regime
    converged: bool | None = None  # False: the caps of time and processes came before the precision asked for

    def __post_init__(self) -> None:
        """Raise `RecordError` where samples are missing or an interval does not hold its estimate."""
        if not self.samples_ms or not all(self.samples_ms):
            raise RecordError("samples_ms must hold a sample of each process, and of at least one")
        if self.reference_ms and len(self.reference_ms) != len(self.samples_ms):
            processes = f"{len(self.reference_ms)} for {len(self.samples_ms)} processes"
            raise RecordError(f"reference_ms must hold a sequence for each of samples_ms, got {processes}")
        for name, its in (("winsorized", "median"), ("apart", "mean")):
            if getattr(self, name) and self.statistic != its:
                raise RecordError(f"{name} must be of {its}s, got a {self.statistic}")
        for name, middle, (low, high) in (
            ("ci95_ms", self.median_ms, self.ci95_ms),
            ("ratio_ci95", self.ratio, self.ratio_ci95),
        ):
            if not low <= middle <= high:
                raise RecordError(f"{name} must hold its estimate, got [{low}, {high}] around {middle}")

    @property
    def processes(self) -> int:
        """How many fresh processes the samples come from."""
        return len(self.samples_ms)

    @property
    def count(self) -> int:
        """How many samples are ranked."""
        return sum(map(len, self.samples_ms))


class Cupti(_Strict, frozen=True, kw_only=True):
    """The CUPTI cross-check of a burst call, in ms: device events, and the profiler's times of the kernels in it.

    An event pair spans at least the sum of the kernels' times, and at most the time from the first one's begin to the
    last one's end. On a CPU the monotonic clock and the times of torch's operators.
    """

    events_ms: Positive
    kernels_ms: Positive
    span_ms: Positive
    parts_ms: dict[Name, NotNegative] = {}  # of kernels_ms, by what they do: the operation's parts

    @property
    def difference(self) -> float:
        """By which share the events lie outside of what the profiler saw; 0 within, negative where shorter."""
        if self.events_ms > self.span_ms:
            return self.events_ms / self.span_ms - 1
        return min(0.0, self.events_ms / self.kernels_ms - 1)


class Telemetry(_Strict, frozen=True, kw_only=True):
    """Median clock, power and temperature while the samples were taken; None where the device does not report it."""

    sm_clock_mhz: NotNegative | None
    power_w: NotNegative | None
    temperature_c: float | None
    throttle_reasons: tuple[Name, ...] = ()


class Memory(_Strict, frozen=True, kw_only=True):
    """Bytes that one warm call takes of a GPU, see `timing.memory`: without its inputs, preparation included."""

    inputs_bytes: Count
    kept_bytes: Count  # what preparation leaves: before a backward pass, all that the forward pass keeps for it
    allocated_bytes: Count  # peak, outputs included
    reserved_bytes: Count  # the same with what torch's allocator took from the device beyond it
    call_bytes: Count  # peak of the call without its preparation

    def __post_init__(self) -> None:
        """Raise `RecordError` where a part is larger than the whole."""
        if not max(self.kept_bytes, self.call_bytes) <= self.allocated_bytes <= self.reserved_bytes:
            raise RecordError(
                f"kept_bytes and call_bytes must not exceed allocated_bytes, nor that reserved_bytes: {self}"
            )

    @property
    def total_bytes(self) -> int:
        """Inputs, and the peak of what was allocated beside them."""
        return self.inputs_bytes + self.allocated_bytes

    @property
    def needed_bytes(self) -> int:
        """What torch needs of the device: inputs, and the peak of what it reserved beside them."""
        return self.inputs_bytes + self.reserved_bytes


class Shortage(_Strict, frozen=True, kw_only=True):
    """An allocation for which memory was out, in bytes; None where torch does not say it."""

    asked_bytes: Count
    free_bytes: Count | None
    total_bytes: Count | None  # of the device
    own_bytes: Count | None  # taken by the process that asked


class KernelShare(_Strict, frozen=True, kw_only=True):
    """One kernel of a profiled call, and its share of the call's device time (0 to 1)."""

    name: Text
    share: Annotated[float, Meta(ge=0, le=1)]
    part: Name | None = None  # of the operation's parts; None where it is not known, as on a CPU


class Record(_Strict, frozen=True, kw_only=True, tag_field="schema", tag=SCHEMA):
    """One variant at one workload."""

    notebook: Name
    cell: Name
    variant: Name  # kernel and form: "flex_compile_d"
    kernel: Name  # "flex"
    form: Name  # "eager", "copy", "compile_d", "compile_ma", "blocks"
    precision_class: Name  # of `operations.precision.CLASSES`
    workload: Workload
    status: Status
    reason: Text | None
    measured_at: Name  # UTC, ISO 8601
    method_version: Count  # times of another version must not be compared, see `records.method`
    errors: dict[Name, Errors] = {}  # by output
    timings: dict[Name, Timing] = {}  # by regime
    telemetry: dict[Name, Telemetry] = {}  # by regime
    flags: tuple[Flag, ...] = ()
    energy_mj: Positive | None = None  # of a call, sustained
    energy_ci95_mj: tuple[NotNegative, NotNegative] | None = None
    launch_ms: NotNegative | None = None  # of the host, for one call, while the device is busy
    cupti: Cupti | None = None
    device_s: NotNegative | None = None  # what measuring it took of the device, rests and reference included
    peak_memory_bytes: Count | None = None  # allocated by one warm call at its peak, output included
    memory: Memory | None = None
    shortage: Shortage | None = None  # of memory, of an OUT_OF_MEMORY record
    compile_s: NotNegative | None = None  # first call less a warm one, empty compiler caches at the cell's start
    graph_breaks: Count | None = None
    kernels: tuple[KernelShare, ...] = ()
    detail: Text | None = None  # what the library says that it chose, where it says so
    versions: dict[Name, Text] = {}
    fingerprint: dict[Name, Text | int | float | bool | None] = {}

    def __post_init__(self) -> None:
        """Raise `RecordError` where the fields contradict each other."""
        passed = self.status is Status.PASSED
        who = f"record of {self.variant} at {self.workload.name}"
        if passed != (self.reason is None):
            raise RecordError(f"{who}: reason must be null exactly when PASSED, got {self.status} and {self.reason!r}")
        if passed != bool(self.timings):
            raise RecordError(f"{who}: only PASSED may hold a timing, and must, got {self.status}")
        if not passed and self.energy_mj is not None:
            raise RecordError(f"{who}: only PASSED may hold energy, got {self.status}")
        if self.shortage and self.status is not Status.OUT_OF_MEMORY:
            raise RecordError(f"{who}: only OUT_OF_MEMORY may hold a shortage, got {self.status}")
        if passed and not self.errors:
            raise RecordError(f"{who}: a PASSED record must say how its outputs were checked; errors are empty")
        if unknown := self.timings.keys() - {BURST, SUSTAINED}:
            raise RecordError(f"{who}: timings must be of burst and sustained, got {', '.join(sorted(unknown))}")
        if self.precision_class not in CLASSES:
            known = ", ".join(CLASSES)
            raise RecordError(f"{who}: precision_class must be one of {known}, got {self.precision_class!r}")

    @property
    def burst(self) -> Timing | None:
        """The timing of single calls on a rested device."""
        return self.timings.get(BURST)

    @property
    def sustained(self) -> Timing | None:
        """The timing under the kernel's own load, which ranks."""
        return self.timings.get(SUSTAINED)

    @property
    def timing(self) -> Timing | None:
        """The timing that ranks: sustained, or burst where nothing else was asked for."""
        return self.sustained or self.burst

    @property
    def is_filled(self) -> bool:
        """Whether its kernels take up its sustained time, by the profiler: the device does not wait for the host."""
        seen, timing = self.cupti, self.sustained
        return bool(seen and timing and seen.kernels_ms >= FILLED_FROM * timing.median_ms)

    @property
    def rel_l2(self) -> float | None:
        """The largest relative L2 error of its outputs on the inputs that it is judged on; None if not known or finite.

        On which inputs an error takes most of its budget differs from variant to variant, so that one does not compare.
        """
        return self.largest_error(self.judged_kinds)

    @property
    def judged_kinds(self) -> list[str]:
        """The kinds of inputs on which each output has an error with a budget."""
        recorded = [errors.rel_l2_by_inputs for errors in self.errors.values()]
        gated = [kind for kind in recorded[0] if kind not in CLASSES[self.precision_class].ungated] if recorded else []
        return [kind for kind in gated if all(kind in by_inputs for by_inputs in recorded)]

    def largest_error(self, kinds: Sequence[str]) -> float | None:
        """Return the largest relative L2 error of its outputs on these kinds of inputs; None if not known or finite.

        Without kinds it is that on the one kind which older records hold.
        """
        found = [errors.rel_l2_by_inputs[kind] for errors in self.errors.values() for kind in kinds]
        found = found or [errors.rel_l2 for errors in self.errors.values()]
        finite = [error for error in found if error is not None]
        return max(finite) if finite and len(finite) == len(found) else None

    def flagged(self, *kinds: FlagKind, regime: str | None = None) -> Flag | None:
        """Return the first flag of one of these kinds, in a regime where one is given, or None."""
        return next((flag for flag in self.flags if flag.kind in kinds and regime in (None, flag.regime)), None)

    def to_json(self) -> str:
        """Return the record as one line of JSON, without a newline."""
        return _ENCODER.encode(self).decode()
