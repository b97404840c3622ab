"""A power of x to points: y = c * x**p, by least squares of logarithms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from fluxbench.stats.intervals import CONFIDENCE, Estimate
from fluxbench.stats.student import critical

LEAST = 3  # points: two always lie on a line


def exponent(x: Sequence[float], y: Sequence[float], variances: Sequence[float] = ()) -> Estimate:
    """Return p with its 95% interval.

    `variances` are those of log(y) by measurement, where they are known. The variance of a point is the mean of these,
    or what the points differ from the line by (with n - 2 degrees of freedom) where that is more: times rise in steps,
    so their own errors are seldom all. The interval is that of the slope of a straight line (Draper and Smith, Applied
    Regression Analysis, 3rd ed., 1998, section 1.4), with Student's t. Raises `ValueError` where points are fewer than
    `LEAST`, all at one x, or not positive.
    """
    if len(x) < LEAST or len(x) != len(y) or min(x) == max(x) or min(*x, *y) <= 0:
        raise ValueError(
            f"an exponent needs {LEAST} positive points at different x, got {list(zip(x, y, strict=False))}"
        )
    log_x, log_y = [math.log(value) for value in x], [math.log(value) for value in y]
    mean_x, mean_y = fmean(log_x), fmean(log_y)
    spread = math.fsum((value - mean_x) ** 2 for value in log_x)
    slope = math.fsum((one - mean_x) * (other - mean_y) for one, other in zip(log_x, log_y, strict=True)) / spread
    off = [other - mean_y - slope * (one - mean_x) for one, other in zip(log_x, log_y, strict=True)]
    df = len(x) - 2
    variance = max(math.fsum(value**2 for value in off) / df, fmean(variances) if variances else 0.0)
    half = critical(1 - CONFIDENCE, df) * math.sqrt(variance / spread)
    return Estimate(slope, slope - half, slope + half)
