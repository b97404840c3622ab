"""Energy of each variant's sustained blocks, from the readings of the device's own counter."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from fluxbench.telemetry import Reading

Span = tuple[float, float]  # begin and end, monotonic seconds
_LEAST_S = 0.15  # of blocks, before anything is said of a variant
_LONGEST_STEP_S = 0.5  # between two counts: longer ones were not seen as they happened


def powers(readings: Sequence[Reading], blocks: Mapping[str, Sequence[Span]]) -> dict[str, tuple[float, float]]:
    """Return the mean power in W of each variant while its blocks ran, and its standard error.

    The counter moves in steps (100 ms on an H200) that do not fall on the ends of blocks. So the energy of each step is
    taken to be the sum over the variants of their power times their part of it, and the powers are found by least
    squares. A variant with less than 0.15 s of blocks, or a device without a counter, has none.
    """
    counts = [(r.time_s, r.energy_mj) for r in readings if r.energy_mj is not None]
    moved = [later for earlier, later in itertools.pairwise(counts) if later[1] != earlier[1]]
    spans = sorted((begin, end, name) for name, its in blocks.items() for begin, end in its)
    if not spans:
        return {}
    names = [name for name, its in blocks.items() if sum(end - begin for begin, end in its) >= _LEAST_S]
    rows, joules = [], []
    for (begin, before), (end, after) in itertools.pairwise(moved):
        overlap = {name: sum(max(0.0, min(end, e) - max(begin, b)) for b, e in blocks[name]) for name in blocks}
        inside = sum(overlap.values())
        if end - begin > _LONGEST_STEP_S or inside < (end - begin) / 2:
            continue
        rows.append([*(overlap[name] for name in names), end - begin - sum(overlap[name] for name in names)])
        joules.append((after - before) / 1e3)
    parts = np.array(rows)
    seen = [index for index in range(len(names) + 1) if len(rows) and parts[:, index].sum() > 0]
    if len(rows) <= len(seen):
        return {}
    parts = parts[:, seen]
    found, _, rank, _ = np.linalg.lstsq(parts, np.array(joules), rcond=None)
    if rank < len(seen):
        return {}
    noise = np.sum((parts @ found - np.array(joules)) ** 2) / (len(rows) - len(seen))
    errors = np.sqrt(noise * np.diag(np.linalg.inv(parts.T @ parts)))
    return {
        names[index]: (float(power), float(error))
        for index, power, error in zip(seen, found, errors, strict=True)
        if index < len(names) and power > 0
    }
