"""The rates that this very device reaches, of a matrix product and of a copy, and what an event costs."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable

import torch

from fluxbench.timing.plan import Plan
from fluxbench.timing.stopwatch import Stopwatch
from fluxbench.timing.sustained import sustain

EVENTS = 401
_SPIN = 120  # calls' worth, 12 ms: longer than the host takes to queue all events


def measure_rates(device: torch.device, stopwatch: Stopwatch) -> dict[str, float | int]:
    """Return the median rates of a bfloat16 matrix product and of a copy, under load, and what an event costs.

    `matmul_tflops` is of an n x n x n product, 2 n^3 operations, on random normal inputs; `copy_gb_s` counts the bytes
    read and written. `matmul_size` is n. `event_us` is the time in µs between two events in a row with nothing between
    them, which every sample of a single call has in it: on a GPU in a queue behind a spin, on a CPU
    between two readings of `time.perf_counter`.
    """
    n = 8192 if device.type == "cuda" else 1024  # without bfloat16 units 2048 take a CPU eight seconds a call
    generator = torch.Generator(device=device).manual_seed(0)
    a, b, out = (torch.randn(n, n, generator=generator, device=device).bfloat16() for _ in range(3))
    matmul_ms = _median_ms(stopwatch, functools.partial(torch.mm, a, b, out=out))

    size = (4 << 30) if device.type == "cuda" else (256 << 20)
    source, target = (torch.ones(size, dtype=torch.uint8, device=device) for _ in range(2))
    copy_ms = _median_ms(stopwatch, functools.partial(target.copy_, source))
    return {
        "matmul_tflops": 2 * n**3 / matmul_ms / 1e9,
        "matmul_size": n,
        "copy_gb_s": 2 * size / copy_ms / 1e6,
        "event_us": _event_us(stopwatch),
    }


class _Nothing:
    """What calls get that need nothing, see `sustained.Given`."""

    def turn(self, calls: int) -> list[None]:
        return [None] * calls

    def keep(self, outputs: object) -> None:
        pass


def _event_us(stopwatch: Stopwatch) -> float:
    stopwatch.spin(0.0, _SPIN)
    for _ in range(EVENTS):
        stopwatch.record()
    return 1e3 * statistics.median(stopwatch.between_ms())


def _median_ms(stopwatch: Stopwatch, call: Callable[[], torch.Tensor]) -> float:
    """Return the median time of a call in ms, back to back under its own load."""
    stopwatch.record()
    call()
    stopwatch.record()
    first_ms = stopwatch.between_ms()[0]
    stopwatch.record()
    call()
    stopwatch.record()
    call_s = min(first_ms, *stopwatch.between_ms()) / 1e3
    block = sustain(stopwatch, {"": lambda _: call()}, {"": call_s}, {"": _Nothing()}, Plan.on(stopwatch.device))
    return statistics.median(block.samples_ms[""][block.warm_up :])
