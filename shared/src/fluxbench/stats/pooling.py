"""The effects of all variants of a page, with spreads that are estimated from all of them.

Three fresh processes a side say little of one variant's spread: four degrees of freedom. A page has tens of variants
with similar spreads, so each variance is moderated by the others (Smyth, Linear Models and Empirical Bayes Methods,
Statistical Applications in Genetics and Molecular Biology 3, 2004). The workloads of a variant are not independent:
what a process has of its own, it has at all of them. So a variance is split in two: of a process's mean over the
workloads, with the degrees of freedom of one workload, and of the rest. What differs between runs beyond their
processes cannot be seen in two runs; it is given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, variance

import numpy as np
from numpy.typing import NDArray

from fluxbench.device.targets import BetweenRuns
from fluxbench.stats.significance import Effect, VariantEffects, chance_of
from fluxbench.stats.variances import Variance, alike, total

Levels = NDArray[np.float64]  # [workloads, processes]: logarithms of a variant's times, of one side
_OUTLYING = 0.05  # the chance that any process of an unchanged page is called outlying
_ONE_SIDED = 1.645  # the normal distribution exceeds it in 5% of cases
_TRIMMED = 0.05  # the share of the largest variances that does not count for the prior's


@dataclass(frozen=True, kw_only=True)
class Outlier:
    """A process that differs from the others of its variant and side by more than the spread of the page explains."""

    variant: int  # its place among the variants
    side: int  # 0 before, 1 after
    process: int  # from 0
    log_ratio: float  # its mean level minus that of the others


def effects(
    variants: Sequence[tuple[Levels, Levels]], between: Sequence[BetweenRuns], *, apart: bool = False
) -> tuple[list[VariantEffects], list[Outlier]]:
    """Return the effects of each variant, after minus before, and the outlying processes, which are left out of them.

    Whether such a process is a fault or the kernel's own is not known: the error holds by how much leaving it out moves
    the effect, so that only a clearly larger change is significant. The two sides of a variant must have the same
    workloads; `between` has one entry a variant. Effects without degrees of freedom (one process a side) have an
    infinite error. With `apart`, a variant whose spread is far beyond that of the others is left to itself, see
    `moderated`.
    """
    kept, outliers = _without_outliers(variants)
    means, rests = _moderated_spreads([spread(sides) for sides in kept], apart=apart)
    moved = [0.0] * len(kept)
    for one in outliers:
        moved[one.variant] += (one.log_ratio / variants[one.variant][one.side].shape[1]) ** 2
    found = [_effects(*one) for one in zip(kept, between, means, rests, moved, strict=True)]
    return found, outliers


def _effects(
    sides: tuple[Levels, Levels], runs: BetweenRuns, mean: Variance, rest: Variance, moved: float
) -> VariantEffects:
    before, after = sides
    share, count = 1 / before.shape[1] + 1 / after.shape[1], len(before)
    first = before[:, :1]  # equal levels leave exactly nothing
    apart = (after - first).mean(axis=1) - (before - first).mean(axis=1)
    between = Variance(2 * (runs.variant**2 + runs.workload**2 / count), runs.df)
    of_mean = [Variance(mean.value * share + moved, mean.df), between]
    own = 1 - 1 / count
    of_rest = [Variance(rest.value * share * own, rest.df), Variance(2 * runs.workload**2 * own, runs.df)]
    known = mean.df > 0

    def alike(log_ratios: Sequence[float], parts: list[Variance]) -> tuple[Effect, ...]:
        whole = total(parts) if known else Variance(math.inf, 0.0)
        return tuple(Effect(log_ratio, math.sqrt(whole.value), whole.df) for log_ratio in log_ratios)

    rows: list[float] = apart.tolist()
    middle = fmean(rows)
    [of_all] = alike([middle], of_mean)
    return VariantEffects(
        mean=of_all,
        departures=alike([row - middle for row in rows], of_rest) if count > 1 else (),
        rows=alike(rows, [*of_mean, *of_rest]),
    )


def widened(effect: Effect, runs: BetweenRuns) -> Effect:
    """Return an effect with what differs between runs in its error."""
    if not effect.df:
        return effect
    whole = total([Variance(effect.se**2, effect.df), Variance(2 * runs.variant**2, runs.df)])
    return Effect(effect.log_ratio, math.sqrt(whole.value), whole.df)


def _moderated_spreads(
    spreads: Sequence[tuple[Variance, Variance]], *, apart: bool = False
) -> tuple[list[Variance], list[Variance]]:
    """Return both variances of each variant, moderated.

    A variant whose rest is large differs more between processes too (on an H200 the logarithms correlate by 0.5, with a
    slope of 1), so what is common to the variants is how many times the rest the other variance is.
    """
    rests = moderated([rest for _, rest in spreads], apart=apart)
    known = [rest.value for rest in rests if rest.value]
    scales = [rest.value / fmean(known) if rest.value else 1.0 for rest in rests]
    own = [Variance(mean.value / scale, mean.df) for (mean, _), scale in zip(spreads, scales, strict=True)]
    means = [
        Variance(one.value * scale, one.df) for one, scale in zip(moderated(own, apart=apart), scales, strict=True)
    ]
    return means, rests


def moderated(variances: Sequence[Variance], *, apart: bool = False) -> list[Variance]:
    """Return the variances, each drawn towards what is common to all (Smyth, 2004, section 3).

    One without degrees of freedom stays unknown. With `apart`, one far beyond the others (`variances.alike`) stays its
    own: a kernel that takes one of several sustained times, a new one in each process, says nothing of the others.
    """
    usual = alike(variances) if apart else [one for one in variances if one.df]
    scale, prior = _prior([one for one in usual if one.value])
    total = math.fsum(one.df for one in usual)
    kept = {id(one) for one in usual}
    return [_moderated(one, scale, prior, total) if id(one) in kept and prior else one for one in variances]


def _moderated(own: Variance, scale: float, prior: float, total: float) -> Variance:
    if math.isinf(prior):
        return Variance(scale, total)
    return Variance((prior * scale + own.df * own.value) / (prior + own.df), min(prior + own.df, total))


def _prior(variances: Sequence[Variance]) -> tuple[float, float]:
    """Return the prior's variance and degrees of freedom; none of one variance, infinite where nothing is in excess.

    The degrees of freedom are those of Smyth's section 6.2: the logarithm of a variance of d degrees of freedom has the
    variance trigamma(d / 2), and the excess over that is trigamma(prior / 2). Here of the excess's upper 95% limit,
    since a prior that is too sure gives false positives. The prior's variance is the mean of all but the largest
    twentieth: Smyth's, which fits the mean of the logarithms, is too small for the variants with the widest spread.
    """
    if len(variances) < 2:
        return 0.0, 0.0
    halves = [one.df / 2 for one in variances]
    logs = [math.log(one.value) - _digamma(h) + math.log(h) for one, h in zip(variances, halves, strict=True)]
    scatter = variance(logs) * (1 + _ONE_SIDED * math.sqrt(2 / (len(logs) - 1)))
    excess = scatter - fmean(map(_trigamma, halves))
    kept = sorted(one.value for one in variances)[: len(logs) - math.floor(_TRIMMED * len(logs))]
    return fmean(kept), 2 * _inverse_trigamma(excess) if excess > 0 else math.inf


def spread(sides: Sequence[Levels]) -> tuple[Variance, Variance]:
    """Return the variance of a process's mean over a variant's workloads within a side, and of what is left at each."""
    df = sum(side.shape[1] - 1 for side in sides)
    of_mean = of_rest = 0.0
    for side in sides:
        count, processes = side.shape
        apart = side - side.sum(axis=1, keepdims=True) / processes
        mean = apart.sum(axis=0) / count
        squares = float(mean @ mean)
        of_mean += squares
        of_rest += max(0.0, float((apart * apart).sum()) - count * squares)
    free = df * (len(sides[0]) - 1)
    return Variance(of_mean / max(1, df), df), Variance(of_rest / max(1, free), free)


def _without_outliers(
    variants: Sequence[tuple[Levels, Levels]],
) -> tuple[list[tuple[Levels, Levels]], list[Outlier]]:
    """Leave out outlying processes, the surest first: at most one of three or more a variant and side.

    The mean level of a process less that of the others of its side, over its standard error, is Student's t. Its
    variance is that of the variant without the process, moderated by those of the other variants. The level is
    `_OUTLYING` over the number of processes (Bonferroni).
    """
    kept, outliers = list(variants), list[Outlier]()
    limit = _OUTLYING / max(1, sum(side.shape[1] for sides in variants for side in sides))
    spreads = [spread(sides) for sides in kept]
    for outlier in _surest_first(kept, spreads):
        side, without = kept[outlier.variant][outlier.side], _without(kept, outlier)
        own = spread(without)
        others = [*spreads[: outlier.variant], own, *spreads[outlier.variant + 1 :]]
        mean = _moderated_spreads(others)[0][outlier.variant]
        se = math.sqrt(mean.value * (1 + 1 / (side.shape[1] - 1)))
        if not se or chance_of(Effect(outlier.log_ratio, se, mean.df)) > limit:
            break
        kept[outlier.variant], spreads[outlier.variant] = without, own
        outliers.append(outlier)
    return kept, outliers


def _without(variants: Sequence[tuple[Levels, Levels]], outlier: Outlier) -> tuple[Levels, Levels]:
    """Return the sides of an outlier's variant without it."""
    before, after = variants[outlier.variant]
    if outlier.side:
        return before, np.delete(after, outlier.process, axis=1)
    return np.delete(before, outlier.process, axis=1), after


def _surest_first(
    variants: Sequence[tuple[Levels, Levels]], spreads: Sequence[tuple[Variance, Variance]]
) -> list[Outlier]:
    """Return what `_furthest` does, by how far each is from the others in units of its own variant's spread.

    A variant that differs much between processes by nature is far off too, and must not hide another's outlier.
    """
    candidates, sureness = _furthest(variants), dict[Outlier, float]()
    for which in (0, 1):
        of_side = {one.variant: one for one in candidates if one.side == which}
        own = [
            spread(_without(variants, of_side[index])) if index in of_side else whole
            for index, whole in enumerate(spreads)
        ]
        means, _ = _moderated_spreads(own)
        for index, one in of_side.items():
            sureness[one] = one.log_ratio**2 / means[index].value if means[index].value else math.inf
    return sorted(candidates, key=lambda one: -sureness[one])


def _furthest(variants: Sequence[tuple[Levels, Levels]]) -> list[Outlier]:
    """Return the process of each variant and side that is furthest from the others, where there are three or more."""
    found = []
    for index, sides in enumerate(variants):
        for which, side in enumerate(sides):
            count = side.shape[1]
            if count > 2:
                means: list[float] = (side.sum(axis=0) / len(side)).tolist()
                middle = median(means)
                process = max(range(count), key=lambda one: abs(means[one] - middle))
                others = (math.fsum(means) - means[process]) / (count - 1)
                found.append(Outlier(variant=index, side=which, process=process, log_ratio=means[process] - others))
    return found


def _inverse_trigamma(value: float) -> float:
    """Return the argument at which trigamma has a value, to 1e-8 of it."""
    low, high = -9.0, 20.0  # logarithms
    for _ in range(32):
        middle = (low + high) / 2
        low, high = (middle, high) if _trigamma(math.exp(middle)) > value else (low, middle)
    return math.exp(low)


def _digamma(x: float) -> float:
    """Return the derivative of the logarithm of the gamma function (Abramowitz and Stegun, 6.3.5 and 6.3.18)."""
    total = 0.0
    while x < 10:
        total, x = total - 1 / x, x + 1
    return total + math.log(x) - 1 / (2 * x) - 1 / (12 * x**2) + 1 / (120 * x**4)


def _trigamma(x: float) -> float:
    """Return the second derivative of the logarithm of the gamma function (6.4.6 and 6.4.12)."""
    total = 0.0
    while x < 10:
        total, x = total + 1 / x**2, x + 1
    return total + 1 / x + 1 / (2 * x**2) + 1 / (6 * x**3) - 1 / (30 * x**5)
