"""The control kernel: a fixed kernel that was timed beside the variants. Where its time changed, the device did."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fluxbench.analysis.comparison.levels import Samples, levels, normalized_levels
from fluxbench.analysis.comparison.model import CellKey, Measured, NoControl, RowKey
from fluxbench.analysis.comparison.page import Sides, by_variant
from fluxbench.device.targets import BetweenRuns
from fluxbench.records.schema import Record, Timing
from fluxbench.stats import following
from fluxbench.stats.pooling import widened
from fluxbench.stats.significance import Effect, effect, mean_effect

Pairs = Mapping[str, tuple[Samples, Samples]]  # by variant, before and after; method version 2: by workload


def control_pairs(before: Measured, after: Measured, cell: CellKey) -> Pairs | NoControl:
    """Return the control kernel's times in a cell beside variants of both sides, or why there are none.

    Where a process has none, as its control kernel was wrong, its variant is left out: levels need every process.
    """
    old, new = before.controls.get(cell), after.controls.get(cell)
    if old is None or new is None:
        return NoControl(missing=tuple(side.name for side in (before, after) if cell not in side.controls))
    if old.kernel != new.kernel:
        return NoControl(kernels=(old.kernel, new.kernel))
    common = {name: (old.samples_ms[name], new.samples_ms[name]) for name in old.samples_ms if name in new.samples_ms}
    whole = {name: pair for name, pair in common.items() if all(side and all(side) for side in pair)}
    return whole or NoControl()


def device_effect(
    cells: Mapping[CellKey, Pairs], rows: Iterable[RowKey], between: Mapping[CellKey, BetweenRuns]
) -> Effect | None:
    """Return how the control kernel's time changed beside the variants of `rows`: the mean over the cells.

    None of none. Beside all variants in a cell that has no such row. A level that a cell has on both sides drops out.
    Its error holds what differs between unchanged runs.
    """
    beside: dict[CellKey, set[str]] = {}
    for notebook, cell, variant, workload in rows:
        beside.setdefault((notebook, cell), set()).update((variant, workload))
    used = [[pair for name, pair in pairs.items() if name in beside.get(cell, pairs)] for cell, pairs in cells.items()]
    effects = [effect(*_of_processes(pairs)) for pairs in used]
    return widened(mean_effect(effects), next(between[cell] for cell in cells)) if effects else None


def _of_processes(pairs: Sequence[tuple[Samples, Samples]]) -> tuple[list[float], list[float]]:
    """Return the control kernel's level in each process of both sides, beyond what each variant adds to it.

    By least squares, since variants may have unequally many processes. One that fewer than half of a side's variants
    have is left out: the others of its side know the level better.
    """
    sides = [[levels(pair[side]) for pair in pairs] for side in (0, 1)]
    held = [[sum(process < len(its) for its in side) for process in range(max(map(len, side)))] for side in sides]
    kept = [[process for process, count in enumerate(of) if 2 * count >= max(of)] for of in held]
    columns = {place: len(pairs) + i for i, place in enumerate((s, p) for s in (0, 1) for p in kept[s])}
    rows, found = [], []
    for side, of_variants in enumerate(sides):
        for variant, its in enumerate(of_variants):
            for process, level in enumerate(its):
                if (side, process) in columns:
                    row = np.zeros(len(pairs) + len(columns))
                    row[[variant, columns[side, process]]] = 1.0
                    rows.append(row)
                    found.append(level)
    solved = np.linalg.lstsq(np.array(rows), np.array(found), rcond=None)[0].tolist()
    before, after = ([solved[columns[side, process]] for process in kept[side]] for side in (0, 1))
    return before, after


@dataclass(frozen=True, kw_only=True)
class Normalized:
    """Times less what follows from the control kernel's, by row: of rows where each process has it."""

    rows: Mapping[RowKey, Sides]
    follows: Mapping[RowKey, float]  # by how much a variant's time follows the control kernel's, 0 to 1
    unknown: Mapping[tuple[str, str, str], float]  # by variant of a cell: the error of a change from not knowing that


def normalized(
    compared: Mapping[RowKey, tuple[Record, Record]], times: Mapping[RowKey, Sides], controls: Mapping[CellKey, Pairs]
) -> Normalized:
    """Return the levels of times less what follows from the control kernel's, see `stats.following`.

    `times` are the levels of what is compared.
    """
    over = {key: one for key, pair in compared.items() if (one := _over_control(*pair, controls.get(key[:2], {})))}
    groups = by_variant(over)
    several = [
        following.Beside(*([np.array([of[key][side] for key in keys]) for side in (0, 1)] for of in (times, over)))
        for keys in groups.values()
    ]
    rows: dict[RowKey, Sides] = {}
    follows: dict[RowKey, float] = {}
    unknown: dict[tuple[str, str, str], float] = {}
    for (which, keys), beside, slope in zip(groups.items(), several, following.slopes(several), strict=True):
        before, after = slope.beyond(beside)
        for key, first, second in zip(keys, before.tolist(), after.tolist(), strict=True):
            rows[key], follows[key] = (tuple(first), tuple(second)), slope.value
        error = slope.error * abs(beside.control_change)
        unknown[which[:3]] = max(error, unknown.get(which[:3], 0.0))
    return Normalized(rows={key: rows[key] for key in over}, follows=follows, unknown=unknown)


def _over_control(old: Record, new: Record, pairs: Pairs) -> Sides | None:
    """Return the levels of a time over the control kernel's in the same process; None where a process has none."""
    control = pairs.get(old.variant) or pairs.get(old.workload.name)
    if control is None:
        return None
    samples = [first_timing(record).samples_ms for record in (old, new)]
    if [len(own) for own in samples] != [len(beside) for beside in control]:
        return None
    before, after = map(normalized_levels, samples, control)
    return before, after


def first_timing(record: Record) -> Timing:
    """Return the timing of a PASSED record that is compared first: burst, or the only one."""
    timing = record.burst or record.timing
    assert timing is not None
    return timing
