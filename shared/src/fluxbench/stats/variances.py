"""Variances of few degrees of freedom: their sum, what several have in common, and what one has beyond that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

MEDIAN_OF_MANY = math.pi / 2  # the variance of a median over that of the mean, of three normal values or more at most
_OF_MAD = 1.4826  # standard deviations of a normal distribution in a median absolute deviation
APART = 10  # times the median of all, beyond which a variance is one of its own


@dataclass(frozen=True)
class Variance:
    """An estimate of a variance, and its degrees of freedom; none where nothing is known of it."""

    value: float
    df: float


def of(values: Sequence[float]) -> Variance:
    """Return the variance of some values; without degrees of freedom of a single one."""
    if len(values) < 2:
        return Variance(0.0, 0)
    middle = math.fsum(values) / len(values)
    return Variance(math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1), len(values) - 1)


def total(parts: Sequence[Variance]) -> Variance:
    """Return the sum of independent variances (Satterthwaite, An Approximate Distribution, Biometrics, 1946)."""
    value = math.fsum(part.value for part in parts)
    if not value:
        return Variance(0.0, max(part.df for part in parts))
    return Variance(value, value**2 / math.fsum(part.value**2 / part.df for part in parts if part.value))


def pooled(several: Sequence[Variance]) -> Variance:
    """Return what several variances have in common: the mean of those that are `alike`.

    Without degrees of freedom where all of them are.
    """
    kept = alike(several)
    df = math.fsum(one.df for one in kept)
    return Variance(math.fsum(one.value * one.df for one in kept) / df, df) if kept else Variance(0.0, 0)


def middle(several: Sequence[Variance]) -> Variance:
    """Return the middle of several variances of normal values: their median over that of chi-square.

    It has half their degrees of freedom: a median tells half as much as a mean, and is not moved by a few larger ones.
    Chi-square's median by Wilson and Hilferty (The Distribution of Chi-square, 1931). Without degrees of freedom where
    all are.
    """
    known = [one for one in several if one.df]
    if not known:
        return Variance(0.0, 0)
    value = median(one.value / (1 - 2 / (9 * one.df)) ** 3 for one in known)
    return Variance(value, max(1.0, math.fsum(one.df for one in known) / 2))


def robust_deviation(values: Sequence[float]) -> float:
    """Return the standard deviation of nearly normal values by their median absolute deviation, 1.4826 times that.

    A few outliers do not change it.
    """
    center = median(values)
    return _OF_MAD * median(abs(value - center) for value in values)


def alike(several: Sequence[Variance]) -> list[Variance]:
    """Return the variances that are known, without those over ten times their median.

    A variance of two degrees of freedom is that far above the median of its kind in one of a thousand cases, so nothing
    corrects a mean for those that are left out. One of a single degree is so in three of a hundred.
    """
    return [one for one, is_far in zip(several, far_out(several), strict=True) if one.df and not is_far]


def far_out(several: Sequence[Variance]) -> list[bool]:
    """Return of each variance whether it is over ten times the median of those that are known."""
    most = APART * median([one.value for one in several if one.df] or [0.0])
    return [one.value > most for one in several]


def at_least(common: Variance, own: Variance) -> Variance:
    """Return the larger of a common variance and an own one, as their sum: P + max(0, B - P).

    What is beyond the common one has the own degrees of freedom. So a variance that is like the others has the degrees
    of freedom of them all, and one far beyond them its own.
    """
    if not own.df:
        return common
    return total([common, Variance(max(0.0, own.value - common.value), own.df)])
