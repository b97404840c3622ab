"""Levels of variants whose samples share their rounds with the reference's, as on a CPU.

What disturbs a round there are other programs, in each process alike, so that rounds say more of the scatter than the
few processes do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, variance

from fluxbench.stats import variances
from fluxbench.stats.intervals import Samples, quotients
from fluxbench.stats.ordering import REFERENCE, Level
from fluxbench.stats.variances import Variance


def levels(pairs: Sequence[tuple[Samples, Samples]]) -> list[Level]:
    """Return the level of each variant, from its samples and those of the reference in the same rounds.

    It is the logarithm of their ratio: of each process the median over rounds, then the mean of these. Medians, because
    a program that runs for a part of a round hits one side alone, by any factor. The rounds give a process's median the
    variance W, and the medians have the variance B. What B exceeds W by is the processes' part, C on average over the
    variants whose B are at most ten times their median: the variance of one process is W + max(0, C, B - W), with
    Satterthwaite's degrees of freedom, as in `stats.intervals`. Where C is 0 and B under W, both are estimates of it:
    it is W with the degrees of freedom of both, as W alone has hardly one where a program stalled one of a few rounds;
    their mean would be too small, since B counts only where it is. Of a single round in all it is infinite. The
    reference, whose samples are beside themselves, has `ordering.REFERENCE`. Raises `ValueError` where `quotients`
    does.
    """
    spreads = [None if own is beside else _spread(own, beside) for own, beside in pairs]
    several = [each for each in spreads if each and each.between.df]
    alike = [
        each
        for each, is_far in zip(several, variances.far_out([each.between for each in several]), strict=True)
        if not is_far
    ]
    excess = fmean(each.between.value - each.within.value for each in alike) if alike else 0.0
    common = Variance(max(0.0, excess), sum(each.between.df for each in alike))
    return [_level(each, common) if each else REFERENCE for each in spreads]


@dataclass(frozen=True, kw_only=True)
class _Spread:
    log: float
    processes: int
    within: Variance  # W; without degrees of freedom where each process has one round
    between: Variance  # B; without degrees of freedom of a single process


def _spread(samples: Samples, reference: Samples) -> _Spread:
    processes = [[math.log(ratio) for ratio in part] for part in quotients(samples, reference)]
    middles = [median(logs) for logs in processes]
    # Of each process by its own rounds: there are few where they agree, and many where they do not.
    parts = [Variance(_of_median(logs), len(logs) - 1) for logs in processes if len(logs) > 1]
    whole = variances.total(parts) if parts else Variance(0.0, 0)
    return _Spread(
        log=fmean(middles),
        processes=len(middles),
        within=Variance(whole.value / max(1, len(parts)), whole.df),
        between=variances.of(middles),
    )


def _of_median(logs: Sequence[float]) -> float:
    """Return the variance of the median of some rounds."""
    return variance(logs) / len(logs) * (1.0 if len(logs) < 3 else variances.MEDIAN_OF_MANY)


def _level(of: _Spread, common: Variance) -> Level:
    if of.processes == 1 and not of.within.value:
        return Level(of.log, math.inf, 1.0)
    own = of.between.value - of.within.value
    if own <= common.value == 0:
        whole = Variance(of.within.value, of.within.df + of.between.df)
    else:
        whole = variances.total([of.within, max(common, Variance(own, of.between.df), key=lambda one: one.value)])
    return Level(of.log, whole.value / of.processes, max(1.0, whole.df))
