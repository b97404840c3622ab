"""By how much a kernel's time follows the control kernel's: what is left of it beyond the device.

A clock that is 1% lower makes the control kernel take 1% longer. A kernel that is at the power limit even in a single
call takes 0.2% longer: on an H200 with two clocks (1,965 and 1,980 MHz, 2026-11-28) the slope was 0.9 for
FlashAttention-2, 0.8 for a Triton kernel and 0.2 for cuDNN's. So the part of the control kernel's time that is taken
off is estimated from processes of the same side, between which nothing else changes: analysis of covariance (Cochran,
Analysis of Covariance: Its Nature and Uses, Biometrics, 1957).
"""

from __future__ import annotations

from collections.abc import Sequence

from fluxbench.stats.pooling import Levels
from fluxbench.stats.significance import effect
from fluxbench.stats.student import critical

# What is known before: as if one more degree of freedom had shown a kernel that follows all of 0.1%. Where the control
# kernel hardly moves within a side there is little else to estimate a slope from.
_KNOWN = 0.001**2
_TWO = 2  # sides of a comparison; several runs of which nobody asks for a change may be more


def slope(times: Sequence[Levels], over_control: Sequence[Levels]) -> float:
    """Return by how much a variant's time follows the control kernel's, 0 to 1, from its processes on several sides.

    Both hold, for each side, logarithms [workloads, processes]: of times, and of times over the control kernel's. Of
    two sides between which the control kernel's time changed by more than its processes explain (5%), it is 1: that is
    another device, and a slope from small differences says little of a large one.
    """
    own = [time.mean(axis=0) for time in times]
    control = [(time - over).mean(axis=0) for time, over in zip(times, over_control, strict=True)]
    if len(control) == _TWO:
        change = effect(*(beside.tolist() for beside in control))
        if change.df and abs(change.log_ratio) > critical(0.05, change.df) * change.se:
            return 1.0
    squares = products = _KNOWN
    for time, beside in zip(own, control, strict=True):
        apart = beside - beside.mean()
        squares += float(apart @ apart)
        products += float(apart @ time)
    return min(1.0, max(0.0, products / squares))


def beyond(times: Sequence[Levels], over_control: Sequence[Levels]) -> list[Levels]:
    """Return the logarithms of a variant's times less what follows from the control kernel's, by side."""
    part = slope(times, over_control)
    return [(1 - part) * time + part * over for time, over in zip(times, over_control, strict=True)]
