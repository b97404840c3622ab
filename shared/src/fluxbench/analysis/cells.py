"""How far the cells of a page differ beyond what the processes of one cell do: as the reference does in them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median, variance
from typing import NamedTuple

from fluxbench.analysis.groups import timing_of
from fluxbench.records.schema import Record
from fluxbench.stats import ordering
from fluxbench.stats.intervals import Samples
from fluxbench.stats.variances import Variance, robust_deviation

_CELLS = 3  # in which a reference was measured, that tell how far cells differ
_FEW_CELLS = 5  # of which a median tells too little
_DF_OF_DEVIATION = 0.4  # times the degrees of freedom of a variance, those of one by the median absolute deviation
_DRIFTED = 2.5  # times the variance of the reference's means that its processes explain: so far cells differ by chance


class Reference(NamedTuple):
    """The logarithms of the reference's times in a cell, one a process, and their variance within a process."""

    logs: Sequence[float]
    within: float


def references(records: Sequence[Record]) -> list[Reference]:
    """Return what the cells measured of the reference; of records of as many processes the mean, by process.

    Those of fewer processes than others of their cell are left out. In burst each record has rounds of its own with it.
    """
    by_cell: dict[str, list[tuple[list[float], float]]] = {}
    for record in records:
        timing = timing_of(record)
        logs = logs_of(record, timing.reference_ms, alone=False)
        if len(logs) > 1:
            inside = 0.0 if record.sustained else within(timing.reference_ms)
            by_cell.setdefault(record.cell, []).append((logs, inside))
    found = []
    for every in by_cell.values():
        most = max(len(logs) for logs, _ in every)
        chosen = [(logs, inside) for logs, inside in every if len(logs) == most]
        by_process = zip(*(logs for logs, _ in chosen), strict=True)
        inside = fmean(inside for _, inside in chosen) / len(chosen)
        found.append(Reference([fmean(logs) for logs in by_process], inside))
    return found


def between(cells: Sequence[Reference]) -> Variance:
    """Return by how much the logarithm of a time, or of a ratio, differs between cells beyond its processes.

    As the reference's times do, of three cells or more: the device drifts, and a kernel has its own times in a process
    that holds others. That is the variance of their means less what the reference's processes explain. Of many cells
    it is by the median absolute deviation, since in one the reference may be what is unsteady; such an estimate has 0.4
    times the degrees of freedom. It counts whole although ratios hold a part of it.
    """
    if len(cells) < _CELLS:
        return ordering.NONE
    means = [fmean(one.logs) for one in cells]
    explained = fmean(max(variance(one.logs), one.within) / len(one.logs) for one in cells)
    if len(cells) <= _FEW_CELLS:
        return Variance(max(0.0, variance(means) - explained), len(cells) - 1)
    return Variance(max(0.0, robust_deviation(means) ** 2 - explained), _DF_OF_DEVIATION * (len(cells) - 1))


def drifted(cells: Sequence[Reference]) -> bool:
    """Whether the logarithms of the reference's times differ between cells by more than its processes explain."""
    if len(cells) < 2:
        return False
    explained = fmean(variance(one.logs) / len(one.logs) for one in cells)
    return variance(fmean(one.logs) for one in cells) > _DRIFTED * explained


def logs_of(record: Record, samples_ms: Sequence[Sequence[float]], *, alone: bool) -> list[float]:
    """Return the logarithm of each process's mean, of burst samples the median.

    Where all records have one process alone, each sample counts as one: nothing else is known of their scatter.
    """
    if alone and len(samples_ms) == 1:
        return [math.log(sample) for sample in samples_ms[0]]
    middle = fmean if record.sustained else median
    return [math.log(middle(part)) for part in samples_ms if part]


def within(parts: Samples) -> float:
    """Return the variance that burst samples alone give the logarithm of a process's median, see `ordering.within`."""
    return ordering.within([[math.log(value) for value in part] for part in parts if part])
