"""How short a time can be at all: no device computes faster than its peak rate, nor moves bytes faster than its memory.

A reading below that is wrong, however often it repeats. Both bounds err on the side of the device, so that no right
kernel is refused:

- rates are at the highest clocks that the card has, not at those that its datasheet assumes (`peaks.Limits`);
- a backward pass has to do four matrix products, one that keeps the probabilities needs no fifth, so it is held to
  twice a forward pass (`Workload.flops` counts two and a half times, with FlashAttention-2);
- as many bytes as the last-level cache holds may be there already, or stay there, and are left out;
- in float32 the rate is not known (a kernel may take TF32 or split its numbers): only the bytes count.

`floor_table` holds any table of times to the same, without a device.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from fluxbench.device.detection import Device
from fluxbench.device.peaks import Peak, peak
from fluxbench.operations.workloads import Workload

_PASSES = {"forward": 1, "backward": 2, "forward_backward": 3}  # in forward passes, of the fewest operations
SENTENCE = "faster than the device can be"
_16_BIT = ("bfloat16", "float16")


@dataclass(frozen=True, kw_only=True)
class Floor:
    """The shortest time that a call can take, in milliseconds, and how it comes about."""

    ms: float
    arithmetic: str  # "2.61e+11 FLOP / 1,071 TFLOP/s = 0.244 ms"


def shortest_ms(
    workload: Workload, rates: Peak, precision: str = "bf16", *, device: Device | None = None
) -> Floor | None:
    """Return the longer of the two bounds of a call; None where neither is known.

    `precision` is "bf16" for every kernel that computes in 16 bits, float16 included, and "fp8" for every one that uses
    a narrower format somewhere, int8 and the 4-bit ones included. The clocks are the device's own where it says them.
    """
    sm_mhz, memory_mhz = (device.sm_clock_max_mhz, device.memory_clock_max_mhz) if device else (None, None)
    floors = (computing(workload, rates, precision, sm_mhz), moving(workload, rates, memory_mhz))
    return max((floor for floor in floors if floor), key=lambda floor: floor.ms, default=None)


def computing(workload: Workload, rates: Peak, precision: str, sm_mhz: int | None = None) -> Floor | None:
    """Return the bound of the operations; None in float32."""
    if workload.dtype not in _16_BIT:
        return None
    flops = dataclasses.replace(workload, direction="forward").flops * _PASSES[workload.direction]
    tflops = rates.limits.tflops(narrow=precision == "fp8", sm_clock_mhz=sm_mhz)
    ms = flops / tflops / 1e9
    return Floor(ms=ms, arithmetic=f"{flops:.3g} FLOP / {tflops:,.0f} TFLOP/s = {ms:.3g} ms")


def moving(workload: Workload, rates: Peak, memory_mhz: int | None = None) -> Floor | None:
    """Return the bound of the bytes; None where the cache holds them all."""
    if workload.min_bytes <= rates.l2_bytes:
        return None
    gb_s = rates.limits.gb_s(memory_mhz)
    ms = (workload.min_bytes - rates.l2_bytes) / gb_s / 1e6
    count = f"({workload.min_bytes:.3g} - {rates.l2_bytes:.3g} in the cache) bytes"
    return Floor(ms=ms, arithmetic=f"{count} / {gb_s:,.0f} GB/s = {ms:.3g} ms")


def faster_than_possible(time_ms: float, workload: Workload, device: Device, precision_class: str) -> str | None:
    """Say why a time in milliseconds cannot be, with the arithmetic; None where it can, or where nothing is known.

    `precision_class` is that of a variant: "exact" or "quantized".
    """
    rates = peak(device)
    if rates is None:
        return None
    precision = "fp8" if precision_class == "quantized" else "bf16"
    return too_fast(time_ms, shortest_ms(workload, rates, precision, device=device))


def too_fast(time_ms: float, floor: Floor | None) -> str | None:
    """Say that a time is shorter than the floor, or None."""
    if floor is None or time_ms >= floor.ms:
        return None
    return f"{SENTENCE}: {time_ms:.4g} ms measured, but {floor.arithmetic}"
