"""Compares two sides: burst times normalized to the control kernel's, and sustained times by themselves.

The verdict of a row is that of its burst time, beside which the control kernel was timed. Its sustained time is judged
apart, since power and clocks can change that alone. Records without burst times (method versions 1 and 2) have one
time, interleaved with the control kernel's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from statistics import fmean

from fluxbench.analysis.comparison.between import between_runs
from fluxbench.analysis.comparison.control import control_pairs, device_effect, first_timing, normalized
from fluxbench.analysis.comparison.levels import levels, levels_of_means
from fluxbench.analysis.comparison.model import (
    CellKey,
    Comparison,
    Measured,
    Mixture,
    NoControl,
    OutlyingProcess,
    Row,
    RowKey,
)
from fluxbench.analysis.comparison.notes import calls_of, note_of
from fluxbench.analysis.comparison.page import Sides, changes
from fluxbench.records import fingerprint
from fluxbench.records.schema import SUSTAINED, Record, Timing
from fluxbench.records.status import Status

SUSTAINED_LEAST = 0.005  # smaller sustained changes are not significant: two runs on one card differ by about so much

_Records = Mapping[RowKey, Record]


def compare(before: Measured, after: Measured, *, across_graphs: bool = False) -> Comparison:
    """Return how each time changed between two sides.

    `across_graphs`: sustained times too of which one side alone is of CUDA graphs, as for the certificate, which counts
    how far all that runs of one kernel decide by themselves moves its times.
    """
    old, new = _by_key(before), _by_key(after)
    old_cells, new_cells = _by_cell(before), _by_cell(after)
    both = [cell for cell in new_cells if cell in old_cells]
    refused = {
        cell: fingerprint.not_comparable(_taken(old_cells[cell]), _taken(new_cells[cell]), burst=True) for cell in both
    }
    notes = {key: note_of(old.get(key), new.get(key), refused.get(key[:2])) for key in new | old}
    compared = {key: (old[key], new[key]) for key, note in notes.items() if note is None}
    controls = {cell: control_pairs(before, after, cell) for cell in dict.fromkeys(key[:2] for key in compared)}
    pairs = {cell: control for cell, control in controls.items() if not isinstance(control, NoControl)}
    fingerprints = {cell: (old_cells[cell].fingerprint, new_cells[cell].fingerprint) for cell in controls}
    between = {cell: between_runs(*pair) for cell, pair in fingerprints.items()}
    under_load = {
        cell: between_runs(*pair, sustained=True, version=new_cells[cell].method_version)
        for cell, pair in fingerprints.items()
    }
    times = {key: _levels(*pair) for key, pair in compared.items()}
    beyond = normalized(compared, times, pairs)
    beside = beyond.rows
    judged, device, outlying = changes(
        {**times, **beside}, between, device_effect(pairs, beside, between), unknown=beyond.unknown
    )
    alone, _, outlying_alone = changes(times, between)
    graphs = {} if across_graphs else {key: calls_of(*pair, SUSTAINED) for key, pair in compared.items()}
    calls = {key: one for key, one in graphs.items() if one}
    loaded = _sustained({key: pair for key, pair in compared.items() if key not in calls})
    sustained, _, outlying_loaded = changes(loaded, under_load, least=SUSTAINED_LEAST, apart=True)
    left_out = _left_out(beside, outlying, outlying_alone)
    rows = [
        Row(
            notebook=key[0],
            cell=key[1],
            variant=key[2],
            workload=key[3],
            before=_status(old.get(key)),
            before_ms=_middle_ms(old.get(key), left_out.get((key, False), ())),
            after=_status(new.get(key)),
            after_ms=_middle_ms(new.get(key), left_out.get((key, True), ())),
            change=None if key not in judged else alone[key] if key in beside else judged[key],
            normalized=judged[key] if key in beside else None,
            sustained=sustained.get(key),
            note=note,
            sustained_note=calls.get(key),
            follows=beyond.follows.get(key),
        )
        for key, note in notes.items()
    ]
    mixtures = {cell: _mixture(old, new, cell) for cell in both}
    return Comparison(
        before=before.name,
        after=after.name,
        rows=tuple(rows),
        device=device,
        no_control={cell: control for cell, control in controls.items() if isinstance(control, NoControl)},
        differs={
            cell: tuple(fingerprint.differences(old_cells[cell].fingerprint, new_cells[cell].fingerprint))
            for cell in both
        },
        mixtures={cell: mixture for cell, mixture in mixtures.items() if mixture},
        outlying=_each_once(
            outlying,
            [replace(one, as_is=True) for one in outlying_alone],
            [replace(one, sustained=True) for one in outlying_loaded],
        ),
        between=between,
        between_sustained={key[:2]: under_load[key[:2]] for key in loaded},
    )


def _levels(old: Record, new: Record) -> Sides:
    return levels(first_timing(old).samples_ms), levels(first_timing(new).samples_ms)


def _sustained(compared: Mapping[RowKey, tuple[Record, Record]]) -> dict[RowKey, Sides]:
    return {
        key: (_middles(old.sustained), _middles(new.sustained))
        for key, (old, new) in compared.items()
        if old.burst and old.sustained and new.sustained
    }


def _middles(timing: Timing) -> tuple[float, ...]:
    return (levels_of_means if timing.statistic == "mean" else levels)(timing.samples_ms)


def _mixture(old: _Records, new: _Records, cell: CellKey) -> Mixture | None:
    """Return which variants of a cell were timed on one side only; None where burst times rest before each call."""
    was, now = (
        {key[2:] for key, record in side.items() if key[:2] == cell and record.timings and not record.burst}
        for side in (old, new)
    )
    common = {workload for _, workload in was} & {workload for _, workload in now}
    removed, added = (
        tuple(sorted({variant for variant, workload in only if workload in common})) for only in (was - now, now - was)
    )
    return Mixture(removed, added) if removed or added else None


def _by_key(side: Measured) -> dict[RowKey, Record]:
    return {(record.notebook, record.cell, record.variant, record.workload.name): record for record in side.records}


def _by_cell(side: Measured) -> dict[CellKey, Record]:
    """Return a record of each cell: fingerprint and method version are those of all its records."""
    return {(record.notebook, record.cell): record for record in side.records}


def _taken(record: Record) -> tuple[fingerprint.Fingerprint, int]:
    return record.fingerprint, record.method_version


def _status(record: Record | None) -> Status | None:
    return record.status if record else None


def _middle_ms(record: Record | None, left_out: Collection[int]) -> float | None:
    """Return the mean over processes, of which some (from 1) are left out, as they are of the change."""
    if record is None or not record.timings:
        return None
    of_process = enumerate(levels(first_timing(record).samples_ms), start=1)
    return math.exp(fmean(level for process, level in of_process if process not in left_out))


def _left_out(
    beside: Collection[RowKey], outlying: Iterable[OutlyingProcess], outlying_alone: Iterable[OutlyingProcess]
) -> dict[tuple[RowKey, bool], set[int]]:
    """Return the processes that are left out of the times as they are, by row and side.

    Rows `beside` control times are judged by these, and their times as they are apart; all others by their times.
    """
    found: dict[tuple[RowKey, bool], set[int]] = {}
    for several, of_beside in ((outlying, False), (outlying_alone, True)):
        for one in several:
            for key in (key for key in one.rows if (key in beside) is of_beside):
                found.setdefault((key, one.after), set()).add(one.process)
    return found


def _each_once(*several: Iterable[OutlyingProcess]) -> tuple[OutlyingProcess, ...]:
    """Return outlying processes, the most extreme first; one that is so normalized and as it is counts once."""
    found: dict[tuple[object, ...], OutlyingProcess] = {}
    for one in itertools.chain.from_iterable(several):
        found.setdefault((one.cell_key, one.variant, one.after, one.process, one.sustained), one)
    return tuple(sorted(found.values(), key=lambda one: -abs(one.log_ratio)))
