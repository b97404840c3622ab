"""What a worker writes, event by event: read strictly, so that a worker that writes something else is found out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeVar

import msgspec
from msgspec import Struct

from fluxbench.records.schema import (
    Count,
    Errors,
    KernelShare,
    Memory,
    NotNegative,
    Positive,
    RecordError,
    Shortage,
)
from fluxbench.records.status import Status

T = TypeVar("T")
Span = tuple[float, float]  # begin and end, monotonic seconds
# Sum, span, and the sum by parts, in ms, and the largest kernels: `timing.profiler.KernelTimes`.
KernelTimes = tuple[Positive, Positive, dict[str, NotNegative], tuple[KernelShare, ...]]


class _Event(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="event"):
    """One line of a worker."""


class Ready(_Event, frozen=True, kw_only=True, tag="ready"):
    """The process has begun."""

    versions: dict[str, str]


class Phase(_Event, frozen=True, kw_only=True, tag="phase"):
    """What the process does from then on."""

    name: Literal["importing", "standby", "waiting", "preparing", "checking", "compiling", "measuring", "probing"]
    at: float  # monotonic seconds


class ControlKernel(_Event, frozen=True, kw_only=True, tag="control_kernel"):
    """What the control kernel is, or why there is none."""

    description: str | None = None
    reason: str | None = None


class Kept(_Event, frozen=True, kw_only=True, tag="kept"):
    """A file that the process wrote or read for later ones, before it loaded a kernel."""

    name: str
    sha256: str


class Yardstick(_Event, frozen=True, kw_only=True, tag="yardstick"):
    """The errors of unfused attention at a workload, by output, by which later processes judge too."""

    workload: str
    precision: str
    worst: dict[str, list[NotNegative]]  # relative L2 errors of the whole, of the worst head and of the worst row
    bins: dict[str, list[list[NotNegative]]] = {}  # of rows with error scales, see `correctness.allowance`


class Rows(_Event, frozen=True, kw_only=True, tag="rows"):
    """How many calls a variant and its reference have in a row, by workload; 0 where a call is a sample by itself."""

    calls: dict[str, dict[str, Count]]


class Begin(_Event, frozen=True, kw_only=True, tag="begin"):
    """A variant is built and checked at a workload; without a variant, inputs are made."""

    variant: str | None
    workload: str


class Checked(_Event, frozen=True, kw_only=True, tag="checked"):
    """A variant was right at a workload."""

    variant: str
    workload: str
    thorough: bool  # in the process that checks the most: all kinds of inputs and the ragged shape, where any does
    errors: dict[str, Errors]
    kernels: tuple[KernelShare, ...]
    clocks: tuple[Positive, NotNegative] | None  # of a CPU: one call by our clock and by the profiler, in ms
    memory: Memory | None
    compile_s: NotNegative | None
    graph_breaks: Count | None
    detail: str | None


class Failed(_Event, frozen=True, kw_only=True, tag="failed"):
    """A variant failed at a workload."""

    variant: str
    workload: str
    status: Status
    reason: str
    errors: dict[str, Errors] = {}
    shortage: Shortage | None = None  # of memory
    of_inputs: bool = False  # these lacked memory, whatever the variant


class Lacked(_Event, frozen=True, kw_only=True, tag="lacked"):
    """A variant lacked memory at a workload, or at all of a trial of which it is the largest, and is tried again."""

    variant: str
    workload: str
    reason: str  # what was asked for, and what was free


class TrialBegan(_Event, frozen=True, kw_only=True, tag="trial"):
    """A variant is timed."""

    variant: str


class Processor(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Processor time of a CPU in burst rounds, one value a round: see `timing.burst.Burst`."""

    resting_ms: list[float]  # of other threads in the rest
    others_ms: dict[str, list[float]]  # of other threads before the call, by workload
    call_cpu_ms: dict[str, list[NotNegative]]  # of all threads in the call


class BurstSamples(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Burst samples, one a round; those of the reference are of the same rounds, the control kernel's of all."""

    samples_ms: dict[str, list[Positive]]  # by workload
    reference_ms: dict[str, list[Positive]]
    control_ms: list[Positive]  # empty where there is no control kernel
    launch_ms: dict[str, NotNegative]  # of the host, median
    rounds: dict[str, list[int]] = {}  # of each sample, from 0; by workload that has none in some
    places: dict[str, list[int]]  # in the order of the round
    late: dict[str, list[int]] = {}  # samples of which the host was late with the call or the reference's, by workload
    times: list[Span]  # of the rounds
    spans: dict[str, list[Span]] = {}  # of each sample with the reference's, where rounds have parts, by workload
    processor: Processor | None = None  # of a CPU
    calls: dict[str, int] = {}  # of a row that is one sample, replayed as a CUDA graph, by workload; else a call is one
    launched_ms: dict[str, Positive] = {}  # of a call of such a row where the host launches it, by workload
    refused: dict[str, str] = {}  # why short calls have no row, by workload

    def in_rounds_of(self, workload: str, each: Sequence[T]) -> list[T]:
        """Return, of what there is one of in each round, those of the rounds that have a sample at a workload."""
        return [each[index] for index in self.rounds[workload]] if workload in self.rounds else list(each)

    def spans_of(self, workload: str) -> list[Span]:
        """Return when each sample at a workload was taken: its part of the round, or the round."""
        return self.spans.get(workload) or self.in_rounds_of(workload, self.times)


class BlockSamples(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sustained block, or a CPU's rounds beside the reference: see `timing.sustained.Block`."""

    samples_ms: dict[str, list[Positive]]  # by workload
    reference_ms: dict[str, list[Positive]] = {}  # of the same windows; of a CPU
    calls: dict[str, int]
    windows: list[Span]
    warm_up: int
    windows_a_sample: int
    settled: bool
    ahead_ms: NotNegative
    led: bool = True  # a call before each window of a GPU is not timed
    lead_ms: Positive | None = None  # of what is before each: of another workload, or replays of the first graph
    stalled: dict[str, list[int]] = {}  # windows in which the host was late, by workload
    replayed: bool = False  # as CUDA graphs, each of the calls of a window
    refused: str | None = None  # why not, where a capture failed
    # Of a replayed call where the host launches it, mean, by workload; of short calls in the first process alone.
    launched_ms: dict[str, Positive] = {}


class Profiled(_Event, frozen=True, kw_only=True, tag="profiled"):
    """Which kernels ran in a call on a GPU like those that the process has timed."""

    variant: str
    workload: str
    kernels: tuple[KernelShare, ...]  # the largest, and those of the attention
    names: list[str]  # of all, largest first
    times: KernelTimes | None  # of several calls, alone on the device; first process


class Timed(_Event, frozen=True, kw_only=True, tag="timed"):
    """What one process took of one variant."""

    variant: str
    reference: str
    process: int
    workloads: tuple[str, ...]  # at which it counts
    burst: BurstSamples | None = None  # None: of a reference without a record of its own
    blocks: tuple[
        BlockSamples, ...
    ] = ()  # of workloads of about one length each; none: burst samples alone were needed
    unprofiled: tuple[str, ...] = ()  # workloads at which the profiler is not asked what kernels take
    repeated_over_new: dict[str, Positive] = {}  # by workload; first two processes, on a GPU
    profiles: tuple[str, ...] = ()  # workloads at which the process tells later which kernels ran; of a GPU
    profiled: dict[str, Profiled] = {}  # what it then told, by workload
    began: float
    took_s: NotNegative  # alone on the device
    slept_s: float

    @property
    def busy_s(self) -> float:
        """How long the device was busy with measured calls."""
        found = 0.0
        if self.burst:
            found += sum(self.burst.calls.get(name, 1) * sum(its) for name, its in self.burst.samples_ms.items())
            found += sum(self.burst.control_ms)
            if self.variant != self.reference:
                found += sum(map(sum, self.burst.reference_ms.values()))
        for block in self.blocks:
            sides = [block.samples_ms]
            if self.variant != self.reference:
                sides.append(block.reference_ms)
            found += sum(block.calls[workload] * sum(its) for side in sides for workload, its in side.items())
        return found / 1e3


class Profiling(_Event, frozen=True, kw_only=True, tag="profiling"):
    """All is timed; which kernels ran is looked at."""


class Probing(_Event, frozen=True, kw_only=True, tag="probing"):
    """All is measured; a capability is tried."""


class ProbeResult(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What came of trying a capability: see `correctness.capabilities.ProbeResult`."""

    status: Literal["yes", "wrong", "no"]
    reason: str | None
    rel_l2: float | None
    budget: float | None


class Probed(_Event, frozen=True, kw_only=True, tag="probed"):
    """What came of trying a variant's capabilities, by capability."""

    variant: str
    found: dict[str, ProbeResult]


class Rates(_Event, frozen=True, kw_only=True, tag="rates"):
    """The device's own rates: see `timing.device_rates`."""

    rates: dict[str, int | float]


class Done(_Event, frozen=True, kw_only=True, tag="done"):
    """The process has done all."""


Event = (
    Phase
    | Ready
    | ControlKernel
    | Kept
    | Yardstick
    | Rows
    | Begin
    | Checked
    | Failed
    | Lacked
    | TrialBegan
    | Timed
    | Profiling
    | Profiled
    | Probing
    | Probed
    | Rates
    | Done
)
_DECODER = msgspec.json.Decoder(Event)


def parse(line: str | bytes) -> Event:
    """Return the event of a line. Raises `RecordError` where it is none."""
    try:
        event: Event = _DECODER.decode(line)
        return event
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise RecordError(f"a worker must write events, got something else: {error}") from error
