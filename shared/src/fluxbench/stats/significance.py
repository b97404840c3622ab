"""What became of a time between two measurements: the effect, how sure it is, and what it is called.

Two measurements at different times are compared process by process, not sample by sample: the fresh process is the
unit that is repeated (Kalibera and Jones, Rigorous Benchmarking in Reasonable Time, ISMM 2013). Times are compared as
logarithms, so that a slowdown and its reverse are of the same size. Nothing here takes part in measuring: an edit
leaves measured results as they are.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fluxbench.stats.intervals import CONFIDENCE, Samples
from fluxbench.stats.student import chance, critical

FALSE_DISCOVERY_RATE = 0.05  # of the changes that are called in one family, the share expected to be none
SAME_WITHIN = 0.01  # an equivalence margin: a change for which no reader would choose another kernel
# By so much can two fresh runs of the same thing differ without an interval of theirs knowing: own measurements, H200.
SYSTEMATIC = 0.003


class Verdict(enum.StrEnum):
    """What became of a time."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"  # not called, and the whole interval lies within `SAME_WITHIN`
    UNDECIDED = "undecided"  # not called, and what it may be is too much to be the same


@dataclass(frozen=True)
class Change:
    """The ratio of the time after to the time before, with its own 95% interval: over 1 is slower."""

    ratio: float
    low: float
    high: float
    verdict: Verdict
    resolution: float | None  # the smallest change that would have been called, a share: 0.004 is 0.4%

    @property
    def called(self) -> bool:
        """Whether this is said to have moved."""
        return self.verdict in (Verdict.FASTER, Verdict.SLOWER)


@dataclass(frozen=True)
class Effect:
    """An estimate of the logarithm of a ratio, its standard error, and the degrees of freedom that that has.

    With no degree of freedom nothing is known of the error, and it is infinite.
    """

    log_ratio: float
    se: float
    df: int


def levels(*parts: Samples) -> list[float]:
    """Return one number a process: the logarithm of its median, averaged over `parts`.

    Each part holds one inner sequence a process, of the same processes in the same order. Raises `ValueError` where a
    process has no sample, a sample is not positive or the numbers of processes differ.
    """
    if not parts or not all(len(samples) for part in parts for samples in part) or not all(map(len, parts)):
        raise ValueError("samples must come from at least one process, and at least one from each")
    if len({len(part) for part in parts}) > 1:
        raise ValueError(f"parts must have the same processes, got {', '.join(str(len(part)) for part in parts)}")
    medians = np.array([[np.median(samples) for samples in part] for part in parts])
    if not np.all(medians > 0):
        raise ValueError(f"times must be positive, got a median of {medians.min():g}")
    return [float(level) for level in np.log(medians).mean(axis=0)]


def levels_beside(samples: Samples, beside: Samples) -> list[float]:
    """Return the `levels` of samples over those that were taken beside them.

    Samples of equal number were taken in the same rounds: then a level is the median of the logarithms of their
    quotients, which a clock that moves from round to round leaves; else the difference of the two `levels`. Raises
    `ValueError` where `levels` does.
    """
    apart = [one - other for one, other in zip(levels(samples), levels(beside), strict=True)]
    return [
        float(np.median(np.log(own) - np.log(its))) if len(own) == len(its) else level
        for own, its, level in zip(samples, beside, apart, strict=True)
    ]


def effect(before: Sequence[float], after: Sequence[float]) -> Effect:
    """Return the difference of the means of two sets of `levels`, after less before.

    The two are independent, of equal variance: `len(before) + len(after) - 2` degrees of freedom. Raises `ValueError`
    where a side is empty.
    """
    if not before or not after:
        raise ValueError(f"both sides must have a process, got {len(before)} before and {len(after)} after")
    first, second = (np.array(side) - before[0] for side in (before, after))  # equal levels leave exactly nothing
    log_ratio, df = float(second.mean() - first.mean()), len(first) + len(second) - 2
    if df < 1:
        return Effect(log_ratio, math.inf, 0)
    squares = sum(float(((side - side.mean()) ** 2).sum()) for side in (first, second))
    return Effect(log_ratio, math.sqrt(squares / df * (1 / len(first) + 1 / len(second))), df)


def mean_effect(effects: Sequence[Effect]) -> Effect:
    """Return the mean of independent effects of equal variance: a level that one of them has for itself leaves it.

    Exact where all come from equally many processes. Raises `ValueError` where there is none.
    """
    if not effects:
        raise ValueError("a mean must be of at least one effect, got none")
    known = all(one.df for one in effects)
    return Effect(
        math.fsum(one.log_ratio for one in effects) / len(effects),
        math.hypot(*(one.se for one in effects)) / len(effects),
        sum(one.df for one in effects) if known else 0,
    )


def pool(groups: Sequence[Sequence[Effect]]) -> list[list[Effect]]:
    """Return the effects with what those of their group say of their spread: a better known error, more degrees of it.

    For independent effects from equally many processes: one variant at several workloads. Where the errors within the
    groups differ no more than chance lets them, a group shares the root of its mean variance and the sum of its degrees
    of freedom. Where they differ more, each keeps as much of its own as that tells: moderated variances (Smyth, Linear
    Models and Empirical Bayes Methods, Statistical Applications in Genetics and Molecular Biology 3, 2004), here with
    the mean for the prior, which is a little wider than Smyth's. Pooling outright would call changes in a third of
    unchanged tables whose spreads within a group are fourfold apart. Only effects of equal degrees of freedom are
    pooled, and none of which nothing is known.
    """
    classes: dict[tuple[int, int], list[float]] = {}  # variances, by group and degrees of freedom
    for index, group in enumerate(groups):
        for one in group:
            if one.df:
                classes.setdefault((index, one.df), []).append(one.se**2)
    prior = _prior(classes)

    def pooled(index: int, one: Effect) -> Effect:
        its = classes.get((index, one.df), [])
        if len(its) < 2 or not any(its):
            return one
        mean = math.fsum(its) / len(its)
        if prior >= (len(its) - 1) * one.df:
            return replace(one, se=math.sqrt(mean), df=one.df * len(its))
        se = math.sqrt((prior * mean + one.df * one.se**2) / (prior + one.df))
        return replace(one, se=se, df=math.floor(prior + one.df))

    return [[pooled(index, one) for one in group] for index, group in enumerate(groups)]


def _prior(classes: Mapping[tuple[int, int], Sequence[float]]) -> float:
    """Return how many degrees of freedom the mean variance of a class is worth for one of its members (Smyth, 6.2).

    The logarithm of a variance of d degrees of freedom has the variance trigamma(d / 2); what is seen beyond that is
    trigamma(prior / 2). Infinite where nothing is.
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


def judge(effects: Sequence[Effect], *, floor: float = SYSTEMATIC) -> list[Change]:
    """Return what each effect of one family is called, all at once.

    Two-sided t tests, called by Benjamini and Hochberg's procedure (Controlling the False Discovery Rate, 1995) at
    `FALSE_DISCOVERY_RATE`: of the changes that are called at most one in twenty is expected to be none, and where
    nothing has changed the chance that anything is called is 5%. Of these, only a change of more than `floor`, a share,
    is called. `resolution` is at the level at which one more would be called, and no smaller than `floor`. An effect
    without degrees of freedom is undecided and no member of the family.
    """
    chances = [_chance(one) for one in effects if one.df]
    steps = enumerate(sorted(chances), start=1)
    limit = max((p for rank, p in steps if p <= FALSE_DISCOVERY_RATE * rank / len(chances)), default=-1.0)
    passed = sum(p <= limit for p in chances)
    level = FALSE_DISCOVERY_RATE * min(1.0, (passed + 1) / max(1, len(chances)))
    return [_change(one, sure=bool(one.df) and _chance(one) <= limit, level=level, floor=floor) for one in effects]


def _chance(one: Effect) -> float:
    """Return the two-sided p-value of an effect."""
    if not one.log_ratio:
        return 1.0
    return chance(one.log_ratio / one.se if one.se else math.inf, one.df)


def _change(one: Effect, *, sure: bool, level: float, floor: float) -> Change:
    if not one.df:
        return Change(_exp(one.log_ratio), 0.0, math.inf, Verdict.UNDECIDED, None)
    half = critical(1 - CONFIDENCE, one.df) * one.se
    low, high = _exp(one.log_ratio - half), _exp(one.log_ratio + half)
    resolution = max(floor, _exp(critical(level, one.df) * one.se) - 1)
    if sure and _exp(abs(one.log_ratio)) - 1 > floor:
        verdict = Verdict.SLOWER if one.log_ratio > 0 else Verdict.FASTER
    else:
        same = low >= 1 / (1 + SAME_WITHIN) and high <= 1 + SAME_WITHIN
        verdict = Verdict.SAME if same else Verdict.UNDECIDED
    return Change(_exp(one.log_ratio), low, high, verdict, resolution if math.isfinite(resolution) else None)


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
