"""The rates of the card that a row names, or those that the reader gives for a card nobody knows."""

from __future__ import annotations

import functools
import math
import re

from fluxbench.device import peaks
from fluxbench.device.peaks import Limits, Peak

_SMS = 132  # an H100's (`device/peaks.toml`)
_HALF_RATE = 0.55  # share of the limit below which the data sheet's rate is that of accumulation at half rate


@functools.cache
def every(name: str) -> tuple[Peak, ...]:
    """Return the peaks of all known cards that a table may call so: "H100" may be the SXM one, the PCIe one or the NVL.

    Every word must be one of the card's, as for `peaks.by_name`.
    """
    if find(name) is None:
        return ()
    words = set(re.findall(r"[a-z0-9]+", name.lower())) - {"nvidia", "amd", "geforce", "tesla", "tensor", "core", "gpu"}
    return tuple(card.peak for card in peaks.cards().values() if card.model in words and words <= card.words)


@functools.cache
def find(name: str) -> Peak | None:
    """Return the highest peak of all known cards that are called so; None where none is."""
    return peaks.by_name(name)


def given(tflops: float) -> Peak:
    """Return a card of which only the dense 16-bit rate is known, in TFLOP/s: no bytes are counted.

    It has as many multiprocessors as an H100.
    """
    ops = math.ceil(1e6 * tflops / _SMS)  # of a multiprocessor at 1 MHz
    limits = Limits(sms=_SMS, ops_16bit=ops, ops_narrow=4 * ops, memory_bits=0, sm_clock_mhz=1, memory_clock_mhz=0)
    return Peak(bf16_tflops=tflops, fp8_tflops=None, memory_gb_s=0.0, l2_bytes=1 << 62, source="given", limits=limits)


def sustained_peak(rates: Peak) -> float:
    """Return the dense rate with float32 accumulation at the highest clock, in TFLOP/s.

    A data sheet's rate is at a boost clock, which GeForce cards exceed by a tenth and more.
    """
    most = rates.limits.tflops()
    return most / 2 if rates.bf16_tflops < _HALF_RATE * most else most
