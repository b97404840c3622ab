"""A clock that a test moves by hand, a stopwatch like a GPU's on a CPU, what calls get, and what a profiler records."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fakes import tokens
from torch.autograd import DeviceType

from fluxbench import operations
from fluxbench.correctness.content import Content
from fluxbench.correctness.contents import Contents
from fluxbench.operations.protocol import Bound
from fluxbench.operations.workload import Workload
from fluxbench.timing import burst, control_kernel, interleaved, lead, repeated, rows, stopwatch, sustained, windows
from fluxbench.timing.plan import Plan
from fluxbench.timing.stopwatch import Lap, Stopwatch

ON_CPU = torch.device("cpu")
PLAN = Plan(
    max_rounds=15, min_rounds=6, burst_budget_s=0.06, first_rest_s=0.5, min_rest_s=0.01, chunk_s=0.01, warm_up_s=0.1,
    max_warm_up_s=0.5, min_block_s=0.4, max_block_s=1.0,
    stretch_s=0.05, settled_within=0.01, sample_s=0.02, paired_s=1.0,
)  # fmt: skip

WORKLOADS = [tokens("small", 4, head_dim_qk=8, head_dim_v=8), tokens("smaller", 3, head_dim_qk=8, head_dim_v=8)]


def content_of(workload: Workload, seed: int) -> Content:
    return Content(operations.find("attention").inputs(workload.shape, "normal", seed, "cpu"), {}, {}, {})


def contents(count: int = 8) -> dict[str, Contents]:
    """Return contents of two small workloads, by workload."""
    return {each.name: Contents([content_of(each, seed) for seed in range(count)], 2, 0) for each in WORKLOADS}


class Clock:
    """Time that passes where a test says so."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def read(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def call(
        self, seconds: float | Iterator[float], seen: list[Any] | None = None
    ) -> Callable[[Any], dict[str, torch.Tensor]]:
        """Return a call that takes so long, or that long at each call, and notes what it gets."""
        durations = itertools.repeat(seconds) if isinstance(seconds, float) else seconds

        def call(given: Any) -> dict[str, torch.Tensor]:
            if seen is not None:
                tensors = given if isinstance(given, dict) else {}
                seen.append({name: x.clone() for name, x in tensors.items()} if tensors else given)
            self.now += next(durations)
            return {"out": torch.zeros(1)}

        return call

    def bound(self, seconds: float | Iterator[float], seen: list[Any] | None = None) -> Bound:
        return Bound(self.call(seconds, seen))


def start_clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Give the modules that take times a clock in place of `time`, and the machine a small cache."""
    clock = Clock()
    fake = SimpleNamespace(monotonic=clock.read, perf_counter=clock.read, sleep=clock.sleep)
    for module in (burst, interleaved, lead, repeated, rows, sustained, stopwatch, windows):
        monkeypatch.setattr(module, "time", fake)
    small_cache(monkeypatch)
    return clock


def small_cache(monkeypatch: pytest.MonkeyPatch, size: int = 1 << 16) -> None:
    """Let the machine have a last-level cache of 64 KiB, which is written over in no time."""
    monkeypatch.setattr(stopwatch, "THIRD_LEVEL", SimpleNamespace(read_text=lambda encoding: f"{size >> 10}K\n"))


def small_control(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the control kernel of a CPU take no time."""
    real = control_kernel.load
    none = control_kernel.ControlKernel(description="nothing", call=lambda: torch.zeros(1), is_right=lambda out: True)
    monkeypatch.setattr(control_kernel, "load", lambda device: none if device.type == "cpu" else real(device))


class InTurn:
    """What calls get in turn, and what the last of each window returned."""

    def __init__(self, *given: Any) -> None:
        self.given = itertools.cycle(given or (None,))
        self.kept: list[Any] = []

    def turn(self, calls: int) -> list[Any]:
        return list(itertools.islice(self.given, calls))

    def keep(self, outputs: Any) -> None:
        self.kept.append(outputs)


class LikeAGPU(Stopwatch):
    """Events as a CPU's, on the road of a GPU; it notes what it is asked to do."""

    def __init__(self) -> None:
        super().__init__(ON_CPU)
        self.on_cpu = False
        self.done: list[object] = []
        self.spins: list[float] = []  # the launch times that are spun for
        self._inner = Stopwatch(ON_CPU)

    def wait(self) -> None:
        self.done.append("wait")

    def clear_cache(self) -> None:
        self.done.append("clear")

    def spin(self, launch_s: float, calls: int) -> None:
        self.done.append(("spin", calls))
        self.spins.append(launch_s)

    def host_was_late(self) -> bool:
        return False

    def discard(self) -> None:
        self._inner.discard()

    def record(self) -> None:
        self._inner.record()

    def lap(self) -> Lap:
        return self._inner.lap()

    def between_ms(self) -> list[float]:
        return self._inner.between_ms()


class Ahead(LikeAGPU):
    """A device that runs calls when the host has launched them, which takes no time."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock, self.left_s = clock, 0.0

    def bound(self, seconds: float | Iterator[float], inner: Bound | None = None) -> Bound:
        """Return a call that takes the device so long, or that long at each call; it does what another one does."""
        durations = itertools.repeat(seconds) if isinstance(seconds, float) else seconds

        def call(given: Any) -> Any:
            self.left_s += next(durations)
            return inner.call(given) if inner else {"out": torch.zeros(1)}

        return Bound(call, inner.prepare if inner else None)

    def record(self) -> None:
        self.clock.now += self.left_s
        self.left_s = 0.0
        super().record()


class Queue(LikeAGPU):
    """A device that runs what the host launches in turn, while the host goes on."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock, self.free_at, self.idle_s = clock, 0.0, 0.0
        self._recorded: list[Any] = []

    def call(
        self, seconds: float, *, launch_s: float | Iterator[float], also: Callable[[Any], Any] | None = None
    ) -> Callable[[Any], Any]:
        """Return a call that takes the device so long, and the host `launch_s` to launch, or that long at each call.

        It does what `also` does.
        """
        of_host = itertools.repeat(launch_s) if isinstance(launch_s, float) else launch_s

        def call(given: Any) -> Any:
            self.clock.now += next(of_host)
            if self.free_at:
                self.idle_s += max(0.0, self.clock.now - self.free_at)
            self.free_at = max(self.free_at, self.clock.now) + seconds
            return also(given) if also else {"out": torch.zeros(1)}

        return call

    def host_was_late(self) -> bool:
        return bool(self._recorded[-2].query())

    def discard(self) -> None:
        self._recorded = []

    def wait(self) -> None:
        self.clock.now = max(self.clock.now, self.free_at)

    def record(self) -> None:
        at, clock = max(self.free_at, self.clock.now), self.clock

        def synchronize() -> None:
            clock.now = max(clock.now, at)

        event = SimpleNamespace(at=at, query=lambda: clock.now >= at, synchronize=synchronize)
        event.elapsed_time = lambda end: 1e3 * (end.at - at)
        self._recorded.append(event)

    def lap(self) -> Lap:
        events, self._recorded = self._recorded, []
        return Lap(events)

    def between_ms(self) -> list[float]:
        self.wait()
        return self.lap().between_ms()


def recorded_event(name: str, start_us: float, end_us: float, kind: object = DeviceType.CUDA) -> Any:
    """Return an event as torch's profiler records it, at some nanosecond of 2026."""
    start_ns = 1_795_000_000_000_000_000 + round(1e3 * start_us)
    values = {"name": name, "start_ns": start_ns, "duration_ns": round(1e3 * (end_us - start_us)), "device_type": kind}
    return SimpleNamespace(**{of: lambda value=value: value for of, value in values.items()})


def recording(events: Sequence[Any], **more: Any) -> Any:
    """Return a profiler that has recorded these events."""
    return SimpleNamespace(profiler=SimpleNamespace(kineto_results=SimpleNamespace(events=lambda: events)), **more)
