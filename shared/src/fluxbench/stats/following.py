"""By how much a kernel's time follows the control kernel's: what is left of it beyond the device.

A clock that is 1% lower makes the control kernel take 1% longer. A kernel that is at the power limit even in a single
call takes 0.2% longer: on an H200 with two clocks (1,965 and 1,980 MHz, 2026-11-28) the slope was 0.9 for
FlashAttention-2, 0.8 for a Triton kernel and 0.2 for cuDNN's. So the part of the control kernel's time that is taken
off is estimated from processes of the same side, between which nothing else changes: analysis of covariance (Cochran,
Analysis of Covariance: Its Nature and Uses, Biometrics, 1957), with a prior, since a side has few processes. What is
not known of the slope is part of the error of a change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from fluxbench.stats import variances
from fluxbench.stats.pooling import Levels
from fluxbench.stats.significance import effect
from fluxbench.stats.student import critical

_SCATTER = 0.001  # of a process's mean beyond the control kernel's, at least
# Where the device changed by so much, and so many variants were measured, these tell how kernels follow it: most of
# them have not changed themselves.
_CHANGED, _SEVERAL = 0.005, 4
_LEAST_WITHIN = 0.05
_TWO = 2  # sides of a comparison; of one run, or of more, nobody asks for a change


@dataclass(frozen=True)
class Beside:
    """One variant's processes on several sides: logarithms of times, and of times over the control kernel's.

    Of each side [workloads, processes].
    """

    times: Sequence[Levels]
    over_control: Sequence[Levels]

    @cached_property
    def sides(self) -> list[tuple[Levels, Levels]]:
        """Of each side the variant's level in each process, the mean over the workloads, and the control kernel's."""
        pairs = zip(self.times, self.over_control, strict=True)
        return [(time.mean(axis=0), (time - over).mean(axis=0)) for time, over in pairs]

    @property
    def change(self) -> float:
        """How the variant's time changed from the first side to the last."""
        return float(self.sides[-1][0].mean() - self.sides[0][0].mean())

    @property
    def control_change(self) -> float:
        """How the control kernel's time changed."""
        return float(self.sides[-1][1].mean() - self.sides[0][1].mean())


@dataclass(frozen=True)
class Slope:
    """By how much a variant's time follows the control kernel's, 0 to 1, and the standard error of that."""

    value: float
    error: float

    def beyond(self, beside: Beside) -> list[Levels]:
        """Return the logarithms of the variant's times less what follows from the control kernel's, by side."""
        pairs = zip(beside.times, beside.over_control, strict=True)
        return [(1 - self.value) * time + self.value * over for time, over in pairs]


_USUAL = Slope(0.6, 0.4)  # of a kernel of which nothing else is known, by six sessions of the certificate


def slopes(variants: Sequence[Beside]) -> list[Slope]:
    """Return the slope of each variant, of the two sides of a comparison or of any number of runs.

    Where the control kernel's time changed between two sides by more than its processes explain (5%), all variants
    together tell how kernels follow such a change. Where they are too few, what is usual does: a slope from the small
    differences between processes, which are partly the control kernel's own, says too little of it.
    """
    if of_page := _of_page(variants):
        return [_slope(one, of_page) for one in variants]
    return [_USUAL if _has_changed(one) else _slope(one, _USUAL) for one in variants]


def _has_changed(one: Beside) -> bool:
    if len(one.times) != _TWO:
        return False
    change = effect(*(control.tolist() for _, control in one.sides))
    return change.df > 0 and abs(change.log_ratio) > critical(0.05, change.df) * change.se


def _of_page(variants: Sequence[Beside]) -> Slope | None:
    """Return how kernels follow a device that changed; None where that is not known."""
    changes = [one.control_change for one in variants]
    has_changed = sum(map(_has_changed, variants)) > len(variants) / 2
    if len(variants) < _SEVERAL or not has_changed or abs(median(changes)) < _CHANGED:
        return None
    seen = [one.change / change for one, change in zip(variants, changes, strict=True) if abs(change) >= _CHANGED / 2]
    return Slope(median(seen), max(_LEAST_WITHIN, variances.robust_deviation(seen)))


def _slope(one: Beside, usual: Slope) -> Slope:
    """Return a variant's slope by its processes, and by what is `usual`."""
    squares = products = own = 0.0
    df = -1
    for time, control in one.sides:
        apart = control - control.mean()
        squares += float(apart @ apart)
        products += float(apart @ time)
        own += float(((time - time.mean()) ** 2).sum())
        df += len(time) - 1
    left = own - products**2 / squares if squares else own
    scatter = max(_SCATTER**2, left / df if df > 0 else 0.0)
    known = 1 / usual.error**2 + squares / scatter
    value = (usual.value / usual.error**2 + products / scatter) / known
    return Slope(min(1.0, max(0.0, value)), math.sqrt(1 / known))
