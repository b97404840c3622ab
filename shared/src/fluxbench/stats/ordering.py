"""Which of several variants are measurably faster than which: all pairs of one page, judged together.

A variant's times come from a few fresh processes; each process gives one value. Nothing here takes part in measuring.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist, fmean, median

from fluxbench.stats import variances
from fluxbench.stats.intervals import CONFIDENCE, Estimate
from fluxbench.stats.student import chance, critical
from fluxbench.stats.variances import Variance

LEVEL = 0.05  # of a variant: the chance that any other is wrongly called faster
_SLOWER = 0.005  # of it is spent on finding those that are clearly slower and no rivals
_NORMAL = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
NONE = Variance(0.0, 1.0)  # between places


@dataclass(frozen=True)
class Level:
    """The logarithm of a variant's time, with the variance of this estimate and its degrees of freedom.

    `widest` is what this variance would be if the variant varied as much as the widest one of the page, and ten times
    the variance of most at least. `apart` is a variance beyond these, of what was measured at another `place`.
    """

    log: float
    variance: float
    df: float
    widest: float = math.inf
    place: str = ""
    apart: Variance = NONE

    def apart_from(self, other: Level) -> Variance:
        """Return the variance of the difference that is due to their places, of one estimate."""
        if self.place == other.place or not (self.place and other.place):
            return NONE
        return Variance(self.apart.value + other.apart.value, min(self.apart.df, other.apart.df))


REFERENCE = Level(0.0, 0.0, math.inf, 0.0)  # of the reference among levels of ratios to it: these are 1, exactly


def levels(several: Sequence[Sequence[float]], within: Sequence[float] = ()) -> list[Level]:
    """Return the level of each variant, from the logarithms of its processes' values.

    Of ratios to a reference without the reference's own, which would say that variants do not vary: see `REFERENCE`.
    `within`: the variance that the samples of a process alone give its value, by variant, where that is known. A few
    values may agree by chance: where a step takes 9.8 ms in two of three calls and else 9.3, the medians of three calls
    are 9.8 in three processes in 41% of cases.

    Two degrees of freedom say little of a spread, so variants share what their variances between processes have in
    common, and one whose processes differ far more (it is tuned anew in each) keeps its wide interval. That is the
    median, and not the mean as in `intervals.means`: the mean with the degrees of freedom of all calls too much faster
    where a few variants of a large page vary more than the others. A single value says nothing of its own spread, so
    it is taken to be that of the widest; where all are single, the variance is infinite.
    """
    own = [variances.of(logs) for logs in several]
    if within:
        own = [replace(one, value=max(one.value, least)) for one, least in zip(own, within, strict=True)]
    common = variances.middle(own)
    widest = max([variances.APART * common.value, *(one.value for one in own)])
    of_single = Variance(widest, common.df) if common.df else Variance(math.inf, 1.0)
    return [
        _level(logs, variances.at_least(common, one) if one.df else of_single, widest)
        for logs, one in zip(several, own, strict=True)
    ]


def within(parts: Sequence[Sequence[float]]) -> float:
    """Return the variance that its samples alone give the median of a process: the median of all processes'.

    Of four samples or more by the range of their inner half, over what is expected of normal ones (Blom, Statistical
    Estimates and Transformed Beta-Variables, 1958): a call that stalled once does not move a median.
    """
    return median([_of_median(sorted(part)) for part in parts if len(part) > 1] or [0.0])


def _of_median(ascending: Sequence[float]) -> float:
    count, cut = len(ascending), len(ascending) // 4
    if not cut:
        return variances.MEDIAN_OF_MANY * variances.of(ascending).value / count
    place = (count - cut - 0.375) / (count + 0.25)
    spread = (ascending[count - 1 - cut] - ascending[cut]) / (2 * NormalDist().inv_cdf(place))
    return variances.MEDIAN_OF_MANY * spread**2 / count


def _level(logs: Sequence[float], whole: Variance, widest: float) -> Level:
    return Level(fmean(logs), whole.value / len(logs), whole.df, widest / len(logs))


def difference(one: Level, other: Level) -> tuple[float, float, float]:
    """Return the logarithm of one time over another's, its standard error, and its degrees of freedom."""
    of_places, own = one.apart_from(other), one.variance + other.variance
    whole = own + of_places.value
    of_own = one.variance**2 / one.df + other.variance**2 / other.df
    of_both = of_own + of_places.value**2 / of_places.df
    freedom = min(
        total**2 / parts if 0 < parts < math.inf else 1.0
        for total, parts in ((own, of_own), (whole, of_both))
        if total or not whole
    )  # that of a place makes no difference more certain
    return one.log - other.log, math.sqrt(whole), max(1.0, freedom)


def speedup(one: Level, other: Level) -> Estimate:
    """Return how many times as fast one variant is as another, with its 95% interval, uncorrected."""
    log, error, freedom = difference(other, one)
    half = critical(1 - CONFIDENCE, freedom) * error if error else 0.0
    return Estimate(math.exp(log), math.exp(log - half), math.exp(log + half))


def faster_than(every: Sequence[Level]) -> list[frozenset[int]]:
    """Return for each variant the places of those that are measurably faster.

    For each variant one-sided t tests against its rivals, with Holm's correction (1979) for their number at `LEVEL`.
    One that is clearly slower is no rival: so far behind that a first test at a tenth of that level, over all variants,
    says so (Romano, Shaikh and Wolf, A Practical Two-Step Method for Testing Moment Inequalities, Econometrica, 2014).
    As just one variant can be the fastest, the set of those that nothing beats holds it with 95% (multiple comparisons
    with the best: Hsu, Annals of Statistics, 1984), and with about 90% where some scatter far more than the others.
    """
    return [_rivals_faster(place, every) for place in range(len(every))]


def _rivals_faster(place: int, every: Sequence[Level]) -> frozenset[int]:
    chances = {other: _chance_slower(every[place], level) for other, level in enumerate(every) if other != place}
    rivals = sorted((p, other) for other, p in chances.items() if 1 - p > _SLOWER / len(chances))
    found = set()
    for step, (p, other) in enumerate(rivals):
        if p > (LEVEL - _SLOWER) / (len(rivals) - step):
            break
        found.add(other)
    return frozenset(found)


def _chance_slower(one: Level, other: Level) -> float:
    """Return the one-sided p-value of one being slower than another: small where it is.

    Of two processes the t distribution has so long a tail that hardly any difference is significant among many. So one
    also counts that would be if both varied as much as the widest variant of the page (a normal test, since the widest
    of many is rather too wide). By simulation of equal variants (41, one in seven 0.8 to 10% wide) this finds no more
    of them faster, and a variant of two processes that takes 3.6 times as long is slower than all others in 100 pages
    of 100; by the t test alone in 83.
    """
    log, error, freedom = difference(one, other)
    if not log or math.isinf(error):
        return 0.5
    if not error:
        return float(log < 0)
    two_sided = chance(log / error, int(min(freedom, 1000)))
    certain = two_sided if log > 0 else 2 - two_sided
    of_places = one.apart_from(other)
    as_wide = one.widest + other.widest
    if of_places.value:  # of few degrees of freedom
        as_wide += (critical(1 - CONFIDENCE, of_places.df) / _NORMAL) ** 2 * of_places.value
    widest = math.erfc(log / math.sqrt(2 * as_wide))
    return (min if log > 0 else max)(certain, widest) / 2
