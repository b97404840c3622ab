"""Resamples of medians: how often each sample is drawn, from processes first and then within each."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 1000  # enough for a standard error to within 2%
_TAIL = 25  # of the resamples on either side, which count as the next one: 2.5%
# The variance of a normal distribution over what is left of it so: 1 / (1 - 2 (z pdf(z) + (1 - cdf(z)) (1 - z^2))), of
# z = 1.96.
_OF_TAILS = 1.0953


@dataclass(frozen=True)
class Drawn:
    """Draws from samples of which each process has a known number, in a row of equally long processes."""

    times: NDArray[Any]  # [samples, draws], how often each place in that row is drawn; one that a process lacks never
    counts: NDArray[np.int64]  # [draws], of samples

    def variances(self, rows: NDArray[np.float64], *, winsorized: bool) -> NDArray[np.float64]:
        """Return for each row the variance, over draws, of the logarithm of the median, which may be winsorized.

        Where the drawn samples are in order, the median is the one before which half of them are. How many are drawn up
        to each sample of a row is added up for all draws at once: many times faster than sorting the samples of each.
        A row has NaN at places that a process lacks.
        """
        order, middle = np.argsort(rows, axis=-1), (self.counts // 2).astype(self.times.dtype)  # NaN last
        drawn = np.zeros((len(rows), len(middle)), self.times.dtype)
        lower, upper = np.zeros_like(drawn), np.zeros_like(drawn)  # places in order
        for places in order.T:
            drawn += self.times[places]
            lower += drawn < middle
            upper += drawn <= middle
        values = np.take_along_axis(rows, order, axis=-1)
        odd, even = np.take_along_axis(values, upper, axis=-1), np.take_along_axis(values, lower, axis=-1)
        logs = np.log(np.where(self.counts % 2 == 1, odd, (even + odd) / 2))
        logs -= logs[:, :1].copy()  # equal draws leave exactly nothing
        if not winsorized:
            return np.asarray(np.var(logs, axis=-1))
        ends = np.partition(logs, (_TAIL, -_TAIL - 1), axis=-1)[:, (_TAIL, -_TAIL - 1)]
        return np.asarray(_OF_TAILS * np.var(np.clip(logs, ends[:, :1], ends[:, 1:]), axis=-1))


@functools.lru_cache(maxsize=64)
def draws(lengths: tuple[int, ...], seed: int) -> tuple[Drawn, ...]:
    """Return draws of samples within all processes; of several also draws of processes, and samples within these."""
    rng, count = np.random.default_rng(seed), len(lengths)
    within = _drawn(lengths, rng, np.tile(np.arange(count), (RESAMPLES, 1)))
    if count == 1:
        return (within,)
    return within, _drawn(lengths, rng, rng.integers(count, size=(RESAMPLES, count)))


def _drawn(lengths: Sequence[int], rng: np.random.Generator, chosen: NDArray[np.int64]) -> Drawn:
    """Return draws of samples within `chosen` processes, those of a draw in a row.

    A shorter process must not be drawn more often than it has samples: its surplus draws are left out.
    """
    size, of_chosen, draws = max(lengths), np.array(lengths)[chosen], np.arange(len(chosen))[:, None, None]
    inner = (rng.random((*chosen.shape, size)) * of_chosen[..., None]).astype(np.int64)
    places = chosen[..., None] * size + inner
    kept = np.arange(size) < of_chosen[..., None]
    width = len(lengths) * size
    times = np.bincount((places * len(chosen) + draws)[kept], minlength=width * len(chosen))
    return Drawn(times.reshape(width, -1).astype(np.min_scalar_type(width)), of_chosen.sum(axis=1))
