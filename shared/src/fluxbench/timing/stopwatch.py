"""Events in a device's queue to the times between them, and what brings device and cache into a known state."""

from __future__ import annotations

import ctypes
import functools
import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from fluxbench.timing.heat import by_driver

_LEAST_SPIN_S = 1e-4  # for each call of a round: the host is ahead of the device from the first one on
_HIGHEST_CLOCK_MHZ = 3000  # of today's cards, for one that does not report its own
_FALLBACK_CACHE_BYTES = 64 << 20
THIRD_LEVEL = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")  # as "32768K": what one core can reach


class Lap:
    """Events in a device's queue, which the device may not have come to yet; of a CPU they are times."""

    def __init__(self, events: Sequence[Any]) -> None:
        self._events = events

    def between_ms(self) -> list[float]:
        """Wait for the last event, and return the times between the events, in milliseconds."""
        last = self._events[-1]
        if not isinstance(last, float):
            last.synchronize()
        return _between_ms(self._events)

    def after_ms(self, other: Lap) -> float:
        """Return the time from the last event of another lap to that of this one, in milliseconds; both are over."""
        return _between_ms([other._events[-1], self._events[-1]])[0]


def _between_ms(events: Sequence[Any]) -> list[float]:
    return [
        1e3 * (end - begin) if isinstance(begin, float) else begin.elapsed_time(end)
        for begin, end in itertools.pairwise(events)
    ]


class Stopwatch:
    """Times calls on one device with the device's own events, or with the monotonic clock on a CPU.

    `clock_mhz` is the highest clock of a GPU, by its driver; None where it does not report it.
    """

    def __init__(self, device: torch.device, clock_mhz: int | None = None) -> None:
        self.device = device
        self.on_cpu = device.type == "cpu"
        # The fill of int8 differs from all that a variant runs, which the CUPTI cross-check relies on.
        self._flush = torch.empty(2 * last_level_cache_bytes(device), dtype=torch.int8, device=device)
        self._clock_hz = 1e6 * (clock_mhz or _HIGHEST_CLOCK_MHZ)
        self._events: list[Any] = []

    def wait(self) -> None:
        """Wait for the device."""
        if not self.on_cpu:
            torch.cuda.synchronize(self.device)

    def clear_cache(self) -> None:
        """Write over twice the last-level cache; on a CPU by this thread alone, so that what others do shows."""
        if self.on_cpu:
            ctypes.memset(self._flush.data_ptr(), 1, self._flush.nbytes)
        else:
            self._flush.fill_(1)

    def spin(self, launch_s: float, calls: int) -> None:
        """Keep the device busy at little power while the host gets ahead of it by calls that take `launch_s` to launch.

        For the longer of a quarter more, and 0.1 ms a call, at the highest clock of the card.
        """
        if not self.on_cpu:
            torch.cuda._sleep(round(max(1.25 * launch_s, _LEAST_SPIN_S * calls) * self._clock_hz))

    @functools.cached_property
    def _slowed_by_heat(self) -> Callable[[], bool]:
        return by_driver(self.device)

    def is_hot(self) -> bool:
        """Return whether the driver slows the device because of its heat."""
        return self._slowed_by_heat()

    def begin_idle(self) -> None:
        """Wait for the device, and keep it busy just until a call's first launches are in its queue."""
        self.wait()
        self.spin(0.0, 1)

    def record(self) -> None:
        """Put an event into the device's queue; on a CPU it is now."""
        if self.on_cpu:
            self._events.append(time.perf_counter())
            return
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self._events.append(event)

    def host_was_late(self) -> bool:
        """Whether the device came to the last event but one before the host had launched all that is up to the last.

        Then it may have waited for the host in between. A CPU never does.
        """
        return not self.on_cpu and bool(self._events[-2].query())

    def discard(self) -> None:
        """Drop the events that a call which raised has left."""
        self._events = []

    def lap(self) -> Lap:
        """Return the events since the last call of this, without waiting for the device."""
        events, self._events = self._events, []
        return Lap(events)

    def between_ms(self) -> list[float]:
        """Wait for the device, and return the times between the events since the last call of this, in milliseconds."""
        self.wait()
        events, self._events = self._events, []
        return _between_ms(events)


def last_level_cache_bytes(device: torch.device) -> int:
    """Return the size of the cache that the last call's data may still lie in."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).L2_cache_size) or _FALLBACK_CACHE_BYTES
    try:
        # Not by sysconf: of an AMD processor that reports the caches of all its dies as one, eight times as large.
        size = THIRD_LEVEL.read_text(encoding="ascii").strip()
        return int(size.removesuffix("K")) << 10 or _FALLBACK_CACHE_BYTES
    except (ValueError, OSError):  # a system that does not report it
        return _FALLBACK_CACHE_BYTES


def slept_s() -> float:
    """Return how long the machine has slept since it was started, in seconds; 0 where the system does not report it."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return 0.0
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
