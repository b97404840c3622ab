"""Medians and bootstrap intervals of samples that come from several fresh processes.

Samples of one process share its memory layout, its compiled code and its clock history, so they are not independent.
The bootstrap therefore resamples processes first and samples within each process after (a two-stage bootstrap:
Davison and Hinkley, Bootstrap Methods and their Application, 1997, section 3.8).

Two measurements at different times are compared process by process, not sample by sample: the fresh process is the
unit that is repeated (Kalibera and Jones, Rigorous Benchmarking in Reasonable Time, ISMM 2013). Times are compared as
logarithms, so that a slowdown and its reverse are of the same size.
"""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 2000
CONFIDENCE = 0.95
FALSE_DISCOVERY_RATE = 0.05  # of the changes that are called in one family, the share expected to be none
SAME_WITHIN = 0.01  # an equivalence margin: a change for which no reader would choose another kernel
Samples = Sequence[Sequence[float]]  # one inner sequence a process


@dataclass(frozen=True)
class Estimate:
    """A value and its 95% interval, in the unit of the samples (a ratio has none)."""

    value: float
    low: float
    high: float


def median(samples: Samples, *, seed: int = 0) -> Estimate:
    """Return the median of all samples with its bootstrap interval.

    Raises `ValueError` where there is no process or a process has no sample.
    """
    drawn = _bootstrap_medians(samples, np.random.default_rng(seed))
    return _estimate(float(np.median(np.concatenate([np.asarray(part) for part in samples]))), drawn)


def ratio(samples: Samples, reference: Samples, *, seed: int = 0) -> Estimate:
    """Return the median of `samples` over the median of `reference`, paired by process: under 1 is faster.

    Both hold one inner sequence a process, in the same order of processes: what a process adds to both (its clocks,
    its memory layout) leaves the ratio. Raises `ValueError` where their numbers of processes differ.
    """
    if len(samples) != len(reference):
        raise ValueError(
            f"a paired ratio must have the same processes on both sides, got {len(samples)} and {len(reference)}"
        )
    rng = np.random.default_rng(seed)
    chosen = rng.integers(len(samples), size=(RESAMPLES, len(samples)))
    drawn = _bootstrap_medians(samples, rng, chosen) / _bootstrap_medians(reference, rng, chosen)
    value = np.median(np.concatenate([np.asarray(part) for part in samples])) / np.median(
        np.concatenate([np.asarray(part) for part in reference])
    )
    return _estimate(float(value), drawn)


def _bootstrap_medians(
    samples: Samples, rng: np.random.Generator, chosen: NDArray[np.int64] | None = None
) -> NDArray[np.float64]:
    if not samples or not all(len(part) for part in samples):
        raise ValueError("samples must come from at least one process, and at least one from each")
    if chosen is None:
        chosen = rng.integers(len(samples), size=(RESAMPLES, len(samples)))
    size = max(len(part) for part in samples)
    padded = np.full((len(samples), size), np.nan)
    for row, part in zip(padded, samples, strict=True):
        row[: len(part)] = part
    lengths = np.array([len(part) for part in samples])
    inner = (rng.random((*chosen.shape, size)) * lengths[chosen][..., None]).astype(np.int64)
    values = padded[chosen[..., None], inner]
    # A shorter process must not be drawn more often than it has samples: its surplus draws are left out.
    values[np.arange(size) >= lengths[chosen][..., None]] = np.nan
    drawn: NDArray[np.float64] = np.nanmedian(values.reshape(len(chosen), -1), axis=1)
    return drawn


def _estimate(value: float, drawn: NDArray[np.float64]) -> Estimate:
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return Estimate(value, min(float(low), value), max(float(high), value))


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


def judge(effects: Sequence[Effect]) -> list[Change]:
    """Return what each effect of one family is called, all at once.

    Two-sided t tests, called by Benjamini and Hochberg's procedure (Controlling the False Discovery Rate, 1995) at
    `FALSE_DISCOVERY_RATE`: of the changes that are called at most one in twenty is expected to be none, and where
    nothing has changed the chance that anything is called is 5%. `resolution` is at the level at which one more would
    be called. An effect without degrees of freedom is undecided and no member of the family.
    """
    chances = [_chance(one) for one in effects if one.df]
    steps = enumerate(sorted(chances), start=1)
    limit = max((p for rank, p in steps if p <= FALSE_DISCOVERY_RATE * rank / len(chances)), default=-1.0)
    called = sum(p <= limit for p in chances)
    level = FALSE_DISCOVERY_RATE * min(1.0, (called + 1) / max(1, len(chances)))
    return [_change(one, called=bool(one.df) and _chance(one) <= limit, level=level) for one in effects]


def changes(pairs: Sequence[tuple[Samples, Samples]]) -> list[Change]:
    """Return what became of each pair of samples, (before, after), judged as one family.

    Raises `ValueError` where a side has no process or a process no sample.
    """
    return judge([effect(levels(before), levels(after)) for before, after in pairs])


def _chance(one: Effect) -> float:
    """Return the two-sided p-value of an effect."""
    if not one.log_ratio:
        return 1.0
    t = abs(one.log_ratio) / one.se if one.se else math.inf
    return max(0.0, 1 - _within(math.atan(t / math.sqrt(one.df)), one.df))


def _change(one: Effect, *, called: bool, level: float) -> Change:
    if not one.df:
        return Change(_exp(one.log_ratio), 0.0, math.inf, Verdict.UNDECIDED, None)
    half = critical(1 - CONFIDENCE, one.df) * one.se
    low, high = _exp(one.log_ratio - half), _exp(one.log_ratio + half)
    resolution = _exp(critical(level, one.df) * one.se) - 1
    if called:
        verdict = Verdict.SLOWER if one.log_ratio > 0 else Verdict.FASTER
    else:
        same = low >= 1 / (1 + SAME_WITHIN) and high <= 1 + SAME_WITHIN
        verdict = Verdict.SAME if same else Verdict.UNDECIDED
    return Change(_exp(one.log_ratio), low, high, verdict, resolution if math.isfinite(resolution) else None)


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


@functools.cache
def critical(level: float, df: int) -> float:
    """Return the t that Student's distribution exceeds, to either side, with a probability of `level`."""
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, df) < 1 - level else (low, middle)
    return math.sqrt(df) * math.tan(low)


def _within(angle: float, df: int) -> float:
    """Return the chance that Student's t lies within +-sqrt(df) * tan(angle).

    Abramowitz and Stegun, Handbook of Mathematical Functions, 1964: 26.7.3 for odd degrees of freedom, 26.7.4 for even.
    """
    cosine, odd = math.cos(angle), df % 2
    term = cosine if odd else 1.0
    total = 0.0
    for power in range(2 + odd, df + odd + 1, 2):  # terms up to cos(angle) ** (df - 2)
        total += term
        term *= cosine**2 * (power - 1) / power
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if odd else total
