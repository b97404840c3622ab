"""How a time changed between two measurements: the effect, its interval, and the verdict.

Two measurements at different times are compared process by process, not sample by sample: the fresh process is the
unit that is repeated (Kalibera and Jones, Rigorous Benchmarking in Reasonable Time, ISMM 2013). Times are compared as
logarithms, so that a slowdown and its reverse are of the same size. Nothing here takes part in measuring: an edit
leaves measured results fresh.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from fluxbench.stats.intervals import CONFIDENCE, Samples
from fluxbench.stats.student import chance, critical

FALSE_DISCOVERY_RATE = 0.05  # the expected share of false positives among the significant changes of one family
SAME_WITHIN = 0.01  # an equivalence margin: a change for which no reader would choose another kernel
# How far two fresh runs of the same kernel can differ beyond their intervals: own measurements on an H200.
SYSTEMATIC = 0.003


class Verdict(enum.StrEnum):
    """How a time changed."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"  # not significant, and the whole interval lies within `SAME_WITHIN`
    UNDECIDED = "undecided"  # not significant, and the interval is too wide for "same"


@dataclass(frozen=True)
class Change:
    """The ratio of the time after to the time before, with its own 95% interval: over 1 is slower."""

    ratio: float
    low: float
    high: float
    verdict: Verdict
    minimum_detectable_change: float | None  # the smallest change that would be significant, a share: 0.004 is 0.4%

    @property
    def significant(self) -> bool:
        """Whether the verdict is faster or slower."""
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
    """Return one number for each process: the logarithm of its median, averaged over `parts`.

    Each part holds one inner sequence for each process, of the same processes in the same order. Raises `ValueError`
    where a process has no sample, a sample is not positive or the numbers of processes differ.
    """
    if not parts or not all(len(samples) for part in parts for samples in part) or not all(map(len, parts)):
        raise ValueError("samples must come from at least one process, and at least one from each")
    if len({len(part) for part in parts}) > 1:
        raise ValueError(f"parts must have the same processes, got {', '.join(str(len(part)) for part in parts)}")
    medians = np.array([[median(samples) for samples in part] for part in parts])
    if not np.all(medians > 0):
        raise ValueError(f"times must be positive, got a median of {medians.min():g}")
    return [float(level) for level in np.log(medians).mean(axis=0)]


def levels_beside(samples: Samples, beside: Samples) -> list[float]:
    """Return the `levels` of samples over those that were taken beside them.

    Samples of equal number were taken in the same rounds: then a level is the median of the logarithms of their
    quotients, from which a clock that moves between rounds drops out; else it is the difference of the two `levels`.
    Raises `ValueError` where `levels` does.
    """
    apart = [one - other for one, other in zip(levels(samples), levels(beside), strict=True)]
    return [
        float(np.median(np.log(own) - np.log(other))) if len(own) == len(other) else level
        for own, other, level in zip(samples, beside, apart, strict=True)
    ]


def effect(before: Sequence[float], after: Sequence[float]) -> Effect:
    """Return the difference of the means of two sets of `levels`, after minus before.

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
    """Return the mean of independent effects of equal variance.

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


def judge(effects: Sequence[Effect], *, least: float = SYSTEMATIC) -> list[Change]:
    """Return the change and the verdict of each effect of one family, judged together.

    Two-sided t tests with Benjamini and Hochberg's procedure (Controlling the False Discovery Rate, 1995) at
    `FALSE_DISCOVERY_RATE`: of the significant changes at most one in twenty is expected to be a false positive, and
    where nothing changed the chance of any is 5%. A change is significant only if it is also larger than `least`, a
    share. The minimum detectable change is at the level at which one more would pass, and not under `least`. An effect
    without degrees of freedom is undecided and no member of the family.
    """
    chances = [_chance(one) for one in effects if one.df]
    steps = enumerate(sorted(chances), start=1)
    limit = max((p for rank, p in steps if p <= FALSE_DISCOVERY_RATE * rank / len(chances)), default=-1.0)
    passed = sum(p <= limit for p in chances)
    level = FALSE_DISCOVERY_RATE * min(1.0, (passed + 1) / max(1, len(chances)))
    return [_change(one, sure=bool(one.df) and _chance(one) <= limit, level=level, least=least) for one in effects]


def _chance(one: Effect) -> float:
    """Return the two-sided p-value of an effect."""
    if not one.log_ratio:
        return 1.0
    return chance(one.log_ratio / one.se if one.se else math.inf, one.df)


def _change(one: Effect, *, sure: bool, level: float, least: float) -> Change:
    if not one.df:
        return Change(_exp(one.log_ratio), 0.0, math.inf, Verdict.UNDECIDED, None)
    half = critical(1 - CONFIDENCE, one.df) * one.se
    low, high = _exp(one.log_ratio - half), _exp(one.log_ratio + half)
    detectable = max(least, _exp(critical(level, one.df) * one.se) - 1)
    if sure and _exp(abs(one.log_ratio)) - 1 > least:
        verdict = Verdict.SLOWER if one.log_ratio > 0 else Verdict.FASTER
    else:
        same = low >= 1 / (1 + SAME_WITHIN) and high <= 1 + SAME_WITHIN
        verdict = Verdict.SAME if same else Verdict.UNDECIDED
    return Change(_exp(one.log_ratio), low, high, verdict, detectable if math.isfinite(detectable) else None)


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
