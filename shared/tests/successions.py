"""A worker in this process that takes the road of a GPU, and measures two variants beside torch_math."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from clocks import LikeAGPU, small_cache, small_control
from fakes import TINIER, TINY
from workers import events_of, honest, register, variant

from fluxbench.bench.events import Event
from fluxbench.timing.profiler import KernelTimes
from fluxbench.worker import profiling, worker
from fluxbench.worker.request import Request

NAMES = ("one", "two", "torch_math")


def like_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a worker on a CPU take the road of a GPU; kernels take a millisecond by the profiler."""
    small_cache(monkeypatch)
    small_control(monkeypatch)
    monkeypatch.setattr(worker, "Stopwatch", lambda *_: LikeAGPU())
    times = KernelTimes(1.0, 1.0, {"attention": 1.0}, [])
    monkeypatch.setattr(profiling, "times_of_bound", lambda bounds, *_: dict.fromkeys(bounds, times))
    asked = lambda self, variant, workload: variant in self.variants and self.is_full(workload)  # noqa: E731
    monkeypatch.setattr(Request, "profiles", asked)


def measured(monkeypatch: pytest.MonkeyPatch, **request: Any) -> list[Event]:
    """Return the events of a worker that measures two variants beside torch_math."""
    loads = {"one": honest, "two": honest, **request.pop("loads", {})}
    register(monkeypatch, *(variant(name, load) for name, load in loads.items()))
    asked = {
        "variants": NAMES,
        "references": ("torch_math",),
        "workloads": (TINIER, TINY),
        "device": "cpu",
        "process": 2,
    }
    return events_of(Request(**{**asked, **request}))


def graphs(calls: Mapping[str, Callable[[Any], Any]], *_: Any, **__: Any) -> dict[str, Callable[[Any], Any]]:
    """Return, as graphs of calls, what makes the last one of a turn."""

    def graph(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda turn: call(turn[-1])

    return {name: graph(call) for name, call in calls.items()}
