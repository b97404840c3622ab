"""Callables to samples: single calls, interleaved in random order, with the last-level cache cleared before each."""

from __future__ import annotations

import functools
import math
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from fluxbench.inputs import Inputs

Call = Callable[[], torch.Tensor]

SETTLE_CHUNK_S = 0.25
SETTLE_LIMIT_S = 3.0
SETTLE_TOLERANCE = 0.005
_FALLBACK_CACHE_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How many samples to take of each callable."""

    max_rounds: int
    min_rounds: int
    budget_s: float  # of device time, for one callable

    @classmethod
    def on(cls, device: torch.device) -> Plan:
        """Return the plan for a kind of device: a CPU's call is a few hundred times longer than a GPU's."""
        if device.type == "cpu":
            return cls(max_rounds=10, min_rounds=2, budget_s=0.1)
        return cls(max_rounds=60, min_rounds=10, budget_s=0.3)

    def rounds(self, call_s: float) -> int:
        """Return how many samples to take of a call that lasts `call_s` seconds."""
        return max(self.min_rounds, min(self.max_rounds, math.ceil(self.budget_s / call_s)))


class Stopwatch:
    """Times calls on one device with the device's own events, or with the monotonic clock on a CPU."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._flush = torch.empty(2 * last_level_cache_bytes(device), dtype=torch.int8, device=device)
        self._pending: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._samples_s: list[float] = []

    def time(self, call: Call) -> torch.Tensor:
        """Clear the cache, call once, and keep the duration; the device may still be busy when this returns."""
        self._flush.zero_()
        if self.device.type == "cpu":
            start = time.perf_counter()
            out = call()
            self._samples_s.append(time.perf_counter() - start)
            return out
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        out = call()
        end.record()
        self._pending.append((begin, end))
        return out

    def take_ms(self) -> list[float]:
        """Wait for the device and return the durations since the last take, in milliseconds, in order of calling."""
        if self._pending:
            torch.cuda.synchronize(self.device)
            self._samples_s.extend(begin.elapsed_time(end) / 1e3 for begin, end in self._pending)
        taken = [1e3 * sample for sample in self._samples_s]
        self._pending, self._samples_s = [], []
        return taken


def last_level_cache_bytes(device: torch.device) -> int:
    """Return the size of the cache that the last call's data may still lie in."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).L2_cache_size) or _FALLBACK_CACHE_BYTES
    try:
        return max(os.sysconf("SC_LEVEL3_CACHE_SIZE"), 0) or _FALLBACK_CACHE_BYTES
    except (ValueError, OSError):  # a system that does not say
        return _FALLBACK_CACHE_BYTES


def settle(stopwatch: Stopwatch, calls: Sequence[Call]) -> None:
    """Load the device with rounds of these calls until their speed is steady, or for `SETTLE_LIMIT_S`.

    Steady is: the median round of one chunk and that of the next agree. A card that starts at rest falls by up to 15%
    within a second as it reaches its power limit, and how far depends on the mixture of kernels, so this takes the one
    that is to be timed. A CPU's first call has already loaded it for as long as a chunk.
    """
    if stopwatch.device.type == "cpu":
        return
    before = math.inf
    deadline = time.monotonic() + SETTLE_LIMIT_S
    while time.monotonic() < deadline:
        chunk_end = time.monotonic() + SETTLE_CHUNK_S
        rounds_ms: list[float] = []
        while time.monotonic() < chunk_end:
            for call in calls:
                stopwatch.time(call)
            rounds_ms.append(sum(stopwatch.take_ms()))
        now = sorted(rounds_ms)[len(rounds_ms) // 2]
        if abs(now / before - 1) < SETTLE_TOLERANCE:
            return
        before = now


def interleave(
    stopwatch: Stopwatch,
    calls: Mapping[str, Callable[[Inputs], torch.Tensor]],
    rounds: Mapping[str, int],
    rotation: list[Inputs],
    order: random.Random,
) -> tuple[dict[str, list[float]], dict[str, torch.Tensor]]:
    """Time every callable `rounds[name]` times, in rounds of random order over rotated inputs.

    Returns the samples in milliseconds by name, and each callable's output of its last call with `rotation[-1]`,
    cloned before anything else runs. A callable with fewer samples sits rounds out, evenly.
    """
    total = max(rounds.values())
    schedule: list[str] = []
    for index in range(total):
        due = [name for name in calls if (index + 1) * rounds[name] // total > index * rounds[name] // total]
        order.shuffle(due)
        schedule += due
    left = dict(rounds)
    outputs = {}
    for name in schedule:
        left[name] -= 1
        inputs = rotation[-1 - left[name] % len(rotation)]  # the last call's are never those of the call before
        out = stopwatch.time(functools.partial(calls[name], inputs))
        if not left[name]:
            outputs[name] = out.clone()
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for name, sample in zip(schedule, stopwatch.take_ms(), strict=True):
        samples[name].append(sample)
    return samples, outputs
