"""A worker in this process, with a plan so small that a test takes a fraction of a second."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fakes import TINY

from fluxbench import variants
from fluxbench.bench.series import Turn
from fluxbench.timing import stopwatch
from fluxbench.timing.regimes import Plan
from fluxbench.timing.stopwatch import Stopwatch
from fluxbench.variants._base import Attention, Variant
from fluxbench.worker import trial as regimes
from fluxbench.worker.__main__ import Worker
from fluxbench.worker.request import Request

# Two rounds of burst; of a block one window that is set aside and two that count, one call of each workload.
QUICK = Plan(
    most_rounds=2,
    least_rounds=2,
    burst_budget_s=0.0,
    first_rest_s=0.0,
    rest_s=0.0,
    chunk_s=0.0,
    lead_s=0.0,
    most_lead_s=0.0,
    least_s=0.0,
    most_s=0.0,
    stretch_s=0.0,
    settled_within=1e9,
    sample_s=0.0,
)


class LikeAGPU(Stopwatch):
    """Marks as a CPU's, on the road of a GPU; it notes what it is asked to do."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self.on_cpu = False
        self.done: list[object] = []
        self.held: list[float] = []
        self._marks_of = Stopwatch(torch.device("cpu"))

    def wait(self) -> None:
        self.done.append("wait")

    def clear_cache(self) -> None:
        self.done.append("clear")

    def hold(self, launch_s: float, calls: int) -> None:
        self.done.append(("hold", calls))
        self.held.append(launch_s)

    def forget(self) -> None:
        self._marks_of.forget()

    def mark(self) -> None:
        self._marks_of.mark()

    def between_ms(self) -> list[float]:
        return self._marks_of.between_ms()


def hurry(monkeypatch: pytest.MonkeyPatch, **changes: float) -> None:
    """Let every plan be `QUICK`, with these changes, and the cache small."""
    plan = dataclasses.replace(QUICK, **changes)  # type: ignore[arg-type]
    monkeypatch.setattr(Plan, "on", classmethod(lambda cls, device: plan))
    for module in (stopwatch, regimes):
        monkeypatch.setattr(module, "last_level_cache_bytes", lambda device: 1 << 16)


def events_of(request: Request) -> list[dict[str, Any]]:
    """Return the events of a worker that carries out a request here.

    With one thread: several would wait for each other where the machine does something else, for 10 ms each time.
    """
    written = io.StringIO()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            Worker(request, written).run()
    finally:
        torch.set_num_threads(threads)
    return [json.loads(line) for line in written.getvalue().splitlines()]


def given(
    monkeypatch: pytest.MonkeyPatch, load: Callable[[], Attention], *, name: str = "made_up", **request: Any
) -> list[dict[str, Any]]:
    """Return the events of one worker that gets a variant with this `load`, and then torch_math."""
    monkeypatch.setattr(variants, "REGISTRY", (*variants.REGISTRY, Variant(name=name, load=load)))
    asked = {"variants": (name, "torch_math"), "references": ("torch_math",), "workloads": (TINY,), **request}
    asked.setdefault("device", "cpu")
    return events_of(Request(**asked))


def failures(events: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """Return who failed, how and why, in order."""
    return [(event["variant"], event["status"], event["reason"]) for event in events if event["event"] == "failed"]


def turns(events: list[dict[str, Any]]) -> list[Turn]:
    """Return the turns that gave times, in order."""
    return [Turn.of(event) for event in events if event["event"] == "timed"]


def timed(events: list[dict[str, Any]]) -> set[str]:
    """Return the variants that were timed."""
    return {turn.variant for turn in turns(events)}
