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

from fluxbench.stats.intervals import CONFIDENCE, Estimate, Samples
from fluxbench.stats.student import chance, critical

LEVEL = 0.05  # the chance of any false positive in a family
SAME_WITHIN = 0.01  # an equivalence margin: a change for which no reader would choose another kernel
_MANY = 200  # degrees of freedom from which on a p-value no longer depends on them
_OF_MEAN = 0.8  # the share of a variant's level for its mean change; the rest is for departures from that


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
    df: float


@dataclass(frozen=True, kw_only=True)
class VariantEffects:
    """What changed of one variant: its mean change, what each workload departs from that, and each workload's change.

    One workload alone has no departure.
    """

    mean: Effect
    departures: tuple[Effect, ...]
    rows: tuple[Effect, ...]


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


def judge(variants: Sequence[VariantEffects], *, least: float = 0.0) -> list[list[Change]]:
    """Return the change and the verdict of each row of a page, by variant: few pages have any of an unchanged variant.

    The family is that of the variants, each with one p-value: of its mean change, and of the departure of the workload
    that departs most, which finds a change at one length (Bonferroni, four fifths of the level for the first).
    Holm's procedure (A Simple Sequentially Rejective Multiple Test Procedure, Scandinavian Journal of Statistics 6,
    1979) at `LEVEL` says which variants changed, whatever the others did. A row of these is significant if its own
    change is, at `LEVEL` over the number of the variant's workloads, and larger than `least`, a share. The minimum
    detectable change is one of the whole variant, at the level at which one more variant would pass, and not under
    `least`. A variant without degrees of freedom is undecided and no member of the family.
    """
    known = [one for one in variants if one.mean.df]
    chances = {id(one): _chance_of_variant(one) for one in known}
    passed = holm(list(chances.values()))
    limit = sorted(chances.values())[passed - 1] if passed else -1.0
    level = LEVEL / max(1, len(known) - passed)
    return [_judged(one, called=chances.get(id(one), 2.0) <= limit, level=level, least=least) for one in variants]


def holm(chances: Sequence[float], level: float = LEVEL) -> int:
    """Return how many of these p-values, the smallest, are significant at a level by Holm's procedure."""
    steps = (p <= level / (len(chances) - rank) for rank, p in enumerate(sorted(chances)))
    return next((rank for rank, passes in enumerate(steps) if not passes), len(chances))


def chance_of(one: Effect) -> float:
    """Return the two-sided p-value of an effect; 1 of no degree of freedom. Broken ones are rounded down."""
    if not one.log_ratio or not one.df:
        return 1.0
    return chance(one.log_ratio / one.se if one.se else math.inf, max(1, min(math.floor(one.df), _MANY)))


def chance_over(one: Effect, least: float) -> float:
    """Return the one-sided p-value of an effect being over `least`, a logarithm: small where it is; 1/2 if unknown."""
    beyond = one.log_ratio - least
    two_sided = chance_of(Effect(beyond, one.se, one.df))
    return two_sided / 2 if beyond > 0 else 1 - two_sided / 2


def estimate(one: Effect) -> Estimate:
    """Return the ratio of an effect with its own 95% interval, uncorrected; from 0 to infinity if that is unknown."""
    half = critical(1 - CONFIDENCE, one.df) * one.se if one.df and one.se else one.se
    return Estimate(_exp(one.log_ratio), math.exp(one.log_ratio - half), _exp(one.log_ratio + half))


def _chance_of_variant(one: VariantEffects) -> float:
    if not one.departures:
        return chance_of(one.mean)
    departing = len(one.departures) * min(map(chance_of, one.departures))
    return min(chance_of(one.mean) / _OF_MEAN, departing / (1 - _OF_MEAN))


def _judged(variant: VariantEffects, *, called: bool, level: float, least: float) -> list[Change]:
    own, of_mean = LEVEL / len(variant.rows), level * (_OF_MEAN if variant.departures else 1.0)
    detectable = max(least, _least(variant.mean, of_mean))
    return [
        _change(
            row,
            significant=called and chance_of(row) <= own and _exp(abs(row.log_ratio)) - 1 > least,
            detectable=max(detectable, _least(row, own)),
        )
        for row in variant.rows
    ]


def _least(one: Effect, level: float) -> float:
    """Return the smallest change that is significant at a level, a share; infinite without degrees of freedom."""
    return _exp(critical(level, one.df) * one.se) - 1 if one.df else math.inf


def _change(one: Effect, *, significant: bool, detectable: float) -> Change:
    if not one.df:
        return Change(_exp(one.log_ratio), 0.0, math.inf, Verdict.UNDECIDED, None)
    half = critical(1 - CONFIDENCE, one.df) * one.se
    low, high = _exp(one.log_ratio - half), _exp(one.log_ratio + half)
    if significant:
        verdict = Verdict.SLOWER if one.log_ratio > 0 else Verdict.FASTER
    else:
        same = low >= 1 / (1 + SAME_WITHIN) and high <= 1 + SAME_WITHIN
        verdict = Verdict.SAME if same else Verdict.UNDECIDED
    return Change(_exp(one.log_ratio), low, high, verdict, detectable if math.isfinite(detectable) else None)


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
