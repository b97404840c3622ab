"""The shortest time that a call can take: no device computes faster than its peak rate, nor moves bytes faster.

A time under it is wrong, however often it repeats. Both bounds err on the side of the device, so that no right kernel
is refused:

- rates are at the highest clocks that the card has, not at those that its data sheet assumes (`peaks.Limits`);
- of the operations the fewest are counted that an exact algorithm needs (`Cost.min_flops`);
- as many bytes as the last-level cache holds may be there already, or stay there, and are left out;
- in float32 the rate is not known (a kernel may take TF32 or split its numbers): only the bytes count.
"""

from __future__ import annotations

from dataclasses import dataclass

from fluxbench.device.model import Device
from fluxbench.device.peaks import Peak, peak
from fluxbench.operations.precision import QUANTIZED
from fluxbench.operations.workload import Workload

_16_BIT = ("bfloat16", "float16")


@dataclass(frozen=True, kw_only=True)
class Roofline:
    """The shortest time that a call can take, in milliseconds, and its arithmetic."""

    ms: float
    arithmetic: str  # "2.61e+11 FLOP / 1,071 TFLOP/s = 0.244 ms"


def shortest(
    workload: Workload, rates: Peak, precision: str = "16-bit", *, device: Device | None = None
) -> Roofline | None:
    """Return the longer of the two bounds of a call; None where neither is known.

    `precision` is "16-bit" for every kernel that computes in 16 bits, and "narrow" for every one that uses fewer
    somewhere: float8, int8 and the 4-bit formats. The clocks are the device's own where it reports them. A call that
    several ranks share takes each of them at least its part.
    """
    sm_mhz, memory_mhz = (device.sm_clock_max_mhz, device.memory_clock_max_mhz) if device else (None, None)
    bounds = (compute_bound(workload, rates, precision, sm_mhz), memory_bound(workload, rates, memory_mhz))
    return max((bound for bound in bounds if bound), key=lambda bound: bound.ms, default=None)


def compute_bound(workload: Workload, rates: Peak, precision: str, sm_mhz: int | None = None) -> Roofline | None:
    """Return the bound of the operations; None in float32."""
    if workload.dtype not in _16_BIT:
        return None
    flops = workload.cost.min_flops / workload.ranks
    tflops = rates.limits.tflops(narrow=precision == "narrow", sm_clock_mhz=sm_mhz)
    ms = flops / tflops / 1e9
    return Roofline(ms=ms, arithmetic=f"{flops:.3g} FLOP / {tflops:,.0f} TFLOP/s = {ms:.3g} ms")


def memory_bound(workload: Workload, rates: Peak, memory_mhz: int | None = None) -> Roofline | None:
    """Return the bound of the bytes; None where the cache holds them all."""
    moved = workload.cost.min_bytes / workload.ranks
    if moved <= rates.l2_bytes:
        return None
    gb_s = rates.limits.gb_s(memory_mhz)
    ms = (moved - rates.l2_bytes) / gb_s / 1e6
    return Roofline(
        ms=ms, arithmetic=f"({moved:.3g} - {rates.l2_bytes:.3g} in the cache) bytes / {gb_s:,.0f} GB/s = {ms:.3g} ms"
    )


def faster_than_possible(time_ms: float, workload: Workload, device: Device, precision_class: str) -> str | None:
    """Return the arithmetic by which a time in milliseconds cannot be; None where it can, or nothing is known.

    `precision_class` is that of a variant; only quantized ones compute in fewer than 16 bits.
    """
    rates = peak(device)
    if rates is None:
        return None
    bound = shortest(workload, rates, "narrow" if precision_class == QUANTIZED else "16-bit", device=device)
    return too_fast(time_ms, bound)


def too_fast(time_ms: float, bound: Roofline | None) -> str | None:
    """Return the arithmetic where a time is shorter than its bound, else None."""
    if bound is None or time_ms >= bound.ms:
        return None
    return f"faster than the device can be: {time_ms:.4g} ms measured, but {bound.arithmetic}"
