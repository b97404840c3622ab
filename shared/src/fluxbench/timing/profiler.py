"""What a call really does: which kernels run, and what was compiled for it."""

from __future__ import annotations

import contextlib
import functools
import math
import statistics
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from fluxbench.operations.protocol import Bound, Tensors
from fluxbench.operations.shared_step import COMMUNICATION, WAITING
from fluxbench.timing.burst import rest_after
from fluxbench.timing.lead import MOST_LAUNCH_S
from fluxbench.timing.stopwatch import Stopwatch
from fluxbench.variants._base import ATTENTION, TOP_KERNELS

PROFILED_CALLS = 7
_SPIN = "spin_kernel"  # of `torch.cuda._sleep`


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What the profiler saw of one call: its kernels, and on a CPU its time by the profiler and by our clock."""

    # {"name", "share", "part"}: the six largest, and those of the attention; on a CPU torch's operators. Where other
    # processes take turns on the device, a kernel that is interrupted seems to be longer.
    kernels: list[dict[str, Any]]
    names: list[str]  # of all kernels, the largest first
    profiler_ms: float
    wall_ms: float


PartOf = Callable[[str], str]  # a kernel's name to what it does, one of the operation's parts


class KernelTimes(NamedTuple):
    """What the kernels of a call take by the profiler, in ms, and the largest of them as in `Profile`."""

    sum_ms: float
    span_ms: float
    parts_ms: dict[str, float]  # of the sum, by what kernels do
    kernels: list[dict[str, Any]]


def profile_call(
    bound: Bound, inputs: Tensors, device: torch.device, part_of: PartOf
) -> tuple[Mapping[str, object], Profile]:
    """Profile one warm call; return its outputs and what was seen. A share is of the call's device time, 0 to 1."""
    on_gpu = device.type == "cuda"
    prepared = bound.prepared(inputs)
    with profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as profiled:
        started = time.perf_counter()
        out = bound.call(prepared)
        if on_gpu:
            torch.cuda.synchronize(device)
        wall_ms = 1e3 * (time.perf_counter() - started)
    found = (
        [(name, end - start) for start, end, name in events_on(DeviceType.CUDA, profiled)]
        if on_gpu
        else [(event.key, event.self_cpu_time_total) for event in profiled.key_averages()]
    )
    time_us: dict[str, float] = {}
    for name, spent in found:
        time_us[name] = time_us.get(name, 0.0) + spent
    kernels = _largest(time_us, part_of if on_gpu else None)
    names = sorted(time_us, key=lambda name: -time_us[name])
    return out, Profile(kernels=kernels, names=names, profiler_ms=sum(time_us.values()) / 1e3, wall_ms=wall_ms)


def _largest(times: Mapping[str, float], part_of: PartOf | None) -> list[dict[str, Any]]:
    """Return the kernels with the largest times, and those of the attention, as `Profile` has them.

    In a whole model the attention may not be among the largest; which kernels it ran must be known all the same.
    """
    total = sum(times.values())
    kernels = [
        {"name": name, "share": round(spent / total, 4), "part": part_of(name) if part_of else None}
        for name, spent in sorted(times.items(), key=lambda item: -item[1])
        if spent > 0
    ]
    of_attention = [kernel for kernel in kernels if kernel["part"] == ATTENTION][:TOP_KERNELS]
    return kernels[:TOP_KERNELS] + [kernel for kernel in kernels[TOP_KERNELS:] if kernel in of_attention]


def events_on(device_type: Any, profiled: profile) -> list[tuple[float, float, str]]:
    """Return begin and end, in us, and the name of what ran on a device.

    As the profiler recorded it: torch's own list of events takes 40 us for each, launches too, and a model's step in
    eight rounds has 100,000.
    """
    raw = getattr(profiled.profiler, "kineto_results", None)
    if raw is None:
        of_torch = (event for event in profiled.events() or () if event.device_type == device_type)
        return [(event.time_range.start, event.time_range.end, event.name) for event in of_torch]
    on_device = [event for event in raw.events() if event.device_type() == device_type]
    first_ns = min((event.start_ns() for event in on_device), default=0)  # 1.8e18: a float of it has steps of 256 ns
    spans = ((event.start_ns() - first_ns, event.duration_ns(), event.name()) for event in on_device)
    return [(start / 1e3, (start + duration) / 1e3, name) for start, duration, name in spans]


def kernel_times(
    calls: Mapping[str, Callable[[], object]],
    stopwatch: Stopwatch,
    part_of: PartOf,
    repeats: int = PROFILED_CALLS,
    rest_s: float = 0.0,
) -> dict[str, KernelTimes]:
    """Return what the kernels of each callable take by the profiler, medians of `repeats` calls.

    Kernels that run beside each other on several streams count once in their sum. The span is from the first kernel's
    begin to the last one's end. Empty where the profiler may not record kernels.
    As in burst, the device rests before each round, `rest_s` before the first, or its clock would be a lower one, and
    the host is ahead of it, or there would be gaps between the kernels of a call. A first round that does not count
    tells how long launches take while the profiler records them; of calls so long that one repeat is enough it has the
    first call alone. The one kernel that clears the cache runs before each call and separates them.
    """
    part_of = functools.cache(part_of)  # a model's step has thousands of kernels of few names
    tried = dict([*calls.items()][: 1 if repeats == 1 else None])
    stopwatch.wait()
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        stopwatch.clear_cache()
        launch_s = _round(tried, stopwatch) * len(calls) / len(tried)
        stopwatch.wait()
        for _ in range(repeats):
            time.sleep(rest_s)
            began = time.monotonic()
            stopwatch.spin(min(launch_s, MOST_LAUNCH_S), len(calls) + 1)
            _round(calls, stopwatch)
            stopwatch.wait()
            rest_s = rest_after(time.monotonic() - began)
    seen = sorted(event for event in events_on(DeviceType.CUDA, profiled) if _SPIN not in event[2])
    parts: list[list[tuple[float, float, str]]] = []
    for start, end, name in seen:
        if name == seen[0][2]:
            parts.append([])
        else:
            parts[-1].append((start, end, name))
    parts = parts[1:]  # after the first clearing, which is followed by another
    if len(parts) != len(tried) + repeats * len(calls) or not all(parts):
        return {}
    parts = parts[len(tried) :]
    found = {}
    for index, name in enumerate(calls):
        of_call = parts[index :: len(calls)]
        sums = [_busy_us(part) / 1e3 for part in of_call]
        spans = [(max(end for _, end, _ in part) - part[0][0]) / 1e3 for part in of_call]
        by_part, by_kernel = _medians_ms(of_call, part_of), _medians_ms(of_call, lambda kernel: kernel)
        largest = _largest(by_kernel, part_of)
        found[name] = KernelTimes(statistics.median(sums), statistics.median(spans), by_part, largest)
    return found


def _medians_ms(calls: Sequence[Sequence[tuple[float, float, str]]], what_of: PartOf) -> dict[str, float]:
    """Return the median over some calls of what their kernels take, in ms, by what a kernel's name is turned into."""
    sums: list[dict[str, float]] = []
    for call in calls:
        sums.append({})
        for start, end, kernel in call:
            what = what_of(kernel)
            sums[-1][what] = sums[-1].get(what, 0.0) + (end - start) / 1e3
    names = dict.fromkeys(what for each in sums for what in each)
    return {what: statistics.median(each.get(what, 0.0) for each in sums) for what in names}


def _busy_us(part: Iterable[tuple[float, float, str]]) -> float:
    """Return for how long any kernel of a call ran; they come by their begin."""
    busy, until = 0.0, -math.inf
    for start, end, _ in part:
        busy += max(0.0, end - max(start, until))
        until = max(until, end)
    return busy


def _round(calls: Mapping[str, Callable[[], object]], stopwatch: Stopwatch) -> float:
    """Call each with a cleared cache; return the host's time for it, in seconds."""
    began = time.perf_counter()
    for call in calls.values():
        stopwatch.clear_cache()
        call()
    return time.perf_counter() - began


def times_of_bound(
    bounds: Mapping[str, Bound],
    inputs: Mapping[str, Tensors],
    stopwatch: Stopwatch,
    part_of: PartOf,
    repeats: int,
    apart: Collection[str] = (),
    rest_s: float = 0.0,
) -> dict[str, KernelTimes]:
    """Return the `kernel_times` of calls. Those `apart` are profiled one at a time, since preparation takes memory."""
    together = [name for name in bounds if name not in apart]
    found: dict[str, KernelTimes] = {}
    for some in [*([together] if together else []), *([name] for name in bounds if name in apart)]:
        calls = {name: functools.partial(bounds[name].call, bounds[name].prepared(inputs[name])) for name in some}
        others = bounds[some[0]].others
        with others(next(iter(inputs[some[0]].values())).device) if others else contextlib.nullcontext() as of_others:
            times = kernel_times(calls, stopwatch, part_of, repeats, 0.0 if found else rest_s)
        found |= {name: with_waiting(each, of_others) for name, each in times.items()} if of_others else times
        del calls
    return found


def with_waiting(times: KernelTimes, others_ms: Sequence[float]) -> KernelTimes:
    """Return times whose communication is what that of the fastest rank takes; the rest of this rank's is waiting.

    A kernel that communicates runs until the last rank has come to it, so the one that waits least waits for none.
    """
    own = times.parts_ms.get(COMMUNICATION, 0.0)
    least = min(own, *others_ms)
    return times._replace(parts_ms={**times.parts_ms, COMMUNICATION: least, WAITING: own - least})


@dataclass(frozen=True)
class CompileCounters:
    """How many graphs torch.compile has captured in this process, and how often it broke one."""

    graphs: int
    graph_breaks: int

    def __sub__(self, before: CompileCounters) -> CompileCounters:
        """Return what was compiled since `before`."""
        return CompileCounters(self.graphs - before.graphs, self.graph_breaks - before.graph_breaks)


def compile_counters() -> CompileCounters:
    """Read dynamo's counters, without loading dynamo (seconds) where nothing was compiled."""
    if "torch._dynamo.utils" not in sys.modules:
        return CompileCounters(0, 0)
    from torch._dynamo.utils import counters

    return CompileCounters(
        graphs=counters["stats"]["unique_graphs"], graph_breaks=sum(counters["graph_break"].values())
    )
