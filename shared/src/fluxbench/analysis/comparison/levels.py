"""Levels of a record's samples, kept: the certificate compares each run of a kernel hundreds of times."""

from __future__ import annotations

import functools
import math
from statistics import fmean

from fluxbench.stats import significance

Samples = tuple[tuple[float, ...], ...]  # one inner sequence for each process
_KEPT = 4096


@functools.lru_cache(maxsize=_KEPT)
def levels(samples: Samples) -> tuple[float, ...]:
    """Return the logarithm of each process's median: `significance.levels`. Raises `ValueError` where that does."""
    return tuple(significance.levels(samples))


@functools.lru_cache(maxsize=_KEPT)
def levels_of_means(samples: Samples) -> tuple[float, ...]:
    """Return the logarithm of each process's mean, which a sustained time is."""
    return tuple(math.log(fmean(part)) for part in samples)


@functools.lru_cache(maxsize=_KEPT)
def normalized_levels(samples: Samples, control: Samples) -> tuple[float, ...]:
    """Return the levels over the control kernel's: `significance.levels_beside`. Raises `ValueError` as that does."""
    return tuple(significance.levels_beside(samples, control))
