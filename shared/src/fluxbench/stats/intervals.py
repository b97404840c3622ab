"""Medians and means with 95% intervals, of samples that come from several fresh processes.

All that the records of a cell say of their times follows from the samples by four functions, without randomness but
that of a fixed seed. Burst: `medians` of a variant's samples, and of their `quotients` over the reference's. Sustained:
`means` of all variants of the cell, and `mean_ratios`. Samples hold one inner sequence for each process.

Samples of one process share its memory layout, its compiled code and its clock history, so they are not independent.
For means each process therefore counts as one value. For medians the bootstrap resamples processes first and samples
within each process after (a two-stage bootstrap: Davison and Hinkley, Bootstrap Methods and their Application, 1997,
section 3.8). Few processes make it too narrow, so its standard errors are widened and go with Student's t: `medians`
says how. What changed between two measurements is judged in `fluxbench.stats.significance`, and which of several
variants is faster in `fluxbench.stats.ordering`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

from fluxbench.stats import variances
from fluxbench.stats.bootstrap import draws
from fluxbench.stats.student import critical
from fluxbench.stats.variances import Variance

_AT_ONCE = 64  # of several samples, whose draws fit in a cache
# The correlation between the variances of workloads that were measured apart, if their deviations correlate by 1/2.
# These do by 0.09 and 0.25 on two pages of an H200 whose lengths have blocks of their own, and by 0.11 in the steps of
# models (2026-11-29 and 30).
_OF_UNITS = 1 / 4
CONFIDENCE = 0.95
Samples = Sequence[Sequence[float]]  # one inner sequence a process


@dataclass(frozen=True)
class Estimate:
    """A value and its 95% interval, in the unit of the samples (a ratio has none)."""

    value: float
    low: float
    high: float


def means(several: Sequence[Sequence[Samples]], units: Sequence[Sequence[Hashable]] = ()) -> list[list[Estimate]]:
    """Return the mean of sustained samples with its interval, for each variant of a cell and each of its workloads.

    Of each process first, then of these (geometric). Each process counts as one value: within it the clock swings with
    the power limit's period, so what its samples differ by says nothing of it. Few processes say little of how far
    they differ, so the variants share what they have in common: P, pooled over their variances between processes, each
    the mean over its workloads. Those of one unit correlate by 0.4 to 0.9, and so count once. `units` says by variant
    what each workload was measured in; n units have n / (1 + (n - 1) / 4) times the degrees of freedom of one. Without
    them all workloads are of one, as in records before 2026-11-30. A workload whose own variance is over ten times the
    median of its variant's (`variances.alike`) keeps it and widens no other: of a step that the host launches beside
    one that the device computes for longer. A variant whose own variance B is larger has P + max(0, B - P) with
    Satterthwaite's degrees of freedom (`variances.at_least`): one that is tuned anew in each process has the interval
    of Student's t over its own means. The more variants are given, the reference included, the better P is known.
    Coverage by simulation: `benchmarks/coverage.py`.

    Where no variant has two processes, nothing is known of P: the intervals are of the samples alone. Raises
    `ValueError` where there is no process, a process has no sample or a sample is not positive.
    """
    return _of_cell([[[samples] for samples in by_workload] for by_workload in several], units, shared=0.0)


def mean_ratios(
    several: Sequence[Sequence[Samples]],
    references: Sequence[Sequence[Samples]],
    units: Sequence[Sequence[Hashable]] = (),
) -> list[list[Estimate]]:
    """Return the `means` of sustained samples over those of the reference: under 1 is faster.

    Paired by process: what a process adds to both leaves the ratio. A process without samples of the reference is left
    out. Ratios of one cell hold the same reference. Where it scatters as a variant does, their deviations correlate by
    one half and so their variances by a quarter: n of them have 1 / (1 + (n - 1) / 4) of their degrees of freedom.
    Raises `ValueError` where the numbers of processes differ, none is left, and where `means` does.
    """
    pairs = [
        [_paired(*pair) for pair in zip(*of_variant, strict=True)]
        for of_variant in zip(several, references, strict=True)
    ]
    return _of_cell(pairs, units, shared=1 / 4)


def quotients(samples: Samples, reference: Samples) -> list[list[float]]:
    """Return each burst sample over that of the reference in the same round, whose clock it shares.

    A process without samples of the reference is left out. Raises `ValueError` where the numbers of processes differ,
    none is left, or those of samples in a process.
    """
    pairs = zip(*_paired(samples, reference), strict=True)
    return [[one / other for one, other in zip(own, beside, strict=True)] for own, beside in pairs]


def _paired(samples: Samples, reference: Samples) -> list[list[Sequence[float]]]:
    if len(samples) != len(reference):
        raise ValueError(
            f"a paired ratio must have the same processes on both sides, got {len(samples)} and {len(reference)}"
        )
    pairs = [(own, beside) for own, beside in zip(samples, reference, strict=True) if len(beside)]
    _count([[own for own, _ in pairs]])
    return [[own for own, _ in pairs], [beside for _, beside in pairs]]


def _of_cell(
    cell: Sequence[Sequence[Sequence[Samples]]], units: Sequence[Sequence[Hashable]], *, shared: float
) -> list[list[Estimate]]:
    """Return the mean of a first side, over that of a second where there is one, by variant and workload.

    `shared` is the correlation between the variances of two variants.
    """
    values = [[_values(sides) for sides in by_workload] for by_workload in cell]
    own = [
        _between([logs for _, logs in by_workload], its)
        for by_workload, its in zip(values, units or [()] * len(values), strict=True)
    ]
    common = variances.pooled([shared_by_all for shared_by_all, _ in own])
    known = sum(shared_by_all.df > 0 for shared_by_all, _ in own)
    common = Variance(common.value, common.df / (1 + (known - 1) * shared) if known else 0)
    return [
        [
            _estimate(first, logs, variances.at_least(common, one) if known else _within(sides))
            for sides, (first, logs), one in zip(by_workload, of_variant, of_workloads, strict=True)
        ]
        for by_workload, of_variant, (_, of_workloads) in zip(cell, values, own, strict=True)
    ]


def _values(sides: Sequence[Samples]) -> tuple[float, list[float]]:
    """Return a first process's mean, or ratio of means, and the logarithms of all over it: equal ones are zero."""
    _count(sides)
    middles = [[fmean(part) for part in side] for side in sides]
    values = [one / other for one, other in zip(*middles, strict=True)] if len(sides) > 1 else middles[0]
    return values[0], [math.log(value / values[0]) for value in values]


def _between(by_workload: Sequence[Sequence[float]], units: Sequence[Hashable]) -> tuple[Variance, list[Variance]]:
    """Return the variance between a variant's processes, the mean over its units and their workloads; and of each.

    That of a workload is the mean, or its own where it is far beyond the others, which is not in the mean.
    """
    own = [variances.of(logs) for logs in by_workload]
    far = variances.far_out(own)
    kept: dict[Hashable, list[Variance]] = {}
    for unit, one, is_far in zip(units or [None] * len(own), own, far, strict=True):
        if one.df and not is_far:
            kept.setdefault(unit, []).append(one)
    if not kept:
        return Variance(0.0, 0), own
    df = min(one.df for its in kept.values() for one in its) * len(kept) / (1 + (len(kept) - 1) * _OF_UNITS)
    mean = Variance(fmean(fmean(one.value for one in its) for its in kept.values()), df)
    return mean, [one if is_far else mean for one, is_far in zip(own, far, strict=True)]


def _within(sides: Sequence[Samples]) -> Variance:
    """Return the variance that its samples alone give the logarithm of a process's mean, of one process a side."""
    parts = [variances.of([sample / fmean(part) for sample in part]) for [part] in sides]
    known = [Variance(one.value / len(part), one.df) for one, [part] in zip(parts, sides, strict=True) if one.df]
    return variances.total(known) if known else Variance(0.0, 0)


def _estimate(first: float, logs: Sequence[float], one: Variance) -> Estimate:
    half = critical(1 - CONFIDENCE, one.df) * math.sqrt(one.value / len(logs)) if one.value else 0.0
    value = first * math.exp(fmean(logs))
    return Estimate(value, value * math.exp(-half), value * math.exp(half))


def medians(
    several: Sequence[Samples], *, seed: int = 0, winsorized: bool = True, apart: Sequence[bool] = ()
) -> list[Estimate]:
    """Return the median of all burst samples with its interval, for each of several workloads of one variant.

    How far its processes differ is taken to be alike at all of them but those far beyond the others, which keep
    their own and widen no other: a call that stalled once. Those `apart`, which scatter for another reason, are
    alike among themselves: calls that the host launches no faster than the device runs them. With one process
    nothing is known of that: the intervals are of its own samples alone. Not `winsorized` (below) are those of
    records before 2026-11-29. Raises `ValueError` where `means` does.

    On the log scale, from two bootstraps: of processes and samples, and of samples alone, whose variance is W. The rest
    of the first is the processes' part. n of them show (n - 1) / n of it (the narrowness bias: Hesterberg, What
    Teachers Should Know About the Bootstrap, The American Statistician, 2015), so it is widened by n / (n - 1), and W
    likewise for the samples. Of either the 2.5% of resamples at each end count as the next one (winsorized): of three
    processes of three samples, one call that stalled makes up the median in 1%, which would widen the interval by as
    much as the stall is long. Medians of processes differ by their samples too: the processes' part is by itself an
    estimate of the whole, often too small where processes are few. So W / (n - 1) is added to it, and Student's t has
    the degrees of freedom of that sum, between n - 1 and those of the samples (Satterthwaite, as above). With three
    processes this covers the truth in 94% of cases or more however the spread is split, also where one sample in 20
    stalls (`benchmarks/coverage_of_medians.py`); in 88% where W is first taken
    out of the processes' part. Of several workloads the processes' part is the mean, with the n - 1 degrees of freedom
    of one: what a process has of its own it has at all of them (on an H200, 0.4 to 0.9 of the variance between
    processes is common to six lengths). Where the sum of both parts is over ten times the median of the workloads'
    (`variances.alike`), the processes' part is that workload's own.
    """
    spreads = _spreads(several, seed, winsorized=winsorized)
    between = [spread.between for spread in spreads]
    kinds = [(part.df, bool(apart) and apart[place]) for place, part in enumerate(between)]
    for df, is_apart in set(kinds):
        alike = [place for place, kind in enumerate(kinds) if kind == (df, is_apart)]
        far = variances.far_out([variances.total([spreads[place].within, between[place]]) for place in alike])
        mean = Variance(fmean(between[place].value for place, is_far in zip(alike, far, strict=True) if not is_far), df)
        for place, is_far in zip(alike, far, strict=True):
            if not is_far or between[place].value <= mean.value:
                between[place] = mean
    return [_median(spread, part) for spread, part in zip(spreads, between, strict=True)]


@dataclass(frozen=True)
class _Spread:
    """What two bootstraps say of one median: the variance of its logarithm within processes and between them."""

    value: float
    within: Variance  # without degrees of freedom where each process has one sample
    between: Variance  # without where there is one process


def _median(spread: _Spread, between: Variance) -> Estimate:
    whole = variances.total([spread.within, between])
    half = critical(1 - CONFIDENCE, whole.df) * math.sqrt(whole.value) if whole.value else 0.0
    return Estimate(spread.value, spread.value * math.exp(-half), spread.value * math.exp(half))


def _spreads(several: Sequence[Samples], seed: int, *, winsorized: bool) -> list[_Spread]:
    """Return the spread of each; those with equally many samples in each process get the same draws, all at once."""
    alike: dict[tuple[int, ...], list[int]] = {}
    for place, samples in enumerate(several):
        _count([samples])
        alike.setdefault(tuple(map(len, samples)), []).append(place)
    found: dict[int, _Spread] = {}
    for lengths, places in alike.items():
        drawn = draws(lengths, seed)
        for first in range(0, len(places), _AT_ONCE):
            some = places[first : first + _AT_ONCE]
            padded = np.full((len(some), len(lengths) * max(lengths)), np.nan)
            for row, place in zip(padded, some, strict=True):
                for process, part in enumerate(several[place]):
                    row[process * max(lengths) :][: len(part)] = part
            spreads = zip(some, *(each.variances(padded, winsorized=winsorized) for each in drawn), strict=True)
            for place, within, *both in spreads:
                found[place] = _spread(several[place], float(within), *map(float, both))
    return [found[place] for place in range(len(several))]


def _spread(samples: Samples, within: float, both: float | None = None) -> _Spread:
    """Return what the variances of two bootstraps say: of samples alone, and of several processes too."""
    count, total = len(samples), sum(map(len, samples))
    loose = total - count  # degrees of freedom of the samples within processes
    between = 0.0 if both is None else max(0.0, both - within) * count / (count - 1)
    own = Variance(within * total / loose / max(1, count - 1) if loose else 0.0, loose)
    return _Spread(median(itertools.chain.from_iterable(samples)), own, Variance(between, count - 1))


def _count(sides: Sequence[Samples]) -> int:
    """Return how many processes each side has. Raises `ValueError` where samples are missing or not positive."""
    if not all(sides) or not all(len(part) for side in sides for part in side):
        raise ValueError("samples must come from at least one process, and at least one from each")
    least = min(min(part) for side in sides for part in side)
    if least <= 0:
        raise ValueError(f"samples must be positive, got {least:g}")
    return len(sides[0])
