"""Power of each variant while its ranked samples were taken, from the readings of the device's own energy counter."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

from fluxbench.stats.student import critical
from fluxbench.timing.telemetry import Reading

K = TypeVar("K")
Span = tuple[float, float]  # begin and end, monotonic seconds


def powers(readings: Sequence[Reading], blocks: Mapping[K, Sequence[Span]]) -> dict[K, tuple[float, float]]:
    """Return the mean power in W in the spans of each key, and half its 95% interval.

    The counter moves in steps (100 ms on an H200), and a reading sees a step up to 20 ms late. Within a span the counts
    just after each step lie on a line over time whose slope is the power: a regression with one slope for all spans of
    a key, and a start for each. Steps that begin before a span are left out. A key whose spans hold too few steps, or a
    device without a counter, has none.
    """
    counts = [(r.time_s, r.energy_mj) for r in readings if r.energy_mj is not None]
    moved = [later for earlier, later in itertools.pairwise(counts) if later[1] != earlier[1]]
    found = {}
    for name, spans in blocks.items():
        lines = [np.array([step for step in moved if begin <= step[0] <= end]) for begin, end in spans]
        lines = [line - line.mean(axis=0) for line in lines if len(line) > 1]
        freedom = sum(len(line) - 1 for line in lines) - 1
        if freedom < 1:
            continue
        time_s, energy_mj = np.concatenate(lines).T
        slope = float(time_s @ energy_mj) / float(time_s @ time_s)
        error = math.sqrt(float(np.sum((energy_mj - slope * time_s) ** 2)) / freedom / float(time_s @ time_s))
        if slope > 0:
            found[name] = slope / 1e3, critical(0.05, freedom) * error / 1e3
    return found
