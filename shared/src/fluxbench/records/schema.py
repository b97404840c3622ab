"""The record: what was measured of one variant at one workload, and how it is kept in JSON Lines files.

Records are the only thing that crosses from measuring to showing. The schema is fixed; `docs/architecture.md` lists
its fields. Times are in milliseconds, memory in bytes, energy in millijoules.
"""

from __future__ import annotations

import csv
import dataclasses
import enum
import io
import itertools
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fluxbench.operations.workloads import BY_NAME, Workload
from fluxbench.records import field_types

SCHEMA = 1
INPUTS = ("normal", "flux")  # kinds of inputs that outputs are checked on, see fluxbench.inputs
PARTS = ("attention", "quantization", "copies", "other")  # what a kernel of a call does
CLOCKS_AGREE = 0.01  # largest difference between the two clocks of a call, as a share, at which they agree
_ADDED = ("burst_telemetry", "second_clock")  # parts that the first records of this schema did not have


class Status(enum.StrEnum):
    """How the attempt to measure ended. Only `PASSED` may hold timings."""

    PASSED = "PASSED"
    INCORRECT = "INCORRECT"  # it ran and was wrong
    UNSUPPORTED = "UNSUPPORTED"  # this device or shape cannot
    UNAVAILABLE = "UNAVAILABLE"  # the package cannot be had here
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    TIMEOUT = "TIMEOUT"
    CRASHED = "CRASHED"
    ERROR = "ERROR"


class RecordError(ValueError):
    """A record breaks the schema; the message says which field, the rule and the value."""


@dataclass(frozen=True, kw_only=True)
class Correctness:
    """Errors of the output against the float64 reference, of the worse of the two kinds of inputs.

    The worse kind is that on which `rel_l2` takes more of its budget. `rel_l2_by_inputs` alone is of both.
    """

    rel_l2: float | None  # ||out - ref|| / ||ref||; None where the output is not finite
    max_abs: float | None
    mean_abs: float | None
    mse: float | None
    cosine: float | None
    nan_count: int
    budget_rel_l2: float
    precision_class: str  # "exact" or "quantized"
    # By kind of inputs, see fluxbench.inputs; None where not finite. Empty in records from before.
    rel_l2_by_inputs: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Time of a call in one regime, from samples in process order.

    A `burst` sample is a single call on a device that rested before. A `sustained` sample is the mean over 0.1 s
    of calls, back to back, in the state that this very kernel brings the device to.
    """

    regime: str  # "burst" or "sustained"
    median_ms: float
    ci95_ms: tuple[float, float]
    processes: int
    samples_ms: tuple[float, ...]  # those that are ranked; all of them are in `<cell>.samples.json`
    reference_variant: str
    ratio: float  # over the reference's time: under 1 is faster than it
    ratio_ci95: tuple[float, float]
    split: tuple[int, ...] = ()  # how many samples each process took; empty: equally many
    set_aside: int = 0  # samples that are kept and not ranked: while settling, or out of the regime
    precise: bool | None = None  # False: the caps of time and processes came before the precision asked for

    @property
    def by_process(self) -> tuple[tuple[float, ...], ...]:
        """The samples in milliseconds, one inner tuple a process."""
        sizes = self.split or (len(self.samples_ms) // self.processes,) * self.processes
        ends = list(itertools.accumulate(sizes))
        return tuple(self.samples_ms[end - size : end] for size, end in zip(sizes, ends, strict=True))


@dataclass(frozen=True, kw_only=True)
class SecondClock:
    """The same call by two clocks, in ms: device events, and the profiler's times of the kernels in it (CUPTI).

    What an event pair spans lies between the sum of the kernels' times and the time from the first one's begin to the
    last one's end; `difference` is by how much it lies outside, as a share (0 where it does not).
    """

    events_ms: float
    kernels_ms: float
    span_ms: float
    parts_ms: Mapping[str, float] = field(default_factory=dict)  # of kernels_ms, by what they do: see PARTS

    @property
    def difference(self) -> float:
        """By which share the events' time lies outside of what the profiler saw; negative: shorter."""
        if self.events_ms > self.span_ms:
            return self.events_ms / self.span_ms - 1
        return min(0.0, self.events_ms / self.kernels_ms - 1)


@dataclass(frozen=True, kw_only=True)
class Telemetry:
    """Median clocks, power and temperature while the samples were taken; None where the device does not say."""

    sm_clock_mhz: float | None
    power_w: float | None
    temperature_c: float | None
    throttle_reasons: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One kernel of a profiled call, and its share of the call's device time (0 to 1)."""

    name: str
    share: float
    part: str | None = None  # what it does, one of PARTS; None where it is not known, as on a CPU


@dataclass(frozen=True, kw_only=True)
class Record:
    """One variant at one workload."""

    notebook: str
    cell: str
    variant: str
    workload: Workload
    status: Status
    reason: str | None
    measured_at: str  # UTC, ISO 8601
    correctness: Correctness | None = None
    timing: Timing | None = None
    burst: Timing | None = None
    telemetry: Telemetry | None = None  # of the sustained samples
    burst_telemetry: Telemetry | None = None
    energy_mj: float | None = None  # of a call, sustained
    energy_ci95_mj: tuple[float, float] | None = None
    launch_ms: float | None = None  # of the host, for one call, while the device is busy
    second_clock: SecondClock | None = None
    device_s: float | None = None  # what measuring it took of the device, all processes, rests and reference included
    marks: tuple[str, ...] = ()  # what was not as it should be, a phrase each
    peak_memory_bytes: int | None = None
    compile_s: float | None = None
    graph_breaks: int | None = None
    kernels: tuple[Kernel, ...] = ()
    detail: str | None = None  # what the library says that it chose, where it says so
    versions: Mapping[str, str] = field(default_factory=dict)
    fingerprint: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise `RecordError` where the fields contradict each other."""
        passed = self.status is Status.PASSED
        who = f"record of {self.variant} at {self.workload.name}"
        if passed != (self.reason is None):
            raise RecordError(f"{who}: reason must be null exactly when PASSED, got {self.status} and {self.reason!r}")
        if passed != (self.timing is not None):
            raise RecordError(f"{who}: only PASSED may hold a timing, and must, got {self.status}")
        if not passed and (self.burst or self.energy_mj is not None):
            raise RecordError(f"{who}: only PASSED may hold burst times or energy, got {self.status}")
        if passed and self.correctness is None:
            raise RecordError(f"{who}: a PASSED record must say how its output was checked; correctness is null")
        for timing in (self.timing, self.burst):
            if timing:
                _check_timing(who, timing)

    def to_json(self) -> str:
        """Return the record as one line of JSON, without a newline."""
        data = dataclasses.asdict(self)
        workload = data["workload"]
        workload["pass"] = workload.pop("direction")
        workload.pop("text_tokens")  # follows from the name
        return json.dumps({"schema": SCHEMA, **data}, allow_nan=False)


@dataclass(frozen=True, kw_only=True)
class Sentinel:
    """Times of the fixed kernel that was measured beside a cell's variants: `<cell>.sentinel.json`."""

    kernel: str  # what it is; only times of the same one can be compared
    samples_ms: Mapping[str, tuple[tuple[float, ...], ...]]  # by variant beside it, one inner sequence a process

    def to_json(self) -> str:
        """Return the sentinel's times as JSON."""
        return json.dumps({"schema": SCHEMA, **dataclasses.asdict(self)}, allow_nan=False)


def read_sentinel(path: Path) -> Sentinel | None:
    """Return what a `<cell>.sentinel.json` holds; None where there is none. Raises `RecordError`: it is damaged."""
    try:
        data = json.loads(path.read_text(encoding="utf-8", errors="replace"))
        if data.pop("schema") != SCHEMA:
            raise RecordError(f"{path.name}: its schema must be {SCHEMA}; update fluxbench, or measure again")
        samples = {workload: tuple(tuple(part) for part in parts) for workload, parts in data["samples_ms"].items()}
        times = [sample for parts in samples.values() for part in parts for sample in part]
        if not all(isinstance(sample, int | float) and math.isfinite(sample) and sample > 0 for sample in times):
            raise RecordError(f"{path.name}: times must be finite and positive")
        return Sentinel(kernel=str(data["kernel"]), samples_ms=samples)
    except FileNotFoundError:
        return None
    except (AttributeError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise RecordError(f"{path.name} must hold the times of a sentinel, got something else: {error!r}") from error


def _check_timing(who: str, timing: Timing) -> None:
    count = len(timing.samples_ms)
    if timing.split:
        if len(timing.split) != timing.processes or min(timing.split) < 1 or sum(timing.split) != count:
            raise RecordError(f"{who}: split must name the samples of each process, got {timing.split} of {count}")
    elif timing.processes < 1 or not count or count % timing.processes:
        raise RecordError(
            f"{who}: without split, samples_ms must hold equally many samples from each process, "
            f"got {count} from {timing.processes}"
        )
    numbers = (*timing.samples_ms, timing.median_ms, *timing.ci95_ms, timing.ratio, *timing.ratio_ci95)
    if not all(math.isfinite(number) and number > 0 for number in numbers):
        raise RecordError(f"{who}: times and ratios must be finite and positive")
    for name, middle, (low, high) in (
        ("ci95_ms", timing.median_ms, timing.ci95_ms),
        ("ratio_ci95", timing.ratio, timing.ratio_ci95),
    ):
        if not low <= middle <= high:
            raise RecordError(f"{who}: {name} must hold its estimate, got [{low}, {high}] around {middle}")


def from_json(line: str) -> Record:
    """Return the record that a line of JSON holds.

    Raises `RecordError` where the line is not JSON, is of another schema, lacks a field, has one too many or one of
    another type.
    """
    try:
        data = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise RecordError(f"a record must be one JSON object a line, got {line[:60]!r}") from error
    if not isinstance(data, dict):
        raise RecordError(f"a record must be a JSON object, got {type(data).__name__}")
    if data.pop("schema", None) != SCHEMA:
        raise RecordError(f"schema of a record must be {SCHEMA}; update fluxbench, or measure again")
    try:
        workload = dict(data.pop("workload"))
        workload["direction"] = workload.pop("pass")
        known = BY_NAME.get(workload["name"])
        parts: dict[str, Any] = {
            "workload": Workload(**workload, text_tokens=known.text_tokens if known else 0),
            "status": Status(data.pop("status")),
            "kernels": tuple(Kernel(**kernel) for kernel in data.pop("kernels")),
        }
        kinds: dict[str, type] = {"correctness": Correctness, "timing": Timing, "burst": Timing, "telemetry": Telemetry}
        kinds |= {"burst_telemetry": Telemetry, "second_clock": SecondClock}
        for name, kind in kinds.items():
            part = data.pop(name, None) if name in _ADDED else data.pop(name)
            parts[name] = None if part is None else kind(**{key: _frozen(value) for key, value in part.items()})
        record = Record(**{key: _frozen(value) for key, value in data.items()}, **parts)
        field_types.check(record)
        return record
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise RecordError(f"a record does not fit schema {SCHEMA}: {error}") from error


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def read(path: Path) -> list[Record]:
    """Return the records of one JSON Lines file. Raises `RecordError` with the file and line of a bad one."""
    found = []
    with path.open(encoding="utf-8", errors="replace") as file:  # what is not text is no JSON either
        for number, line in enumerate(file, start=1):
            try:
                found.append(from_json(line))
            except RecordError as error:
                raise RecordError(f"{path.name}, line {number}: {error}") from error
    return found


def write(path: Path, records: Iterable[Record]) -> None:
    """Write records to a JSON Lines file whole or not at all: a full disk leaves what was there before."""
    write_text(path, "".join(record.to_json() + "\n" for record in records))


def write_rows(path: Path, rows: Iterable[Iterable[object]]) -> None:
    """Write rows, the header first, to a CSV whole or not at all; None is empty. Raises `OSError`."""
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows(rows)
    write_text(path, table.getvalue())


def write_text(path: Path, text: str) -> None:
    """Replace a file by a new text in one step; on failure the old file stays. Raises `OSError`."""
    part = path.with_name(path.name + ".part")
    try:
        with part.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
