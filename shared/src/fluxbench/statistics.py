"""Medians and bootstrap intervals of samples that come from several fresh processes.

Samples of one process share its memory layout, its compiled code and its clock history, so they are not independent.
The bootstrap therefore resamples processes first and samples within each process after (a two-stage bootstrap:
Davison and Hinkley, Bootstrap Methods and their Application, 1997, section 3.8).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 2000
CONFIDENCE = 0.95
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
