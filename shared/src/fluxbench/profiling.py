"""What a call really does: which kernels run, how much memory it takes, and what was compiled for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from fluxbench.inputs import Inputs

TOP_KERNELS = 6
Call = Callable[[Inputs], torch.Tensor]


def profile_call(call: Call, inputs: Inputs) -> tuple[torch.Tensor, list[dict[str, Any]]]:
    """Profile one warm call; return its output and its kernels as `{"name", "share"}`, the largest share first.

    A share is of the call's device time, 0 to 1.

    On a CPU these are torch's operators, by their own time.
    """
    on_gpu = inputs[0].is_cuda
    with profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as profiled:
        out = call(inputs)
        if on_gpu:
            torch.cuda.synchronize(inputs[0].device)
    time_us: dict[str, float] = {}
    for event in profiled.key_averages():
        spent = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        if spent > 0:
            time_us[event.key] = time_us.get(event.key, 0.0) + spent
    total = sum(time_us.values())
    largest = sorted(time_us.items(), key=lambda item: -item[1])[:TOP_KERNELS]
    return out, [{"name": name, "share": round(spent / total, 4)} for name, spent in largest]


def peak_memory_of(call: Call, inputs: Inputs) -> int | None:
    """Return the bytes that one warm call allocates at its peak, output included.

    None on a CPU, and where a call allocates nothing: a CUDA graph's memory was taken when it was captured.
    """
    if not inputs[0].is_cuda:
        return None
    device = inputs[0].device
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    call(inputs)
    torch.cuda.synchronize(device)
    return int(torch.cuda.max_memory_allocated(device) - before) or None


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
