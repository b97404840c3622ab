"""What this very device reaches at most: its matrix rate and its memory rate, measured as the variants are."""

from __future__ import annotations

import functools
import statistics

import torch

from fluxbench.timing import Call, Stopwatch, settle

REPEATS = 20


def measure_ceilings(device: torch.device, stopwatch: Stopwatch) -> dict[str, float | int]:
    """Return the median rates of a bfloat16 matrix product and of a copy, from a device under load.

    `matmul_tflops` is of an n x n x n product, 2 n^3 operations, on random normal inputs; `copy_gb_s` counts the bytes
    read and written. `matmul_size` is n.
    """
    n = 8192 if device.type == "cuda" else 2048
    repeats = REPEATS if device.type == "cuda" else 5
    generator = torch.Generator(device=device).manual_seed(0)
    a, b, out = (torch.randn(n, n, generator=generator, device=device).bfloat16() for _ in range(3))
    matmul_ms = _median_ms(stopwatch, functools.partial(torch.mm, a, b, out=out), repeats)

    size = (4 << 30) if device.type == "cuda" else (256 << 20)
    source, target = (torch.ones(size, dtype=torch.uint8, device=device) for _ in range(2))
    copy_ms = _median_ms(stopwatch, functools.partial(target.copy_, source), repeats)
    return {
        "matmul_tflops": 2 * n**3 / matmul_ms / 1e9,
        "matmul_size": n,
        "copy_gb_s": 2 * size / copy_ms / 1e6,
    }


def _median_ms(stopwatch: Stopwatch, call: Call, repeats: int) -> float:
    call()
    settle(stopwatch, [call])
    for _ in range(repeats):
        stopwatch.time(call)
    return statistics.median(stopwatch.take_ms())
