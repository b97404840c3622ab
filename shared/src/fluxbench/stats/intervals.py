"""Medians and ratios with 95% intervals, of samples that come from several fresh processes.

Samples of one process share its memory layout, its compiled code and its clock history, so they are not independent.
The bootstrap therefore resamples processes first and samples within each process after (a two-stage bootstrap:
Davison and Hinkley, Bootstrap Methods and their Application, 1997, section 3.8). Few processes make it too narrow, so
its standard errors are widened and go with Student's t: `_estimates` says how. What changed between two measurements is
judged in `fluxbench.stats.significance`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fluxbench.stats.student import critical

RESAMPLES = 1000  # enough for a standard error to within 2%
CONFIDENCE = 0.95
Samples = Sequence[Sequence[float]]  # one inner sequence a process


@dataclass(frozen=True)
class Estimate:
    """A value and its 95% interval, in the unit of the samples (a ratio has none)."""

    value: float
    low: float
    high: float


def medians(several: Sequence[Samples], *, seed: int = 0) -> list[Estimate]:
    """Return the median of all samples with its interval, for each of several workloads of one variant.

    How far its processes differ is taken to be alike at all of them. With one process nothing is known of that: the
    intervals are of its own samples alone. Raises `ValueError` where there is no process, a process has no sample
    or a sample is not positive.
    """
    return _estimates([[samples] for samples in several], seed)


def ratios(several: Sequence[tuple[Samples, Samples]], *, seed: int = 0) -> list[Estimate]:
    """Return the median of samples over the median of the reference's, paired by process: under 1 is faster.

    Of several workloads of one variant, as in `medians`. Both sides hold one inner sequence a process, in the same
    order of processes: what a process adds to both (its clocks, its memory layout) leaves the ratio. Raises
    `ValueError` where their numbers of processes differ, and where `medians` does.
    """
    for samples, reference in several:
        if len(samples) != len(reference):
            raise ValueError(
                f"a paired ratio must have the same processes on both sides, got {len(samples)} and {len(reference)}"
            )
    return _estimates([list(pair) for pair in several], seed)


def median(samples: Samples, *, seed: int = 0) -> Estimate:
    """Return the median of all samples with its interval: `medians` of one workload."""
    return medians([samples], seed=seed)[0]


def ratio(samples: Samples, reference: Samples, *, seed: int = 0) -> Estimate:
    """Return the median of `samples` over the median of `reference`, paired by process: `ratios` of one workload."""
    return ratios([(samples, reference)], seed=seed)[0]


@dataclass(frozen=True)
class _Spread:
    """What two bootstraps say of one value: the variance of its logarithm within processes and between them."""

    value: float
    within: tuple[float, int]  # with its degrees of freedom, none where each process has one sample
    between: tuple[float, int]  # none where there is one process


def _estimates(several: Sequence[Sequence[Samples]], seed: int) -> list[Estimate]:
    """Return each median of a first side, over that of its second where there is one, with its 95% interval.

    On the log scale, from two bootstraps: of processes and samples, and of samples alone, whose variance is W. The rest
    of the first is the processes' part. n of them show (n - 1) / n of it (the narrowness bias: Hesterberg, What
    Teachers Should Know About the Bootstrap, The American Statistician, 2015), so it is widened by n / (n - 1), and W
    likewise for the samples. Medians of processes differ by their samples too: the processes' part is by itself an
    estimate of the whole, often too small where processes are few. So W / (n - 1) is added to it, and Student's t has
    the degrees of freedom of that sum, between n - 1 and those of the samples (Satterthwaite, An Approximate
    Distribution of Estimates of Variance Components, Biometrics, 1946). With three processes this covers the truth in
    92% of cases or more however the spread is split; in 88% where W is first taken out of the processes' part. Of
    several workloads the processes' part is the mean, with the n - 1 degrees of freedom of one: what a process has of
    its own it has at all of them (on an H200, 0.4 to 0.9 of the variance between processes is common to six lengths).
    """
    spreads = [_spread(sides, seed) for sides in several]
    shared: dict[int, list[float]] = {}
    for spread in spreads:
        shared.setdefault(spread.between[1], []).append(spread.between[0])
    found = []
    for spread in spreads:
        parts = [spread.within] if spread.within[1] else []
        if df := spread.between[1]:
            parts.append((math.fsum(shared[df]) / len(shared[df]), df))
        variance = math.fsum(part for part, _ in parts)
        half = 0.0
        if variance:
            freedom = variance**2 / math.fsum(part**2 / df for part, df in parts)
            half = critical(1 - CONFIDENCE, freedom) * math.sqrt(variance)
        found.append(Estimate(spread.value, spread.value * math.exp(-half), spread.value * math.exp(half)))
    return found


def _spread(sides: Sequence[Samples], seed: int) -> _Spread:
    rng = np.random.default_rng(seed)
    count = _count(sides)
    middles = [float(np.median(np.concatenate([np.asarray(part) for part in side]))) for side in sides]
    within = _variance(sides, rng, np.tile(np.arange(count), (RESAMPLES, 1)))
    samples = sum(len(part) for side in sides for part in side)
    loose = samples - count * len(sides)  # degrees of freedom of the samples within processes
    between = 0.0
    if count > 1:
        both = _variance(sides, rng, rng.integers(count, size=(RESAMPLES, count)))
        between = max(0.0, both - within) * count / (count - 1)
    return _Spread(
        middles[0] / middles[1] if len(middles) > 1 else middles[0],
        (within * samples / loose / max(1, count - 1) if loose else 0.0, loose),
        (between, count - 1),
    )


def _count(sides: Sequence[Samples]) -> int:
    """Return how many processes each side has. Raises `ValueError` where samples are missing or not positive."""
    if not all(sides) or not all(len(part) for side in sides for part in side):
        raise ValueError("samples must come from at least one process, and at least one from each")
    least = min(min(part) for side in sides for part in side)
    if least <= 0:
        raise ValueError(f"samples must be positive, got {least:g}")
    return len(sides[0])


def _variance(sides: Sequence[Samples], rng: np.random.Generator, chosen: NDArray[np.int64]) -> float:
    """Return the variance, over draws, of the logarithm of the sides' median or ratio of medians."""
    first, *others = (np.log(_bootstrap_medians(side, rng, chosen)) for side in sides)
    drawn = first - others[0] if others else first
    return float(np.var(drawn - drawn[0]))  # equal draws leave exactly nothing


def _bootstrap_medians(samples: Samples, rng: np.random.Generator, chosen: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return a median for each row of `chosen`, which holds the processes of one draw."""
    size = max(len(part) for part in samples)
    padded = np.full((len(samples), size), np.nan)
    for row, part in zip(padded, samples, strict=True):
        row[: len(part)] = part
    lengths = np.array([len(part) for part in samples])
    inner = (rng.random((*chosen.shape, size)) * lengths[chosen][..., None]).astype(np.int64)
    values = padded[chosen[..., None], inner]
    # A shorter process must not be drawn more often than it has samples: its surplus draws are left out.
    values[np.arange(size) >= lengths[chosen][..., None]] = np.nan
    values = np.sort(values.reshape(len(chosen), -1), axis=1)  # NaN last; many times faster than np.nanmedian
    middle, rows = lengths[chosen].sum(axis=1) // 2, np.arange(len(chosen))
    odd = lengths[chosen].sum(axis=1) % 2 == 1
    drawn: NDArray[np.float64] = np.where(
        odd, values[rows, middle], (values[rows, middle - 1] + values[rows, middle]) / 2
    )
    return drawn
