"""A spread that the workloads of one variant share: a better known standard error from few processes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fluxbench.stats.significance import Effect


def pool(groups: Sequence[Sequence[Effect]]) -> list[list[Effect]]:
    """Return the effects with standard errors that the effects of a group share, and more degrees of freedom.

    For independent effects from equally many processes: one variant at several workloads. Where the errors within the
    groups differ no more than by chance, a group shares the root of its mean variance and the sum of its degrees of
    freedom. Where they differ more, each effect keeps part of its own variance: moderated variances (Smyth, Linear
    Models and Empirical Bayes Methods, Statistical Applications in Genetics and Molecular Biology 3, 2004), here with
    the mean for the prior, which is a little wider than Smyth's. Outright pooling would give false positives in a third
    of unchanged tables whose spreads within a group are fourfold apart. Only effects of equal degrees of freedom are
    pooled, and none without.
    """
    classes: dict[tuple[int, int], list[float]] = {}  # variances, by group and degrees of freedom
    for index, group in enumerate(groups):
        for one in group:
            if one.df:
                classes.setdefault((index, one.df), []).append(one.se**2)
    prior = _prior(classes)

    def pooled(index: int, one: Effect) -> Effect:
        variances = classes.get((index, one.df), [])
        if len(variances) < 2 or not any(variances):
            return one
        mean = math.fsum(variances) / len(variances)
        if prior >= (len(variances) - 1) * one.df:
            return replace(one, se=math.sqrt(mean), df=one.df * len(variances))
        se = math.sqrt((prior * mean + one.df * one.se**2) / (prior + one.df))
        return replace(one, se=se, df=math.floor(prior + one.df))

    return [[pooled(index, one) for one in group] for index, group in enumerate(groups)]


def _prior(classes: Mapping[tuple[int, int], Sequence[float]]) -> float:
    """Return how many degrees of freedom the mean variance of a class is worth for one of its members (Smyth, 6.2).

    The logarithm of a variance of d degrees of freedom has the variance trigamma(d / 2); the excess over that is
    trigamma(prior / 2). Infinite where there is no excess.
    """
    excess, free = 0.0, 0
    for (_, df), variances in classes.items():
        logs = np.log([variance for variance in variances if variance] or [1.0])
        excess += float(((logs - logs.mean()) ** 2).sum()) - (len(logs) - 1) * _trigamma(df / 2)
        free += len(logs) - 1
    if not free or excess <= 0:
        return math.inf
    low, high = -9.0, 20.0  # logarithms of half the prior
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _trigamma(math.exp(middle)) > excess / free else (low, middle)
    return 2 * math.exp(low)


def _trigamma(x: float) -> float:
    """Return the second derivative of the logarithm of the gamma function (Abramowitz and Stegun, 6.4.6 and 6.4.12)."""
    total = 0.0
    while x < 10:
        total += 1 / x**2
        x += 1
    return total + 1 / x + 1 / (2 * x**2) + 1 / (6 * x**3) - 1 / (30 * x**5)
