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
# Without bfloat16 units a product of n = 1024 takes two CPU cores 2 to 4 s, and 18 times as long as one of n = 512.
_LONG_S = 0.25
_SPIN = 120  # calls' worth, 12 ms: longer than the host takes to queue all events


def measure_rates(device: torch.device, stopwatch: Stopwatch) -> dict[str, float | int]:
    """Return the median rates of a bfloat16 matrix product and of a copy, under load, and what an event costs.

    `matmul_tflops` is of an n x n x n product, 2 n^3 operations, on random normal inputs; `copy_gb_s` counts the bytes
    read and written. `matmul_size` is n: 8192 on a GPU; on a CPU 1024, or 512 or 256 where a call would take 0.25 s.
    `event_us` is the time in µs between two events in a row with nothing between them, which every sample of a single
    call has in it: on a GPU in a queue behind a spin, on a CPU between two readings of `time.perf_counter`.
    """
    n, matmul = _matmul(device, stopwatch)
    matmul_ms = _median_ms(stopwatch, matmul)

    size = (4 << 30) if device.type == "cuda" else (256 << 20)
    source, target = (torch.ones(size, dtype=torch.uint8, device=device) for _ in range(2))
    copy_ms = _median_ms(stopwatch, functools.partial(target.copy_, source))
    return {
        "matmul_tflops": 2 * n**3 / matmul_ms / 1e9,
        "matmul_size": n,
        "copy_gb_s": 2 * size / copy_ms / 1e6,
        "event_us": _event_us(stopwatch),
    }


def _matmul(device: torch.device, stopwatch: Stopwatch) -> tuple[int, Callable[[], torch.Tensor]]:
    """Return the size of a product and a call of it: on a CPU the largest one of less than about `_LONG_S`."""
    largest, n = (8192, 8192) if device.type == "cuda" else (1024, 256)
    while True:
        generator = torch.Generator(device=device).manual_seed(0)
        a, b, out = (torch.randn(n, n, generator=generator, device=device).bfloat16() for _ in range(3))
        call = functools.partial(torch.mm, a, b, out=out)
        if n == largest or 8 * _least_ms(stopwatch, call) >= 1e3 * _LONG_S:  # one of 2 n takes eight times as long
            return n, call
        n *= 2


class _Nothing:
    """What calls get that need nothing, see `windows.Given`."""

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
    call_s = _least_ms(stopwatch, call) / 1e3
    block = sustain(stopwatch, {"": lambda _: call()}, {"": call_s}, {"": _Nothing()}, Plan.on(stopwatch.device))
    return statistics.median(block.samples_ms[""][block.warm_up :])


def _least_ms(stopwatch: Stopwatch, call: Callable[[], torch.Tensor]) -> float:
    """Return the shorter time of two calls: the first may be a longer one."""
    times_ms = []
    for _ in range(2):
        stopwatch.record()
        call()
        stopwatch.record()
        times_ms += stopwatch.between_ms()
    return min(times_ms)
